//! The outbox as the relay sees it: claim, and what becomes of rows whose relay was lost ([`crate::settlement`] ends an
//! attempt).
//!
//! Promises: a row is held by one relay at a time; a result counts only from the token that holds the row, within its
//! lease; each call here is one statement and one short transaction, so nothing is open while partners are called; an
//! event that commits late, under a lower id, is found (rows are chosen by state, never by a cursor).
//! Relies on: `migrations/functions/40_relay.sql`, where the decisions under locks are made, and the database's clock.
//! Does not promise a single delivery: a relay that dies between a partner's answer and the settlement leaves a row
//! that is sent again, under the same id.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};
use uuid::Uuid;

/// Claims free rows that are due.
pub const CLAIM_SQL: &str = "select id, tenant_id, destination_id, kind, aggregate_id, attempts, payload, url, secrets, \
     location_id, after, floor_secs from holdfast.relay_claim($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
/// Claims one row whose lease was lost; at a shop, all lost rows of its SKU.
pub const CLAIM_LOST_SQL: &str = "select id, tenant_id, destination_id, kind, aggregate_id, attempts, payload, url, secrets, \
     location_id from holdfast.relay_claim_lost($1, $2, $3, $4, $5)";
/// What goes out to a shop or into a mail, of this moment.
pub const FACTS_SQL: &str = "select id, facts from holdfast.relay_facts($1)";
/// Keeps which inventory item a SKU is at a shop.
pub const LEARN_SQL: &str = "select holdfast.learn_inventory_item($1, $2, $3, $4)";
/// Dead-letters lost rows without an attempt left; tells whether a lost row is due.
pub const SWEEP_LOST_SQL: &str = "select dead_lettered, lost_due from holdfast.relay_sweep_lost()";
/// Wakes heads of ordered queues that nobody woke.
pub const SWEEP_ORDER_SQL: &str =
    "select destination_id, aggregate_id, woken from holdfast.relay_sweep_order($1, $2, $3)";
/// Counts what is due, up to `$1`, and tells how long the oldest of it has been waiting.
pub const BACKLOG_SQL: &str = "select due, oldest_age_secs from holdfast.relay_backlog($1)";
/// Deletes delivered rows, and rows owed to nobody, older than `$1` days; at most `$2`.
pub const REAP_SQL: &str = "delete from outbox where id = any (array(\
     select id from outbox where processed_at < now() - make_interval(days => $1) \
     order by processed_at limit $2 for update skip locked))";

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
    /// Destinations whose rows need not be looked at from the beginning.
    pub floor_of: &'a [Uuid],
    /// Beside `floor_of`: from which due time on (seconds since 1970, by the database's clock).
    pub floor_secs: &'a [f64],
    /// On what terms.
    pub terms: LeaseTerms,
}

/// What kind of destination a row is owed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
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
    pub kind: Kind,
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
    /// From when on this destination has free rows (seconds since 1970, by the database's clock).
    pub floor_secs: Option<f64>,
}

impl Claimed {
    fn from_row(row: &PgRow, token: Uuid, floor_secs: Option<f64>) -> Result<Self, sqlx::Error> {
        let kind = match row.try_get::<&str, _>("kind")? {
            "webhook" => Kind::Webhook,
            "shopify_inventory" => Kind::ShopifyInventory,
            "email" => Kind::Email,
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
            floor_secs,
        })
    }
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
        .bind(request.floor_of)
        .bind(request.floor_secs)
        .persistent(persistent)
        .fetch_all(connection)
        .await?;
    let after = rows.last().map_or(Ok(request.after), |row| row.try_get("after"))?;
    let claimed: Result<Vec<_>, _> =
        rows.iter().map(|row| Claimed::from_row(row, token, row.try_get("floor_secs")?)).collect();
    Ok((claimed?, after))
}

/// Claims one row whose lease was lost, or at a shop all lost rows of one SKU. The caller has nothing else in flight: the
/// row may be what killed its relay. Rows of destinations in `troubled` come last, so that one that hangs does not hold
/// up the others.
///
/// # Errors
/// Of the statement.
pub async fn claim_lost(
    connection: &mut PgConnection,
    persistent: bool,
    troubled: &[Uuid],
    terms: LeaseTerms,
) -> Result<Vec<Claimed>, sqlx::Error> {
    let token = Uuid::new_v4();
    let rows = sqlx::query(CLAIM_LOST_SQL)
        .bind(troubled)
        .bind(token)
        .bind(terms.lease.as_secs_f64())
        .bind(terms.retry_unit.as_secs_f64())
        .bind(terms.jitter)
        .persistent(persistent)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| Claimed::from_row(row, token, None)).collect()
}

/// What a push or a mail is made of, as JSON, of this moment: call it when the claim has committed. `None` where the
/// event has nothing to say to its destination.
///
/// # Errors
/// Of the statement.
pub async fn facts(
    connection: &mut PgConnection,
    persistent: bool,
    ids: &[i64],
) -> Result<HashMap<i64, Option<String>>, sqlx::Error> {
    let rows: Vec<(i64, Option<String>)> =
        sqlx::query_as(FACTS_SQL).bind(ids).persistent(persistent).fetch_all(connection).await?;
    Ok(rows.into_iter().collect())
}

/// Keeps which inventory item a SKU is at a shop.
///
/// # Errors
/// Of the statement.
pub async fn learn_inventory_item(
    connection: &mut PgConnection,
    persistent: bool,
    tenant_id: Uuid,
    destination_id: Uuid,
    sku_id: Uuid,
    item: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query(LEARN_SQL)
        .bind(tenant_id)
        .bind(destination_id)
        .bind(sku_id)
        .bind(item)
        .persistent(persistent)
        .execute(connection)
        .await?;
    Ok(())
}

/// Wakes heads of ordered queues that nobody woke, `steps` queues on from `from`. Returns how far it came, `None` at the
/// end of all queues, and how many it woke.
///
/// # Errors
/// Of the statement.
pub async fn sweep_order(
    connection: &mut PgConnection,
    persistent: bool,
    (destination, aggregate): (Uuid, Uuid),
    steps: i32,
) -> Result<(Option<(Uuid, Uuid)>, i32), sqlx::Error> {
    let (destination, aggregate, woken): (Option<Uuid>, Option<Uuid>, i32) = sqlx::query_as(SWEEP_ORDER_SQL)
        .bind(destination)
        .bind(aggregate)
        .bind(steps)
        .persistent(persistent)
        .fetch_one(connection)
        .await?;
    Ok((destination.zip(aggregate), woken))
}

/// How much is due, counted up to `most` rows, and how many seconds ago the oldest of it was written.
///
/// # Errors
/// Of the statement.
pub async fn backlog(
    connection: &mut PgConnection,
    persistent: bool,
    most: i32,
) -> Result<(i64, f64), sqlx::Error> {
    sqlx::query_as(BACKLOG_SQL).bind(most).persistent(persistent).fetch_one(connection).await
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

fn int4(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
