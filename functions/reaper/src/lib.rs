//! The reaper: deletes what has served its time, in small statements, until nothing is left or its time is up.
//!
//! Promises: no key younger than 24 h, no inbox row younger than 30 days, no outbox row that is pending, dead or
//! discarded is ever deleted; it ends before its deadline and says whether there is more.
//! Relies on: the indexes by age, so that a batch costs what it deletes, and the database's clock.
//! Does not promise to delete everything in one run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lambda_runtime::LambdaEvent;
use serde::Serialize;
use serde_json::{Value, json};
use shared::db::call::Statement;
use shared::db::connection::{Db, DbError};
use shared::runtime::config::{ConfigError, DatabaseConfig, optional};
use sqlx::Row;
use tokio::time::Instant;

/// Keys are promised to be kept this long.
const KEY_RETENTION_MIN_HOURS: i32 = 24;
/// Senders repeat a webhook for days; within this time no repetition may be taken for new.
const INBOX_RETENTION_MIN_DAYS: i32 = 30;

/// How long things are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Recorded answers (`KEY_RETENTION_HOURS`, default and least 24).
    pub keys_hours: i32,
    /// Received webhooks (`INBOX_RETENTION_DAYS`, default and least 30).
    pub inbox_days: i32,
    /// Delivered outbox rows (`OUTBOX_RETENTION_DAYS`, default 30).
    pub outbox_days: i32,
    /// Inventory snapshots (`SNAPSHOT_RETENTION_DAYS`, default 400: a year and what an auditor asks for late).
    pub snapshot_days: i32,
}

impl Retention {
    /// Keeps `keys_hours` and `inbox_days` at what is promised at least.
    pub fn new(keys_hours: i32, inbox_days: i32, outbox_days: i32, snapshot_days: i32) -> Self {
        let kept = Self {
            keys_hours: keys_hours.max(KEY_RETENTION_MIN_HOURS),
            inbox_days: inbox_days.max(INBOX_RETENTION_MIN_DAYS),
            outbox_days: outbox_days.max(0),
            snapshot_days: snapshot_days.max(0),
        };
        if kept != (Self { keys_hours, inbox_days, outbox_days, snapshot_days }) {
            tracing::warn!(?kept, "retention raised to what is promised");
        }
        kept
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self::new(KEY_RETENTION_MIN_HOURS, INBOX_RETENTION_MIN_DAYS, 30, 400)
    }
}

/// Parsed once at cold start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The worker's database.
    pub database: DatabaseConfig,
    /// How long things are kept.
    pub retention: Retention,
    /// The function's configured time, used where the runtime gives no usable deadline (`REAPER_TIMEOUT_SECONDS`,
    /// default 60).
    pub timeout: Duration,
}

impl Config {
    /// Reads `WORKER_DATABASE_URL`, `DATABASE_POOLER` and the variables named above.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub fn from_env() -> Result<Self, ConfigError> {
        let usual = Retention::default();
        Ok(Self {
            database: DatabaseConfig::worker()?,
            retention: Retention::new(
                optional("KEY_RETENTION_HOURS", usual.keys_hours)?,
                optional("INBOX_RETENTION_DAYS", usual.inbox_days)?,
                optional("OUTBOX_RETENTION_DAYS", usual.outbox_days)?,
                optional("SNAPSHOT_RETENTION_DAYS", usual.snapshot_days)?,
            ),
            timeout: Duration::from_secs(optional("REAPER_TIMEOUT_SECONDS", 60)?),
        })
    }
}

/// The sizes of a run; the defaults are the deployed ones.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows of one statement: some tens of milliseconds.
    pub batch: u64,
    /// No statement begins later than this before the deadline: longer than the role's `statement_timeout`.
    pub margin: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { batch: 1000, margin: Duration::from_secs(8) }
    }
}

/// What a run deleted, in rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Recorded answers.
    pub keys: u64,
    /// Received webhooks.
    pub inbox: u64,
    /// Delivered outbox rows.
    pub outbox: u64,
    /// Inventory snapshots.
    pub snapshots: u64,
    /// Whether time was up before all was deleted.
    pub more: bool,
}

#[derive(Clone, Copy)]
enum Table {
    Keys,
    Inbox,
    Outbox,
    Snapshots,
}

/// One run. The tables take turns, so that a large one does not keep the others from being reaped.
///
/// # Errors
/// When the database fails; what was deleted before stays deleted.
pub async fn run_once(
    db: &Db,
    retention: Retention,
    limits: Limits,
    deadline: Instant,
) -> Result<Summary, DbError> {
    let mut summary = Summary::default();
    let mut left = vec![Table::Keys, Table::Inbox, Table::Outbox, Table::Snapshots];
    let last_start = deadline.checked_sub(limits.margin);
    while !left.is_empty() {
        for table in std::mem::take(&mut left) {
            if last_start.is_none_or(|last_start| Instant::now() >= last_start) {
                summary.more = true;
                return Ok(summary);
            }
            let deleted = delete_batch(db, table, retention, limits.batch).await?;
            match table {
                Table::Keys => summary.keys += deleted,
                Table::Inbox => summary.inbox += deleted,
                Table::Outbox => summary.outbox += deleted,
                Table::Snapshots => summary.snapshots += deleted,
            }
            if deleted >= limits.batch {
                left.push(table);
            }
        }
    }
    Ok(summary)
}

/// Deletes the oldest rows of a table that are past their time, at most `batch`; returns how many.
async fn delete_batch(db: &Db, table: Table, retention: Retention, batch: u64) -> Result<u64, DbError> {
    let (name, age) = match table {
        Table::Keys => ("idempotency_key", retention.keys_hours),
        Table::Inbox => ("webhook_inbox", retention.inbox_days),
        Table::Outbox => ("outbox", retention.outbox_days),
        Table::Snapshots => ("inventory_snapshot", retention.snapshot_days),
    };
    let argument = json!({"table": name, "age": age, "limit": batch});
    let row = db.call_one(&Statement::new("holdfast.reap", argument)).await?;
    Ok(u64::try_from(row.try_get::<i64, _>("reap")?).unwrap_or(0))
}

/// One invocation; whatever the event says.
///
/// # Errors
/// When the database fails.
pub async fn handle(db: &Db, config: &Config, event: LambdaEvent<Value>) -> Result<Summary, DbError> {
    // Local runtimes send a deadline of 1970: then the configured time counts from now.
    let deadline = UNIX_EPOCH + Duration::from_millis(event.context.deadline);
    let left = deadline.duration_since(SystemTime::now()).unwrap_or(config.timeout);
    let summary = run_once(db, config.retention, Limits::default(), Instant::now() + left).await?;
    tracing::info!(?summary, "reaped");
    Ok(summary)
}
