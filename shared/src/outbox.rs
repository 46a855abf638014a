//! The outbox as the relay sees it: claim, settle, and what becomes of rows whose relay was lost.
//!
//! Promises: a row is held by one relay at a time; a result counts only from the token that holds the row, within its
//! lease; each call here is one statement and one short transaction, so nothing is open while partners are called; an
//! event that commits late, under a lower id, is found (rows are chosen by state, never by a cursor).
//! Relies on: `migrations/functions/40_relay.sql`, where the decisions under locks are made, and the database's clock.
//! Does not promise a single delivery: a relay that dies between a partner's answer and the settlement leaves a row
//! that is sent again, under the same id.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

/// Claims free rows that are due.
pub const CLAIM_SQL: &str = "select id, destination_id, attempts, payload, url, secrets, after \
     from holdfast.relay_claim($1, $2, $3, $4, $5, $6, $7, $8, $9)";
/// Claims one row whose lease was lost.
pub const CLAIM_LOST_SQL: &str = "select id, destination_id, attempts, payload, url, secrets \
     from holdfast.relay_claim_lost($1, $2, $3, $4, $5)";
/// Dead-letters lost rows without an attempt left; tells whether a lost row is due.
pub const SWEEP_LOST_SQL: &str = "select dead_lettered, lost_due from holdfast.relay_sweep_lost()";
/// Settles a set of attempts.
pub const SETTLE_SQL: &str = "select id, outcome from holdfast.relay_settle($1, $2, $3, $4, $5)";
/// Deletes delivered rows, and rows owed to nobody, older than `$1` days; at most `$2`.
pub const REAP_SQL: &str = "delete from outbox where id = any (array(\
     select id from outbox where processed_at < now() - make_interval(days => $1) \
     order by processed_at limit $2 for update skip locked))";

/// `last_error` holds no more than this many characters.
const LAST_ERROR_MAX_CHARS: usize = 2000;

/// On what terms rows are leased.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTerms {
    /// How long a claim holds; must outlast an attempt and its settlement.
    pub lease: Duration,
    /// What 2^attempts is counted in, for the next try of a row whose lease is lost: a second.
    pub retry_unit: Duration,
    /// 1.0 … 1.5, at random.
    pub jitter: f64,
}

/// What is asked of a claim.
#[derive(Debug)]
pub struct ClaimRequest<'a> {
    /// Most rows to claim.
    pub slots: usize,
    /// The destination that was served last; the next ones in order of their ids come first.
    pub after: Uuid,
    /// Destinations with less room than the others, and how many rows each may still get.
    pub busy: &'a [Uuid],
    /// Beside `busy`: its room.
    pub room: &'a [i32],
    /// Room of every other destination.
    pub room_each: usize,
    /// On what terms.
    pub terms: LeaseTerms,
}

/// A claimed row: one event owed to one destination, with all that an attempt needs.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The row.
    pub id: i64,
    /// Whom it is owed to.
    pub destination_id: Uuid,
    /// Attempts, this one counted.
    pub attempts: i32,
    /// The body: its bytes are what is sent.
    pub payload: String,
    /// Where to.
    pub url: String,
    /// The destination's live secrets, newest first.
    pub secrets: Vec<String>,
    /// Proof of the lease.
    pub token: Uuid,
}

impl Claimed {
    fn from_row(row: &PgRow, token: Uuid) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: row.try_get("id")?,
            destination_id: row.try_get("destination_id")?,
            attempts: row.try_get("attempts")?,
            payload: row.try_get("payload")?,
            url: row.try_get("url")?,
            secrets: row.try_get("secrets")?,
            token,
        })
    }
}

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
}

/// Claims up to `slots` rows, oldest due first within each destination, fairly across destinations. Returns them with
/// the destination to continue after.
///
/// # Errors
/// Of the statement.
pub async fn claim(
    connection: &mut PgConnection,
    persistent: bool,
    request: &ClaimRequest<'_>,
) -> Result<(Vec<Claimed>, Uuid), sqlx::Error> {
    let token = Uuid::new_v4();
    let rows = sqlx::query(CLAIM_SQL)
        .bind(int4(request.slots))
        .bind(request.after)
        .bind(request.busy)
        .bind(request.room)
        .bind(int4(request.room_each))
        .bind(token)
        .bind(request.terms.lease.as_secs_f64())
        .bind(request.terms.retry_unit.as_secs_f64())
        .bind(request.terms.jitter)
        .persistent(persistent)
        .fetch_all(connection)
        .await?;
    let after = rows.last().map_or(Ok(request.after), |row| row.try_get("after"))?;
    let claimed: Result<Vec<_>, _> = rows.iter().map(|row| Claimed::from_row(row, token)).collect();
    Ok((claimed?, after))
}

/// Claims one row whose lease was lost. The caller has nothing else in flight: the row may be what killed its relay.
/// Rows of destinations in `troubled` come last, so that one that hangs does not hold up the others.
///
/// # Errors
/// Of the statement.
pub async fn claim_lost(
    connection: &mut PgConnection,
    persistent: bool,
    troubled: &[Uuid],
    terms: LeaseTerms,
) -> Result<Option<Claimed>, sqlx::Error> {
    let token = Uuid::new_v4();
    let row = sqlx::query(CLAIM_LOST_SQL)
        .bind(troubled)
        .bind(token)
        .bind(terms.lease.as_secs_f64())
        .bind(terms.retry_unit.as_secs_f64())
        .bind(terms.jitter)
        .persistent(persistent)
        .fetch_optional(connection)
        .await?;
    row.map(|row| Claimed::from_row(&row, token)).transpose()
}

/// Lost rows, after a sweep.
#[derive(Clone, Copy, Debug)]
pub struct LostRows {
    /// Rows given up just now: their last attempt ended with its relay.
    pub dead_lettered: i32,
    /// Whether one is due to be claimed alone.
    pub lost_due: bool,
}

/// Dead-letters lost rows that have no attempt left.
///
/// # Errors
/// Of the statement.
pub async fn sweep_lost(connection: &mut PgConnection, persistent: bool) -> Result<LostRows, sqlx::Error> {
    let (dead_lettered, lost_due) =
        sqlx::query_as(SWEEP_LOST_SQL).persistent(persistent).fetch_one(connection).await?;
    Ok(LostRows { dead_lettered, lost_due })
}

/// Settles attempts, each by the token that holds its row; those whose lease has run out are refused.
///
/// # Errors
/// Of the statement: then nothing was settled.
pub async fn settle(
    connection: &mut PgConnection,
    persistent: bool,
    settlements: &[Settlement],
) -> Result<Settled, sqlx::Error> {
    let mut ids = Vec::with_capacity(settlements.len());
    let mut tokens = Vec::with_capacity(settlements.len());
    let mut outcomes: Vec<&str> = Vec::with_capacity(settlements.len());
    let mut errors: Vec<Option<String>> = Vec::with_capacity(settlements.len());
    let mut delays: Vec<Option<f64>> = Vec::with_capacity(settlements.len());
    for settlement in settlements {
        let (outcome, error, delay) = match &settlement.outcome {
            Outcome::Delivered => ("delivered", None, None),
            Outcome::Failed { error, delay } => ("failed", Some(storable(error)), Some(delay.as_secs_f64())),
            Outcome::Gone { error } => ("gone", Some(storable(error)), None),
        };
        ids.push(settlement.id);
        tokens.push(settlement.token);
        outcomes.push(outcome);
        errors.push(error);
        delays.push(delay);
    }
    let rows: Vec<(i64, String)> = sqlx::query_as(SETTLE_SQL)
        .bind(ids)
        .bind(tokens)
        .bind(outcomes)
        .bind(errors)
        .bind(delays)
        .persistent(persistent)
        .fetch_all(connection)
        .await?;
    let mut settled = Settled { refused: (settlements.len() - rows.len()) as u64, ..Settled::default() };
    for (_, outcome) in rows {
        match outcome.as_str() {
            "delivered" => settled.delivered += 1,
            "dead" => {
                (settled.failed, settled.dead_lettered) = (settled.failed + 1, settled.dead_lettered + 1)
            }
            _ => settled.failed += 1,
        }
    }
    Ok(settled)
}

/// Deletes up to `limit` delivered rows older than `retention_days`; never one that is pending, dead or discarded.
///
/// # Errors
/// Of the statement.
pub async fn reap_delivered(
    connection: &mut PgConnection,
    persistent: bool,
    retention_days: i32,
    limit: i64,
) -> Result<u64, sqlx::Error> {
    let deleted = sqlx::query(REAP_SQL)
        .bind(retention_days)
        .bind(limit)
        .persistent(persistent)
        .execute(connection)
        .await?;
    Ok(deleted.rows_affected())
}

/// What a partner said, as PostgreSQL can keep it: no NUL, within the column's limit.
fn storable(error: &str) -> String {
    error
        .chars()
        .map(|c| if c == '\0' { char::REPLACEMENT_CHARACTER } else { c })
        .take(LAST_ERROR_MAX_CHARS)
        .collect()
}

fn int4(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
