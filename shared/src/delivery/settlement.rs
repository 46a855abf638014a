//! How attempts end: each result counts only from the token that holds its row, within its lease; whole sets in one short
//! transaction, which also notes how the destinations are doing.
//!
//! Promises: a destination that fails again and again is left alone for a while, without using up attempts, and probed;
//! one that is gone is switched off; its tenant's other destinations are told of both, and when it answers again.
//! Relies on: `migrations/functions/delivery/settle.sql`.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::{Db, DbError};

/// `last_error` holds no more than this many characters.
const LAST_ERROR_MAX_CHARS: usize = 2000;

/// What becomes of a row when its attempt has ended: a move of the state machine in `migrations/functions/delivery`.
#[derive(Clone, Debug, PartialEq)]
pub enum Transition {
    /// The partner has it.
    Delivered,
    /// It is tried again after its backoff, or is a dead letter when its attempts are used up.
    Failed {
        /// For a person; cut to 2,000 characters.
        error: String,
        /// 1.0 … 1.5, at random: the backoff is multiplied by it.
        jitter: f64,
        /// The next try comes no earlier than this from now.
        retry_after: Option<Duration>,
        /// For how long the destination asked to be left alone altogether.
        pause: Option<Duration>,
    },
    /// The destination, which is well, will never take it: a dead letter at once.
    Rejected {
        /// For a person; cut to 2,000 characters.
        error: String,
    },
    /// The destination is gone for good: it is disabled, and the row waits.
    Gone {
        /// For a person; cut to 2,000 characters.
        error: String,
    },
}

/// The result of one attempt.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The row.
    pub id: i64,
    /// Its lease.
    pub token: Uuid,
    /// What becomes of it.
    pub transition: Transition,
}

impl Settlement {
    fn to_json(&self) -> Value {
        let (outcome, error) = match &self.transition {
            Transition::Delivered => ("delivered", None),
            Transition::Failed { error, .. } => ("failed", Some(error)),
            Transition::Rejected { error } => ("rejected", Some(error)),
            Transition::Gone { error } => ("gone", Some(error)),
        };
        let mut json = json!({"id": self.id, "token": self.token, "outcome": outcome,
            "error": error.map(|error| storable(error))});
        if let Transition::Failed { jitter, retry_after, pause, .. } = &self.transition {
            json["jitter"] = json!(jitter);
            json["retryAfterSecs"] = json!(retry_after.map(|wait| wait.as_secs_f64()));
            json["pauseSecs"] = json!(pause.map(|pause| pause.as_secs_f64()));
        }
        json
    }
}

/// What became of a set of settlements, in rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Delivered.
    pub delivered: u64,
    /// Failed, the dead-lettered among them, and those that found the destination gone.
    pub failed: u64,
    /// Failed for the last time.
    pub dead_lettered: u64,
    /// Not taken: the lease had run out, or a person set the row aside meanwhile.
    pub refused: u64,
    /// Destinations that are left alone from now on: their breaker opened, or they are gone.
    pub disabled: u64,
    /// Destinations whose breaker closed.
    pub recovered: u64,
    /// Whether something became due by it: who stood behind, or what is told of a destination.
    pub woken: bool,
}

/// When a destination is left alone.
#[derive(Clone, Copy, Debug)]
pub struct BreakerTerms {
    /// After so many failures in a row.
    pub after: i32,
    /// For so long at first, and twice as long after each probe that failed.
    pub pause: Duration,
    /// For no longer than this.
    pub pause_max: Duration,
}

/// Settles attempts, each by the token that holds its row; those whose lease has run out are refused. `retry_unit` is what
/// 2^attempts is counted in.
///
/// # Errors
/// As [`Db::run`]: then nothing was settled.
pub async fn settle(
    db: &Db,
    settlements: &[Settlement],
    retry_unit: Duration,
    breaker: BreakerTerms,
) -> Result<Settled, DbError> {
    let attempts: Vec<Value> = settlements.iter().map(Settlement::to_json).collect();
    let argument = json!({"attempts": attempts, "unitSecs": retry_unit.as_secs_f64(), "breaker": {
        "after": breaker.after, "openSecs": breaker.pause.as_secs_f64(),
        "openMaxSecs": breaker.pause_max.as_secs_f64()}});
    let rows = db.call(&Statement::new("holdfast.relay_settle", argument)).await?;
    let mut settled = Settled::default();
    let mut taken = 0;
    for row in rows {
        taken += usize::from(row.try_get::<Option<i64>, _>("id")?.is_some());
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
    settled.refused = (settlements.len() - taken) as u64;
    Ok(settled)
}

/// What a partner said, as PostgreSQL can keep it: no NUL, within the column's limit.
fn storable(error: &str) -> String {
    error
        .chars()
        .map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c })
        .take(LAST_ERROR_MAX_CHARS)
        .collect()
}
