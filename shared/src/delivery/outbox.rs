//! The outbox as the relay sees it: claim, and what becomes of rows whose relay was lost ([`crate::delivery::settlement`] ends an
//! attempt).
//!
//! Promises: a row is held by one relay at a time; a result counts only from the token that holds the row, within its
//! lease; each call here is one statement and one short transaction, so nothing is open while partners are called; an
//! event that commits late, under a lower id, is found (rows are chosen by state, never by a cursor).
//! Relies on: `migrations/functions/delivery`, where the decisions under locks are made, and the database's clock.
//! Does not promise a single delivery: a relay that dies between a partner's answer and the settlement leaves a row
//! that is sent again, under the same id.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::{Db, DbError};

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

impl LeaseTerms {
    fn to_json(self, token: Uuid) -> Value {
        json!({"token": token, "leaseSecs": self.lease.as_secs_f64(),
            "unitSecs": self.retry_unit.as_secs_f64(), "jitter": self.jitter})
    }
}

/// What is asked of a claim.
#[derive(Debug)]
pub struct ClaimRequest<'a> {
    /// Most rows to claim.
    pub slots: usize,
    /// The destination that was served last; the next ones in order of their ids come first.
    pub after: Uuid,
    /// Destinations with less room than the others, and how many rows each may still get.
    pub busy: &'a [(Uuid, usize)],
    /// Room of every other destination.
    pub room_each: usize,
    /// Destinations whose rows need not be looked at from the beginning, and from which due time on (seconds since 1970, by
    /// the database's clock).
    pub watermarks: &'a [(Uuid, f64)],
    /// On what terms.
    pub terms: LeaseTerms,
}

/// What kind of destination a row is owed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationKind {
    /// The signed envelope.
    Webhook,
    /// A shop's stock, set absolutely.
    ShopifyInventory,
    /// A confirmation.
    Email,
}

/// A claimed row: one event owed to one destination, with all that an attempt needs.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// The row.
    pub id: i64,
    /// Whose event it is.
    pub tenant_id: Uuid,
    /// Whom it is owed to.
    pub destination_id: Uuid,
    /// How it gets there.
    pub kind: DestinationKind,
    /// What it is about: an order, a SKU.
    pub aggregate_id: Uuid,
    /// Attempts, this one counted.
    pub attempts: i32,
    /// The body of a webhook: its bytes are what is sent. Empty for other kinds.
    pub payload: String,
    /// Where to.
    pub url: String,
    /// The destination's live secrets, newest first; a shop's access token.
    pub secrets: Vec<String>,
    /// The shop's location.
    pub location_id: Option<String>,
    /// Proof of the lease.
    pub token: Uuid,
    /// Due time of the oldest free row of this destination (seconds since 1970, by the database's clock).
    pub oldest_due_secs: Option<f64>,
}

impl Claimed {
    fn from_row(row: &PgRow, token: Uuid, oldest_due_secs: Option<f64>) -> Result<Self, sqlx::Error> {
        let kind = match row.try_get::<&str, _>("kind")? {
            "webhook" => DestinationKind::Webhook,
            "shopify_inventory" => DestinationKind::ShopifyInventory,
            "email" => DestinationKind::Email,
            other => return Err(sqlx::Error::Decode(format!("unknown kind {other}").into())),
        };
        Ok(Self {
            id: row.try_get("id")?,
            tenant_id: row.try_get("tenant_id")?,
            destination_id: row.try_get("destination_id")?,
            kind,
            aggregate_id: row.try_get("aggregate_id")?,
            attempts: row.try_get("attempts")?,
            payload: row.try_get("payload")?,
            url: row.try_get("url")?,
            secrets: row.try_get("secrets")?,
            location_id: row.try_get("location_id")?,
            token,
            oldest_due_secs,
        })
    }
}

/// Claims up to `slots` rows, oldest due first within each destination, fairly across destinations. Returns them with
/// the destination to continue after.
///
/// # Errors
/// As [`Db::run`].
pub async fn claim(db: &Db, request: &ClaimRequest<'_>) -> Result<(Vec<Claimed>, Uuid), DbError> {
    let token = Uuid::new_v4();
    let busy = request.busy.iter().map(|(id, room)| json!({"id": id, "room": room}));
    let watermarks = request.watermarks.iter().map(|(id, secs)| json!({"id": id, "secs": secs}));
    let argument = json!({"slots": request.slots, "after": request.after, "roomEach": request.room_each,
        "busy": busy.collect::<Vec<_>>(), "watermarks": watermarks.collect::<Vec<_>>(),
        "lease": request.terms.to_json(token)});
    let rows = db.call(&Statement::new("holdfast.relay_claim", argument)).await?;
    let after = rows.last().map_or(Ok(request.after), |row| row.try_get("after"))?;
    let claimed: Result<Vec<_>, _> =
        rows.iter().map(|row| Claimed::from_row(row, token, row.try_get("oldest_due_secs")?)).collect();
    Ok((claimed?, after))
}

/// Claims one row whose lease was lost, or at a shop all lost rows of one SKU. The caller has nothing else in flight: the
/// row may be what killed its relay. Rows of destinations in `troubled` come last, so that one that hangs does not hold
/// up the others.
///
/// # Errors
/// As [`Db::run`].
pub async fn claim_lost(db: &Db, troubled: &[Uuid], terms: LeaseTerms) -> Result<Vec<Claimed>, DbError> {
    let token = Uuid::new_v4();
    let argument = json!({"troubled": troubled, "lease": terms.to_json(token)});
    let rows = db.call(&Statement::new("holdfast.relay_claim_lost", argument)).await?;
    Ok(rows.iter().map(|row| Claimed::from_row(row, token, None)).collect::<Result<_, _>>()?)
}

/// What a push or a mail is made of, as JSON, of this moment: call it when the claim has committed. `None` where the
/// event has nothing to say to its destination.
///
/// # Errors
/// As [`Db::run`].
pub async fn facts(db: &Db, ids: &[i64]) -> Result<HashMap<i64, Option<String>>, DbError> {
    let rows = db.call(&Statement::new("holdfast.relay_facts", json!({"ids": ids}))).await?;
    let facts = rows.iter().map(|row| Ok((row.try_get("id")?, row.try_get("facts")?)));
    Ok(facts.collect::<Result<_, sqlx::Error>>()?)
}

/// Wakes heads of ordered queues that nobody woke, `steps` queues on from `from`. Returns how far it came, `None` at the
/// end of all queues, and how many it woke.
///
/// # Errors
/// As [`Db::run`].
pub async fn sweep_order(
    db: &Db,
    (destination, aggregate): (Uuid, Uuid),
    steps: u32,
) -> Result<(Option<(Uuid, Uuid)>, i32), DbError> {
    let argument = json!({"destinationId": destination, "aggregateId": aggregate, "steps": steps});
    let row = db.call_one(&Statement::new("holdfast.relay_sweep_order", argument)).await?;
    let (destination, aggregate): (Option<Uuid>, Option<Uuid>) =
        (row.try_get("destination_id")?, row.try_get("aggregate_id")?);
    Ok((destination.zip(aggregate), row.try_get("woken")?))
}

/// How much is due, counted up to `most` rows, and how many seconds ago the oldest of it was written.
///
/// # Errors
/// As [`Db::run`].
pub async fn backlog(db: &Db, most: u32) -> Result<(i64, f64), DbError> {
    let row = db.call_one(&Statement::new("holdfast.relay_backlog", json!({"most": most}))).await?;
    Ok((row.try_get("due")?, row.try_get("oldest_age_secs")?))
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
/// As [`Db::run`].
pub async fn sweep_lost(db: &Db) -> Result<LostRows, DbError> {
    let row = db.call_one(&Statement::new("holdfast.relay_sweep_lost", json!({}))).await?;
    Ok(LostRows { dead_lettered: row.try_get("dead_lettered")?, lost_due: row.try_get("lost_due")? })
}
