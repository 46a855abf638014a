//! The relay: delivers what the outbox owes. An invocation is one drain, batches until nothing is due, then looks
//! again every second until its time is nearly up.
//!
//! Relies on: [`shared::delivery::outbox`] for claims, [`shared::delivery::settlement`] for results, [`shared::delivery::attempt`] and its like for
//! single attempts.
//! Promises: at least one delivery of every event, under a stable id; a slow or dead destination does not hold up
//! another; no transaction is open during a call; nothing is claimed that could not be settled before the deadline;
//! an event that kills its relay is dead-lettered alone, and a relay that is killed by something else costs no event.
//! an ordered destination gets an aggregate's events one after the other; a destination that keeps failing is left
//! alone and probed.
//! Does not promise an order among events elsewhere, nor a single delivery.

mod drain;
mod helpers;
mod lanes;
mod parcels;
mod times;
mod watermarks;

pub use helpers::Helpers;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws::mailer::{Mailer, aws_config};
use aws::scheduler::Scheduler;
use jiff::Timestamp;
use lambda_runtime::LambdaEvent;
use serde::Serialize;
use serde_json::Value;
use shared::db::connection::{Db, DbError};
use shared::delivery::address::Guard;
use shared::delivery::attempt::Sender;
use shared::delivery::outbox;
use shared::delivery::settlement::BreakerTerms;
use shared::runtime::config::{ConfigError, DatabaseConfig, optional};
use shared::runtime::metrics::{Line, Unit};
use tokio::time::Instant;

use crate::drain::Drained;
use crate::parcels::Carrier;

/// Parsed once at cold start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The worker's database.
    pub database: DatabaseConfig,
    /// How long an invocation keeps looking for new events (`RELAY_WATCH_SECONDS`, default 50; 0: drain and end).
    pub watch: Duration,
    /// The function's configured time, used where the runtime gives no usable deadline (`RELAY_TIMEOUT_SECONDS`,
    /// default 60).
    pub timeout: Duration,
    /// Where destinations may be (`DESTINATION_ALLOW`).
    pub guard: Guard,
    /// Whether AWS is there to send mails and to invoke helpers (`AWS_REGION`, which Lambda sets).
    pub aws: bool,
    /// Most helpers in a minute (`RELAY_MAX_HELPERS`, default 4; 0: none).
    pub max_helpers: u32,
}

impl Config {
    /// Reads `WORKER_DATABASE_URL`, `DATABASE_POOLER` and the variables named above.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub fn from_env() -> Result<Self, ConfigError> {
        Ok(Self {
            database: DatabaseConfig::worker()?,
            watch: Duration::from_secs(optional("RELAY_WATCH_SECONDS", 50)?),
            timeout: Duration::from_secs(optional("RELAY_TIMEOUT_SECONDS", 60)?),
            guard: Guard::from_env()?,
            aws: !optional("AWS_REGION", String::new())?.is_empty(),
            max_helpers: optional("RELAY_MAX_HELPERS", 4)?,
        })
    }
}

/// The sizes and times of a drain; the defaults are the deployed ones.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows of one claim.
    pub batch: usize,
    /// Attempts under way at once, of all destinations.
    pub in_flight: usize,
    /// Attempts under way at once to one destination: well below `in_flight`, so that one that hangs leaves room.
    pub in_flight_each: usize,
    /// A whole attempt, connecting included.
    pub attempt: Duration,
    /// What is set aside for settling after the last attempt. Nothing is claimed later than an attempt and this
    /// before the deadline.
    pub settle: Duration,
    /// How long a claim holds. Must outlast `attempt` and `settle`; the rest is the room for a pause of the process.
    pub lease: Duration,
    /// What the backoff's 2^attempts is counted in.
    pub retry_unit: Duration,
    /// Between two looks while nothing is due.
    pub look_every: Duration,
    /// When a destination is left alone.
    pub breaker: BreakerTerms,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            batch: 20,
            in_flight: 256,
            in_flight_each: 20,
            attempt: Duration::from_secs(10),
            settle: Duration::from_secs(2),
            lease: Duration::from_secs(30),
            retry_unit: Duration::from_secs(1),
            look_every: Duration::from_secs(1),
            breaker: BreakerTerms {
                after: 20,
                pause: Duration::from_secs(10),
                pause_max: Duration::from_secs(60),
            },
        }
    }
}

/// More rows than this are not counted.
const BACKLOG_MAX: u32 = 20_000;

/// What a drain takes from its surroundings. The time of leases and due rows is the database's.
#[derive(Clone, Copy, Debug)]
pub struct Ambient {
    /// What attempts are signed with and HTTP dates are compared with.
    pub now: fn() -> Timestamp,
    /// 1.0 … 1.5: spreads the next tries.
    pub jitter: fn() -> f64,
}

impl Default for Ambient {
    fn default() -> Self {
        Self { now: Timestamp::now, jitter: || rand::random_range(1.0..1.5) }
    }
}

/// What an invocation did, in rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Attempts begun.
    pub claimed: u64,
    /// Delivered and settled.
    pub delivered: u64,
    /// Attempts that failed and were settled, the last ones of dead letters among them.
    pub failed: u64,
    /// Dead-lettered: failed for the last time, refused for good, or lost with a relay for the last time.
    pub dead_lettered: u64,
    /// Destinations that are left alone since: their breaker opened, or they are gone.
    #[serde(skip)]
    pub disabled: u64,
    /// Destinations whose breaker closed.
    #[serde(skip)]
    pub recovered: u64,
}

/// Why a drain ended early. What it had claimed and not settled is claimed again when its lease is over.
#[derive(Debug, thiserror::Error)]
pub enum DrainError {
    /// The database failed.
    #[error("the outbox cannot be reached: {0}")]
    Database(#[from] DbError),
    /// TLS cannot be set up.
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
}

/// A sandbox's relay.
pub struct Relay {
    db: Db,
    /// Its sizes and times.
    pub limits: Limits,
    /// Its surroundings.
    pub ambient: Ambient,
    /// Where destinations may be.
    pub guard: Guard,
    /// Sends mails; without one, mails fail.
    pub mailer: Option<Mailer>,
    /// Whom to ask when there is more to do than time; without them, nobody.
    pub helpers: Option<Helpers>,
}

impl Relay {
    /// The deployed relay.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub async fn new(config: &Config) -> Result<Self, ConfigError> {
        let db =
            Db::new(&config.database).map_err(|_| ConfigError::new("WORKER_DATABASE_URL", "is wrong"))?;
        let mut relay = Self::with(db, Limits::default(), Ambient::default());
        relay.guard = config.guard.clone();
        // Without a region the SDK would look for one on the network.
        if config.aws {
            let aws = aws_config().await;
            relay.mailer = Some(Mailer::from_env(&aws)?);
            relay.helpers = Scheduler::from_env(&aws)?
                .map(|scheduler| Helpers { scheduler, max: config.max_helpers })
                .filter(|helpers| helpers.max > 0);
        }
        Ok(relay)
    }

    /// A relay with limits and surroundings of its own, for public destinations, without mails and helpers.
    pub fn with(db: Db, limits: Limits, ambient: Ambient) -> Self {
        Self { db, limits, ambient, guard: Guard::default(), mailer: None, helpers: None }
    }

    /// One drain; then looks again until `watch` is over. Ends in any case before `deadline`.
    ///
    /// # Errors
    /// When the database stays away.
    pub async fn run_once(&self, watch: Duration, deadline: Instant) -> Result<Summary, DrainError> {
        // Made here and not at cold start: connections that lay through a freeze are dead.
        let sender = Sender::new(self.limits.attempt, self.guard.clone())?;
        let carrier = Carrier { sender, mailer: self.mailer.clone() };
        let drained = drain::drain(self, carrier, watch, deadline).await?;
        self.conclude(&drained).await;
        Ok(drained.summary)
    }

    /// Tells how it went, and asks for help where time was up before the work was done. Nothing depends on it.
    async fn conclude(&self, drained: &Drained) {
        let Drained { summary, more, times } = drained;
        let db = &self.db;
        let backlog = outbox::backlog(db, BACKLOG_MAX).await;
        let (due, oldest_age_secs) = match backlog {
            Ok((due, age_secs)) => (u64::try_from(due).unwrap_or(0), age_secs),
            Err(error) => {
                tracing::warn!(%error, "the backlog was not counted");
                return;
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "rows of one minute")]
        let count = |rows: u64| rows as f64;
        Line::of("relay")
            .with("Delivered", Unit::Count, count(summary.delivered))
            .with("Failed", Unit::Count, count(summary.failed))
            .with("DeadLettered", Unit::Count, count(summary.dead_lettered))
            .with("DestinationsDisabled", Unit::Count, count(summary.disabled))
            .with("DestinationsRecovered", Unit::Count, count(summary.recovered))
            .with("OldestPendingAge", Unit::Seconds, oldest_age_secs)
            .with_all("BatchTime", Unit::Milliseconds, times.done_ms())
            .write();
        if let Some(helpers) = self.helpers.as_ref().filter(|_| *more) {
            helpers.ask(due, summary.delivered, (self.ambient.now)()).await;
        }
    }
}

/// One invocation. The event is `{}`, a schedule's, or `{"watchSeconds":n}`.
///
/// # Errors
/// When the drain ended early.
pub async fn handle(
    relay: &Relay,
    config: &Config,
    event: LambdaEvent<Value>,
) -> Result<Summary, DrainError> {
    let watch = match event.payload.get("watchSeconds").and_then(Value::as_u64) {
        Some(secs) => Duration::from_secs(secs),
        None => config.watch,
    };
    let deadline = Instant::now() + remaining(event.context.deadline, SystemTime::now(), config.timeout);
    let summary = relay.run_once(watch, deadline).await?;
    tracing::info!(?summary, "drained");
    Ok(summary)
}

/// Time until the invocation's deadline. Local runtimes send one that lies in the past (600,000 ms after 1970): then
/// the configured time counts from now.
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
