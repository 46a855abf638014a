//! The reaper: deletes rows past their retention in small statements, until none is left or its time is up.
//!
//! Promises: deletes no idempotency key younger than 24 h, no inbox row younger than 30 days, and no outbox row that is
//! pending, dead or discarded; ends before its deadline and reports whether rows are left.
//! Relies on: indexes by age, so that a batch costs no more than what it deletes, and the database's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lambda_runtime::LambdaEvent;
use serde::Serialize;
use serde_json::{Value, json};
use shared::db::call::Statement;
use shared::db::connection::Db;
use shared::db::error::DbError;
use shared::runtime::config::{ConfigError, DatabaseConfig, optional};
use sqlx::Row;
use tokio::time::Instant;

/// Promised by the API; also the default.
const KEY_RETENTION_MIN_HOURS: i32 = 24;
/// Senders redeliver webhooks for days, and a redelivery must be seen as a duplicate; also the default.
const INBOX_RETENTION_MIN_DAYS: i32 = 30;
const OUTBOX_RETENTION_DAYS: i32 = 30;
/// A year, and some time for a late audit.
const SNAPSHOT_RETENTION_DAYS: i32 = 400;
/// The function's time limit in template.yaml.
const TIMEOUT_SECS: u64 = 60;

/// Retention by table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// `KEY_RETENTION_HOURS`: idempotency keys with their answers; at least 24.
    pub keys_hours: i32,
    /// `INBOX_RETENTION_DAYS`: received webhooks; at least 30.
    pub inbox_days: i32,
    /// `OUTBOX_RETENTION_DAYS`: delivered outbox rows.
    pub outbox_days: i32,
    /// `SNAPSHOT_RETENTION_DAYS`: inventory snapshots.
    pub snapshot_days: i32,
}

impl Retention {
    /// Raises values below the promised minimum, and logs that.
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
        Self::new(
            KEY_RETENTION_MIN_HOURS,
            INBOX_RETENTION_MIN_DAYS,
            OUTBOX_RETENTION_DAYS,
            SNAPSHOT_RETENTION_DAYS,
        )
    }
}

/// The environment, read once at cold start.
#[derive(Clone, Debug)]
pub struct Config {
    /// `WORKER_DATABASE_URL`, `DATABASE_POOLER`.
    pub database: DatabaseConfig,
    /// Has variables of its own.
    pub retention: Retention,
    /// `REAPER_TIMEOUT_SECONDS`: the function's time limit, used where the runtime gives no usable deadline.
    pub timeout: Duration,
}

impl Config {
    /// Reads the variables named above. The error names the one that is missing or wrong.
    pub fn from_env() -> Result<Self, ConfigError> {
        let default = Retention::default();
        Ok(Self {
            database: DatabaseConfig::worker()?,
            retention: Retention::new(
                optional("KEY_RETENTION_HOURS", default.keys_hours)?,
                optional("INBOX_RETENTION_DAYS", default.inbox_days)?,
                optional("OUTBOX_RETENTION_DAYS", default.outbox_days)?,
                optional("SNAPSHOT_RETENTION_DAYS", default.snapshot_days)?,
            ),
            timeout: Duration::from_secs(optional("REAPER_TIMEOUT_SECONDS", TIMEOUT_SECS)?),
        })
    }
}

/// The sizes of a run; the defaults are the deployed ones.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Rows of one statement, which takes some tens of milliseconds.
    pub batch: u64,
    /// Least time from the start of a statement to the deadline: longer than the role's `statement_timeout`.
    pub margin: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { batch: 1000, margin: Duration::from_secs(8) }
    }
}

/// The rows that a run deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Of `idempotency_key`.
    pub keys: u64,
    /// Of `webhook_inbox`.
    pub inbox: u64,
    /// Of `outbox`.
    pub outbox: u64,
    /// Of `inventory_snapshot`.
    pub snapshots: u64,
    /// Whether time was up before all were deleted.
    pub more: bool,
}

#[derive(Clone, Copy)]
enum Table {
    Keys,
    Inbox,
    Outbox,
    Snapshots,
}

/// One run. The tables take turns, batch by batch, so that a large one does not hold up the others. After an error the
/// batches before it stay deleted.
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

/// Deletes the oldest rows past their retention, at most `batch`; returns how many.
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

/// One invocation. The event's content does not matter.
pub async fn handle(db: &Db, config: &Config, event: LambdaEvent<Value>) -> Result<Summary, DbError> {
    // Local runtimes send a deadline of 1970: then the configured time counts.
    let deadline = UNIX_EPOCH + Duration::from_millis(event.context.deadline);
    let left = deadline.duration_since(SystemTime::now()).unwrap_or(config.timeout);
    let summary = run_once(db, config.retention, Limits::default(), Instant::now() + left).await?;
    tracing::info!(?summary, "reaped");
    Ok(summary)
}
