//! Settles attempts: many results in one short transaction, which also updates the circuit breakers.
//!
//! Promises: a result counts only with the token that holds the row, and within the lease. A destination that keeps failing
//! gets no events while its breaker is open, which uses up no attempts, and is probed; one that answers 410 is disabled.
//! Both, and the recovery, are events for the tenant's other destinations.
//! Relies on: `migrations/functions/4_delivery/settle.sql`.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::Db;
use crate::db::error::DbError;

/// Limit of the column `last_error`.
const LAST_ERROR_MAX_CHARS: usize = 2000;

/// How a leased row changes state (`migrations/functions/4_delivery/0_states.sql`). Errors are cut to 2,000 characters.
#[derive(Clone, Debug, PartialEq)]
pub enum Transition {
    /// The row is done.
    Delivered,
    /// The row is done, although nothing was sent: why.
    Passed(String),
    /// Retried after its backoff, or a dead letter after the last attempt.
    Failed {
        /// Kept as `last_error`.
        error: String,
        /// Factor of the backoff, 1.0 … 1.5 at random.
        jitter: f64,
        /// Least time to the retry.
        retry_after: Option<Duration>,
        /// No connection, no answer in time, or a 5xx: nobody there could read it.
        unreachable: bool,
    },
    /// The destination asked for a pause: all its rows wait, and the attempt is given back.
    Throttled {
        /// Kept as `last_error`.
        error: String,
        /// `None`: it did not say how long.
        pause: Option<Duration>,
    },
    /// Permanent rejection by a healthy destination: a dead letter at once.
    Rejected(String),
    /// The destination is gone: it is disabled, and the row waits.
    Gone(String),
}

/// The result of one attempt.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// Id of the outbox row.
    pub id: i64,
    /// Token of its lease.
    pub token: Uuid,
    /// Its new state.
    pub transition: Transition,
    /// HTTP status of the answer, kept with the row's last attempts.
    pub status: Option<u16>,
    /// How long the attempt took, kept with it.
    pub took: Duration,
}

impl Settlement {
    /// Of an attempt of which nothing else is known.
    pub fn new(id: i64, token: Uuid, transition: Transition) -> Self {
        Self { id, token, transition, status: None, took: Duration::ZERO }
    }

    fn to_json(&self) -> Value {
        let (outcome, error) = match &self.transition {
            Transition::Delivered => ("delivered", None),
            Transition::Passed(error) => ("delivered", Some(error)),
            Transition::Failed { error, .. } => ("failed", Some(error)),
            Transition::Throttled { error, .. } => ("throttled", Some(error)),
            Transition::Rejected(error) => ("rejected", Some(error)),
            Transition::Gone(error) => ("gone", Some(error)),
        };
        let mut json = json!({"id": self.id, "token": self.token, "outcome": outcome,
            "error": error.map(|error| storable(error)), "status": self.status,
            "ms": u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX)});
        match &self.transition {
            Transition::Failed { jitter, retry_after, unreachable, .. } => {
                json["jitter"] = json!(jitter);
                json["retryAfterSecs"] = json!(retry_after.map(|wait| wait.as_secs_f64()));
                json["unreachable"] = json!(unreachable);
            }
            Transition::Throttled { pause, .. } => {
                json["pauseSecs"] = json!(pause.map(|pause| pause.as_secs_f64()));
            }
            _ => (),
        }
        json
    }
}

/// The result of a settlement, in rows unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Settled as delivered.
    pub delivered: u64,
    /// Not delivered: retried, dead-lettered, or waiting at a destination that is gone or asked for a pause.
    pub failed: u64,
    /// Those of `failed` that are dead letters now.
    pub dead_lettered: u64,
    /// The rows whose result was refused: the lease had expired, or a person discarded the row.
    pub refused: Vec<i64>,
    /// Destinations whose breaker opened, or that are gone.
    pub disabled: u64,
    /// Destinations whose breaker closed.
    pub recovered: u64,
    /// Whether rows became due: the next of an ordered queue, or an event about a destination.
    pub woken: bool,
}

/// The circuit breaker of each destination.
#[derive(Clone, Copy, Debug)]
pub struct BreakerTerms {
    /// Consecutive failures that open it.
    pub after: i32,
    /// Time to the first probe; doubled after each failed probe.
    pub pause: Duration,
    /// Limit of that doubling.
    pub pause_max: Duration,
    /// It also opens when a destination could not be reached for so long, by whatever attempt.
    pub unreachable: Duration,
}

/// Settles attempts, all in one transaction. `retry_unit` is the unit of the backoff 2^attempts.
pub async fn settle(
    db: &Db,
    settlements: &[Settlement],
    retry_unit: Duration,
    breaker: BreakerTerms,
) -> Result<Settled, DbError> {
    let attempts: Vec<Value> = settlements.iter().map(Settlement::to_json).collect();
    let argument = json!({"attempts": attempts, "unitSecs": retry_unit.as_secs_f64(), "breaker": {
        "after": breaker.after, "openSecs": breaker.pause.as_secs_f64(),
        "openMaxSecs": breaker.pause_max.as_secs_f64(), "unreachableSecs": breaker.unreachable.as_secs_f64()}});
    let rows = db.call(&Statement::new("holdfast.relay_settle", argument)).await?;
    let mut settled = Settled::default();
    let mut taken = HashSet::new();
    for row in rows {
        taken.extend(row.try_get::<Option<i64>, _>("id")?);
        match row.try_get::<&str, _>("outcome")? {
            "delivered" => settled.delivered += 1,
            "dead" => {
                (settled.failed, settled.dead_lettered) = (settled.failed + 1, settled.dead_lettered + 1);
            }
            "opened" | "disabled" => (settled.disabled, settled.woken) = (settled.disabled + 1, true),
            "closed" => (settled.recovered, settled.woken) = (settled.recovered + 1, true),
            "woken" => settled.woken = true,
            _ => settled.failed += 1,
        }
    }
    settled.refused = settlements.iter().map(|one| one.id).filter(|id| !taken.contains(id)).collect();
    Ok(settled)
}

/// An error text as PostgreSQL can store it: no NUL, within the column's limit.
fn storable(error: &str) -> String {
    error
        .chars()
        .map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c })
        .take(LAST_ERROR_MAX_CHARS)
        .collect()
}
