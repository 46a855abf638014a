//! How attempts end: each result counts only from the token that holds its row, within its lease; whole sets in one short
//! transaction, which also notes how the destinations are doing.
//!
//! Promises: a destination that fails again and again is left alone for a while, without using up attempts, and probed;
//! one that is gone is switched off; its tenant's other destinations are told of both, and when it answers again.
//! Relies on: `migrations/functions/43_relay_settle.sql`.

use std::time::Duration;

use sqlx::PgConnection;
use uuid::Uuid;

/// Settles a set of attempts.
pub const SETTLE_SQL: &str =
    "select id, outcome from holdfast.relay_settle($1, $2, $3, $4, $5, $6, $7, $8, $9)";

/// `last_error` holds no more than this many characters.
const LAST_ERROR_MAX_CHARS: usize = 2000;

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The partner has it.
    Delivered,
    /// It is tried again after `delay`, or is a dead letter when its attempts are used up.
    Failed {
        /// For a person; cut to 2,000 characters.
        error: String,
        /// Until the next try.
        delay: Duration,
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
    /// How it ended.
    pub outcome: Outcome,
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

/// Settles attempts, each by the token that holds its row; those whose lease has run out are refused.
///
/// # Errors
/// Of the statement: then nothing was settled.
pub async fn settle(
    connection: &mut PgConnection,
    persistent: bool,
    settlements: &[Settlement],
    breaker: BreakerTerms,
) -> Result<Settled, sqlx::Error> {
    let mut ids = Vec::with_capacity(settlements.len());
    let mut tokens = Vec::with_capacity(settlements.len());
    let mut outcomes: Vec<&str> = Vec::with_capacity(settlements.len());
    let mut errors: Vec<Option<String>> = Vec::with_capacity(settlements.len());
    let mut delays: Vec<Option<f64>> = Vec::with_capacity(settlements.len());
    let mut pauses: Vec<Option<f64>> = Vec::with_capacity(settlements.len());
    for settlement in settlements {
        let (outcome, error, delay, pause) = match &settlement.outcome {
            Outcome::Delivered => ("delivered", None, None, None),
            Outcome::Failed { error, delay, pause } => ("failed", Some(error), Some(delay), pause.as_ref()),
            Outcome::Rejected { error } => ("rejected", Some(error), None, None),
            Outcome::Gone { error } => ("gone", Some(error), None, None),
        };
        ids.push(settlement.id);
        tokens.push(settlement.token);
        outcomes.push(outcome);
        errors.push(error.map(|error| storable(error)));
        delays.push(delay.map(Duration::as_secs_f64));
        pauses.push(pause.map(Duration::as_secs_f64));
    }
    let rows: Vec<(Option<i64>, String)> = sqlx::query_as(SETTLE_SQL)
        .bind(ids)
        .bind(tokens)
        .bind(outcomes)
        .bind(errors)
        .bind(delays)
        .bind(pauses)
        .bind(breaker.after)
        .bind(breaker.pause.as_secs_f64())
        .bind(breaker.pause_max.as_secs_f64())
        .persistent(persistent)
        .fetch_all(connection)
        .await?;
    let mut settled = Settled::default();
    let mut taken = 0;
    for (id, outcome) in rows {
        taken += usize::from(id.is_some());
        match outcome.as_str() {
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
