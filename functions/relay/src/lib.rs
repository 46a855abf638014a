//! The relay: delivers the events of the outbox. An invocation is one drain: it delivers batches until nothing is due, then
//! polls every second until its time is nearly up.
//!
//! Promises: at-least-once delivery of every event under a stable message id. A slow or dead destination does not hold up
//! others; one that keeps failing is paused by its circuit breaker and probed. An ordered destination gets the events of an
//! aggregate one after the other. No transaction is open during a call; nothing is claimed that could not be settled before
//! the deadline. An event that kills its relay becomes a dead letter without taking others with it.
//! Relies on: [`shared::delivery`] for claims, settlements and single attempts.
//! Does not promise a single delivery, nor an order at other destinations.

mod drain;
mod helpers;
mod messages;
mod questions;
mod slots;
mod snapshot;
mod times;
mod watermarks;

pub use helpers::Helpers;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws::bus::Buses;
use aws::mailer::{Mailer, aws_config};
use aws::scheduler::Scheduler;
use jiff::Timestamp;
use lambda_runtime::LambdaEvent;
use serde::Serialize;
use serde_json::Value;
use shared::db::connection::Db;
use shared::db::error::DbError;
use shared::delivery::address::Guard;
use shared::delivery::attempt::Sender;
use shared::delivery::outbox;
use shared::delivery::settlement::BreakerTerms;
use shared::runtime::config::{ConfigError, DatabaseConfig, optional};
use shared::runtime::metrics::{Line, Unit};
use shared::runtime::sealed::{self, Sealer};
use tokio::time::Instant;

use crate::drain::Drained;
use crate::messages::Clients;

/// The minute between two scheduled invocations, and some time for the next to begin.
pub const WATCH_SECS: u64 = 62;
/// The function's time limit in template.yaml.
pub const TIMEOUT_SECS: u64 = 90;
/// 0: none.
const MAX_HELPERS: u32 = 4;

/// The environment, read once at cold start.
#[derive(Clone, Debug)]
pub struct Config {
    /// `WORKER_DATABASE_URL`, `DATABASE_POOLER`.
    pub database: DatabaseConfig,
    /// `RELAY_WATCH_SECONDS`: how long an invocation polls for new events; 0: drain and end.
    pub watch: Duration,
    /// `RELAY_TIMEOUT_SECONDS`: the function's time limit, used where the runtime gives no usable deadline.
    pub timeout: Duration,
    /// `DESTINATION_ALLOW`.
    pub guard: Guard,
    /// Whether `AWS_REGION` is set, as Lambda does: without it no mail and no helpers.
    pub aws: bool,
    /// `RELAY_MAX_HELPERS`: most helpers in a minute.
    pub max_helpers: u32,
}

impl Config {
    /// Reads the variables named above. The error names the one that is missing or wrong.
    pub fn from_env() -> Result<Self, ConfigError> {
        Ok(Self {
            database: DatabaseConfig::worker()?,
            watch: Duration::from_secs(optional("RELAY_WATCH_SECONDS", WATCH_SECS)?),
            timeout: Duration::from_secs(optional("RELAY_TIMEOUT_SECONDS", TIMEOUT_SECS)?),
            guard: Guard::from_env()?,
            aws: !optional("AWS_REGION", String::new())?.is_empty(),
            max_helpers: optional("RELAY_MAX_HELPERS", MAX_HELPERS)?,
        })
    }
}

/// The sizes and times of a drain; the defaults are the deployed ones.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows of one claim; several times as many where the claim before was full.
    pub batch: usize,
    /// Attempts in flight, of all destinations.
    pub in_flight: usize,
    /// Attempts in flight to one destination: well below `in_flight`, so that one that hangs leaves slots for others.
    pub in_flight_each: usize,
    /// The same while it answers every attempt: several batches, so that the database works while it is being sent to.
    pub in_flight_proven: usize,
    /// Time limit of an attempt, connecting included.
    pub attempt: Duration,
    /// Time to settle the last attempt: the last claim comes no later than `attempt` and this before the deadline.
    pub settle: Duration,
    /// Must outlast `attempt` and `settle`; the rest allows for a pause of the process.
    pub lease: Duration,
    /// Unit of the backoff 2^attempts.
    pub retry_unit: Duration,
    /// Least time between two polls while nothing is due.
    pub poll_interval: Duration,
    /// When a failing destination is paused.
    pub breaker: BreakerTerms,
}

impl Limits {
    /// No claim comes later than this before the deadline.
    pub fn last_attempt(&self) -> Duration {
        self.attempt + self.settle
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch: 20,
            in_flight: 512,
            in_flight_each: 20,
            in_flight_proven: 80,
            attempt: Duration::from_secs(10),
            settle: Duration::from_secs(2),
            lease: Duration::from_secs(30),
            retry_unit: Duration::from_secs(1),
            poll_interval: Duration::from_secs(1),
            breaker: BreakerTerms {
                after: 20,
                pause: Duration::from_secs(10),
                pause_max: Duration::from_secs(60),
                unreachable: Duration::from_secs(15 * 60),
            },
        }
    }
}

/// How long an invocation polls for new events once nothing is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// For this time; zero: drain and end.
    For(Duration),
    /// At least for this time, and then until another relay has begun or the deadline leaves no time for an attempt. So an
    /// event is seen at once at whatever moment it is written, be the next relay early or late.
    UntilFollowed(Duration),
}

impl Watch {
    /// Whether a relay that has nothing to do may end, so long after it began; `followed`: another one has begun since.
    pub fn is_over(self, elapsed: Duration, followed: bool) -> bool {
        match self {
            Self::For(time) => elapsed >= time,
            Self::UntilFollowed(least) => elapsed >= least && followed,
        }
    }

    /// Whether it needs to know that it is followed, so long after it began.
    pub(crate) fn asks_for_another(self, elapsed: Duration) -> bool {
        matches!(self, Self::UntilFollowed(least) if elapsed >= least)
    }
}

impl From<Duration> for Watch {
    fn from(time: Duration) -> Self {
        Self::For(time)
    }
}

/// A destination that answered nothing but "slow down" for so long counts in a metric.
const LONG_THROTTLED: Duration = Duration::from_secs(24 * 3600);

/// The metric counts due rows up to this number.
const BACKLOG_MAX: u32 = 20_000;

/// Clock and randomness, replaced in tests. Leases and due times go by the database's clock.
#[derive(Clone, Copy, Debug)]
pub struct Ambient {
    /// The time of signatures and HTTP dates.
    pub now: fn() -> Timestamp,
    /// Factor of the backoff, 1.0 … 1.5.
    pub jitter: fn() -> f64,
}

impl Default for Ambient {
    fn default() -> Self {
        Self { now: Timestamp::now, jitter: || rand::random_range(1.0..1.5) }
    }
}

/// The answer of an invocation, in rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Rows claimed, each for one attempt.
    pub claimed: u64,
    /// Settled as delivered.
    pub delivered: u64,
    /// Settled as failed, dead letters included.
    pub failed: u64,
    /// New dead letters: rejected, or out of attempts, also by the death of a relay.
    pub dead_lettered: u64,
    /// Destinations whose breaker opened, or that are gone.
    #[serde(skip)]
    pub disabled: u64,
    /// Destinations whose breaker closed.
    #[serde(skip)]
    pub recovered: u64,
}

/// Why a drain ended early. Rows that it claimed and did not settle are claimed again when their lease has expired.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// Also after reconnects.
    #[error("the outbox cannot be reached: {0}")]
    Database(#[from] DbError),
    /// TLS cannot be set up.
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// The state of one sandbox.
pub struct Relay {
    db: Db,
    /// Sizes and times of a drain.
    pub limits: Limits,
    /// Clock and randomness.
    pub ambient: Ambient,
    /// Admits addresses of destinations.
    pub guard: Guard,
    /// Opens the secrets of destinations; `None`: they are taken as they are stored.
    pub sealer: Option<Sealer>,
    /// `None`: mail fails.
    pub mailer: Option<Mailer>,
    /// `None`: buses and queues fail.
    pub buses: Option<Buses>,
    /// `None`: no helpers are scheduled.
    pub helpers: Option<Helpers>,
}

impl Relay {
    /// The deployed relay. The error names the variable that is missing or wrong.
    pub async fn new(config: &Config) -> Result<Self, ConfigError> {
        let db =
            Db::new(&config.database).map_err(|_| ConfigError::new("WORKER_DATABASE_URL", "is wrong"))?;
        let mut relay = Self::with(db, Limits::default(), Ambient::default());
        relay.guard = config.guard.clone();
        relay.sealer = Some(sealed::from_env().await?);
        // Without a region the SDK would search the network for one.
        if config.aws {
            let aws = aws_config().await;
            relay.mailer = Some(Mailer::from_env(&aws)?);
            relay.buses = Some(Buses::new(&aws));
            relay.helpers = Scheduler::from_env(&aws)?
                .map(|scheduler| Helpers { scheduler, max: config.max_helpers })
                .filter(|helpers| helpers.max > 0);
        }
        Ok(relay)
    }

    /// A relay for public destinations only, without AWS.
    pub fn with(db: Db, limits: Limits, ambient: Ambient) -> Self {
        Self {
            db,
            limits,
            ambient,
            guard: Guard::default(),
            sealer: None,
            mailer: None,
            buses: None,
            helpers: None,
        }
    }

    /// One drain, which polls until `watch` is over. Ends before `deadline` in any case.
    pub async fn run_once(&self, watch: impl Into<Watch>, deadline: Instant) -> Result<Summary, DrainError> {
        // Not at cold start: connections that were open when a sandbox froze are dead.
        let sender = Sender::new(self.limits.attempt, self.guard.clone())?;
        let (mailer, buses) = (self.mailer.clone(), self.buses.clone());
        let clients = Clients { sender, mailer, senders: self.guard.senders, buses };
        let drained = drain::drain(self, clients, watch.into(), deadline).await?;
        self.conclude(&drained).await;
        snapshot::tell_oldest(&self.db).await;
        Ok(drained.summary)
    }

    /// Writes the metrics, and schedules helpers where time was up before the work was done. No delivery depends on it.
    async fn conclude(&self, drained: &Drained) {
        let Drained { summary, work_left, times } = drained;
        let db = &self.db;
        let backlog = outbox::backlog(db, BACKLOG_MAX).await.inspect_err(|error| {
            tracing::warn!(%error, "the backlog was not counted");
        });
        #[expect(clippy::cast_precision_loss, reason = "rows of one minute")]
        let count = |rows: u64| rows as f64;
        let mut line = Line::of("relay")
            .with("Delivered", Unit::Count, count(summary.delivered))
            .with("Failed", Unit::Count, count(summary.failed))
            .with("DeadLettered", Unit::Count, count(summary.dead_lettered))
            .with("DestinationsDisabled", Unit::Count, count(summary.disabled))
            .with("DestinationsRecovered", Unit::Count, count(summary.recovered))
            .with_all("BatchTime", Unit::Milliseconds, times.done_ms());
        // Its absence is an alarm of its own.
        match outbox::long_throttled(db, LONG_THROTTLED).await {
            Ok(destinations) => {
                let destinations = u64::try_from(destinations).unwrap_or(0);
                line = line.with("DestinationsThrottledForADay", Unit::Count, count(destinations));
            }
            Err(error) => tracing::warn!(%error, "throttled destinations were not counted"),
        }
        if let Ok((_, oldest_age_secs)) = backlog {
            line = line.with("OldestPendingAge", Unit::Seconds, oldest_age_secs);
        }
        line.write();
        if let Some(helpers) = self.helpers.as_ref().filter(|_| *work_left) {
            // What cannot be counted is much.
            let due = backlog.map_or(u64::from(BACKLOG_MAX), |(due, _)| u64::try_from(due).unwrap_or(0));
            helpers.ask(due, summary.delivered, (self.ambient.now)()).await;
        }
    }
}

/// One invocation. The event may be `{"watchSeconds":n}`; any other, like that of a schedule, means the configured time.
pub async fn handle(
    relay: &Relay,
    config: &Config,
    event: LambdaEvent<Value>,
) -> Result<Summary, DrainError> {
    let watch = match event.payload.get("watchSeconds").and_then(Value::as_u64) {
        Some(secs) => Watch::For(Duration::from_secs(secs)),
        None if config.watch.is_zero() => Watch::For(config.watch),
        None => Watch::UntilFollowed(config.watch),
    };
    let deadline = Instant::now() + remaining(event.context.deadline, SystemTime::now(), config.timeout);
    let summary = relay.run_once(watch, deadline).await?;
    tracing::info!(?summary, "drained");
    Ok(summary)
}

/// Time to the invocation's deadline. Local runtimes send one of 1970 (600,000 ms): then the configured time counts.
fn remaining(deadline_ms: u64, now: SystemTime, configured: Duration) -> Duration {
    let deadline = UNIX_EPOCH + Duration::from_millis(deadline_ms);
    match deadline.duration_since(now) {
        Ok(left) if !left.is_zero() => left,
        _ => configured,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_of_1970_means_the_configured_time_from_now() {
        let (now, minute) = (SystemTime::now(), Duration::from_secs(60));
        assert_eq!(remaining(600_000, now, minute), minute);
        let ahead = now + Duration::from_secs(9);
        let ahead_ms = ahead.duration_since(UNIX_EPOCH).unwrap().as_millis();
        let left = remaining(u64::try_from(ahead_ms).unwrap(), now, minute);
        assert!(left > Duration::from_millis(8_990) && left <= Duration::from_secs(9), "{left:?}");
    }
}
