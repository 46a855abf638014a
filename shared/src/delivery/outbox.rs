//! The relay's access to the outbox: claim due rows, recover rows of a relay that died. Settling is
//! [`crate::delivery::settlement`].
//!
//! Promises: one relay at a time holds a row; each call is one statement and one short transaction, so none is open during
//! a call to a partner; an event that commits late under a lower id is found, since rows are chosen by state and never by
//! a cursor.
//! Relies on: `migrations/functions/4_delivery`, which decides under locks, and the database's clock.
//! Does not promise a single delivery: a relay that dies between a partner's answer and the settlement leaves a row that
//! is sent again, under the same id.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::Db;
use crate::db::error::DbError;
use crate::runtime::sealed::{Sealer, destination_place};

/// The terms of a lease.
#[derive(Clone, Copy, Debug)]
pub struct LeaseTerms {
    /// Must outlast an attempt and its settlement.
    pub lease: Duration,
    /// Unit of the backoff 2^attempts of a row whose lease expires: a second.
    pub retry_unit: Duration,
    /// Factor of that backoff, 1.0 … 1.5 at random.
    pub jitter: f64,
}

impl LeaseTerms {
    fn to_json(self, token: Uuid) -> Value {
        json!({"token": token, "leaseSecs": self.lease.as_secs_f64(),
            "unitSecs": self.retry_unit.as_secs_f64(), "jitter": self.jitter})
    }
}

/// The input of a claim.
#[derive(Debug)]
pub struct ClaimRequest<'a> {
    /// Most rows to claim.
    pub slots: usize,
    /// The destination served last: the round-robin goes on with the next id.
    pub after: Uuid,
    /// Destinations with a limit of their own for this claim, in rows.
    pub busy: &'a [(Uuid, usize)],
    /// The limit of every other destination, in rows.
    pub room_each: usize,
    /// Due time from which a destination's rows are read (seconds since 1970, by the database's clock).
    pub watermarks: &'a [(Uuid, f64)],
    /// The lease of the claimed rows.
    pub terms: LeaseTerms,
}

/// How a destination is reached, and what it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DestinationKind {
    /// HTTP POST of the signed event envelope.
    Webhook,
    /// Shopify Admin API: one SKU's ATS as an absolute quantity.
    ShopifyInventory,
    /// A mail that confirms an allocation.
    Email,
    /// The envelope, on a bus of EventBridge.
    Eventbridge,
    /// The envelope, on a queue of SQS.
    Sqs,
}

/// A claimed row: one event for one destination, with all that an attempt needs.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Id of the outbox row.
    pub id: i64,
    /// Owner of the event.
    pub tenant_id: Uuid,
    /// The subscriber.
    pub destination_id: Uuid,
    /// The subscriber's kind.
    pub kind: DestinationKind,
    /// The order, SKU, … that the event is about.
    pub aggregate_id: Uuid,
    /// Attempts including this one.
    pub attempts: i32,
    /// The envelope; empty for shops and mail.
    pub payload: String,
    /// Address of a webhook or shop; a bus's ARN; a queue's URL; empty or `mailto:` and the sender for mail.
    pub url: String,
    /// Live signing secrets, newest first; a shop's access token. Sealed until [`Claimed::open_secrets`].
    pub secrets: Vec<String>,
    /// The shop's location; `None`: its primary one.
    pub location_id: Option<String>,
    /// Token of the lease.
    pub token: Uuid,
    /// Due time of the destination's oldest row in this claim (seconds since 1970, by the database's clock).
    pub oldest_due_secs: Option<f64>,
}

impl Claimed {
    fn from_row(row: &PgRow, token: Uuid, oldest_due_secs: Option<f64>) -> Result<Self, sqlx::Error> {
        let kind = match row.try_get::<&str, _>("kind")? {
            "webhook" => DestinationKind::Webhook,
            "shopify_inventory" => DestinationKind::ShopifyInventory,
            "email" => DestinationKind::Email,
            "eventbridge" => DestinationKind::Eventbridge,
            "sqs" => DestinationKind::Sqs,
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

impl Claimed {
    /// Opens what signs or lets in. What cannot be opened is left out, so that nothing goes out unsigned: the attempt fails, and
    /// is made again once the relay has its key.
    pub fn open_secrets(&mut self, sealer: Option<&Sealer>) {
        let Some(sealer) = sealer else { return };
        let place = destination_place(self.destination_id);
        self.secrets.retain_mut(|secret| match sealer.open(&place, secret) {
            Ok(opened) => {
                *secret = opened;
                true
            }
            Err(error) => {
                tracing::error!(destination = %self.destination_id, %error, "a secret is left out");
                false
            }
        });
    }
}

/// Claims up to `slots` rows, oldest due first within a destination, round-robin over destinations. Returns them and the
/// next claim's `after`.
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

/// Claims one row whose lease expired, or at a shop all such rows of one SKU. Call it with nothing else in flight: the row
/// may be what killed its relay. Destinations in `unresponsive` come last, so that one that hangs does not hold up others.
pub async fn claim_lost(db: &Db, unresponsive: &[Uuid], terms: LeaseTerms) -> Result<Vec<Claimed>, DbError> {
    let token = Uuid::new_v4();
    let argument = json!({"troubled": unresponsive, "lease": terms.to_json(token)});
    let rows = db.call(&Statement::new("holdfast.relay_claim_lost", argument)).await?;
    Ok(rows.iter().map(|row| Claimed::from_row(row, token, None)).collect::<Result<_, _>>()?)
}

/// The current data for a push or a mail, as JSON by row id; `None` where this kind of destination has no use for the
/// event. Call it after the claim has committed: a push must carry the newest ATS.
pub async fn facts(db: &Db, ids: &[i64]) -> Result<HashMap<i64, Option<String>>, DbError> {
    let rows = db.call(&Statement::new("holdfast.relay_facts", json!({"ids": ids}))).await?;
    let facts = rows.iter().map(|row| Ok((row.try_get("id")?, row.try_get("facts")?)));
    Ok(facts.collect::<Result<_, sqlx::Error>>()?)
}

/// A queue of an ordered destination: one aggregate's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderedQueue {
    /// The destination.
    pub destination_id: Uuid,
    /// The aggregate.
    pub aggregate_id: Uuid,
}

/// The result of [`check_waiting`].
#[derive(Clone, Copy, Debug)]
pub struct CheckedQueues {
    /// Where to go on: the last queue visited, or the beginning after the end of all queues.
    pub last: OrderedQueue,
    /// Heads that became due.
    pub woken: i32,
    /// Whether there is more to check at once.
    pub more: bool,
}

/// Makes heads of ordered queues due that no settlement woke: visits up to `most` queues after the given one in which a row's
/// wait is not checked yet, and checks up to `most` rows.
pub async fn check_waiting(db: &Db, after: OrderedQueue, most: u32) -> Result<CheckedQueues, DbError> {
    let argument =
        json!({"destinationId": after.destination_id, "aggregateId": after.aggregate_id, "most": most});
    let row = db.call_one(&Statement::new("holdfast.relay_check_waiting", argument)).await?;
    let last: Option<(Uuid, Uuid)> =
        Option::zip(row.try_get("destination_id")?, row.try_get("aggregate_id")?);
    let last = last.map_or_else(OrderedQueue::default, |(destination_id, aggregate_id)| OrderedQueue {
        destination_id,
        aggregate_id,
    });
    Ok(CheckedQueues { last, woken: row.try_get("woken")?, more: row.try_get("more")? })
}

/// How far [`rearrange`] has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rearranged {
    /// There is nothing to do, or transactions must end first.
    Nothing,
    /// There is more to do at once.
    More,
    /// A destination's rows stand in their places and can be claimed.
    Done,
}

/// Puts up to `most` rows of one destination in their places after its `ordered` was switched.
pub async fn rearrange(db: &Db, most: u32) -> Result<Rearranged, DbError> {
    let row = db.call_one(&Statement::new("holdfast.relay_rearrange", json!({"most": most}))).await?;
    Ok(match row.try_get::<Option<&str>, _>("step")? {
        Some("more") => Rearranged::More,
        Some("done") => Rearranged::Done,
        _ => Rearranged::Nothing,
    })
}

/// Discards up to `most` pending rows of one deleted destination. Returns whether there is more to do at once.
pub async fn end_destination(db: &Db, most: u32) -> Result<bool, DbError> {
    let row = db.call_one(&Statement::new("holdfast.relay_end_destination", json!({"most": most}))).await?;
    Ok(row.try_get("more")?)
}

/// Notes that this relay begins to watch for events.
pub async fn begin_watch(db: &Db, relay: Uuid) -> Result<(), DbError> {
    db.call(&Statement::new("holdfast.relay_begin_watch", json!({"relay": relay}))).await?;
    Ok(())
}

/// Whether another relay has begun to watch since this one did.
pub async fn is_followed(db: &Db, relay: Uuid) -> Result<bool, DbError> {
    let row = db.call_one(&Statement::new("holdfast.relay_is_followed", json!({"relay": relay}))).await?;
    Ok(row.try_get("followed")?)
}

/// How many destinations have answered nothing but "slow down" for as long as `time`.
pub async fn long_throttled(db: &Db, time: Duration) -> Result<i64, DbError> {
    let argument = json!({"secs": time.as_secs_f64()});
    let row = db.call_one(&Statement::new("holdfast.relay_long_throttled", argument)).await?;
    Ok(row.try_get("destinations")?)
}

/// Due rows and the age of the oldest of them in seconds; `most` destinations and rows are looked at in all.
pub async fn backlog(db: &Db, most: u32) -> Result<(i64, f64), DbError> {
    let row = db.call_one(&Statement::new("holdfast.relay_backlog", json!({"most": most}))).await?;
    Ok((row.try_get("due")?, row.try_get("oldest_age_secs")?))
}

/// The age in seconds of the oldest snapshot that keeps dead rows of the database, as far as this role may see; 0 without one.
pub async fn oldest_snapshot_secs(db: &Db) -> Result<f64, DbError> {
    db.call_one(&Statement::new("holdfast.oldest_snapshot", json!({})))
        .await?
        .try_get("age_secs")
        .map_err(Into::into)
}

/// The result of [`sweep_lost`].
#[derive(Clone, Copy, Debug)]
pub struct LostRows {
    /// Rows whose last attempt ended with its relay.
    pub dead_lettered: i32,
    /// Whether [`claim_lost`] would find one.
    pub lost_due: bool,
}

/// Dead-letters rows whose lease expired and that have no attempt left.
pub async fn sweep_lost(db: &Db) -> Result<LostRows, DbError> {
    let row = db.call_one(&Statement::new("holdfast.relay_sweep_lost", json!({}))).await?;
    Ok(LostRows { dead_lettered: row.try_get("dead_lettered")?, lost_due: row.try_get("lost_due")? })
}
