//! The reaper: deletes rows past their retention in small statements, until none is left or its time is up. Then it asks for another
//! run in the next minute.
//!
//! Promises: deletes no idempotency key younger than 24 h, no inbox row younger than 30 days, and no outbox row that is pending;
//! rests between statements, so that requests beside it get the database's processors; ends before its deadline and reports whether
//! rows are left.
//! Relies on: indexes by age, so that a batch costs no more than what it deletes, and the database's clock.

mod retention;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws::scheduler::Scheduler;
use jiff::Timestamp;
use lambda_runtime::LambdaEvent;
use serde::Serialize;
use serde_json::{Value, json};
use shared::db::call::Statement;
use shared::db::connection::Db;
use shared::db::error::DbError;
use shared::runtime::config::{ConfigError, DatabaseConfig, optional};
use sqlx::Row;
use tokio::time::Instant;

pub use retention::Retention;

/// The function's time limit in template.yaml.
const TIMEOUT_SECS: u64 = 300;

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
        Ok(Self {
            database: DatabaseConfig::worker()?,
            retention: Retention::from_env()?,
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
    /// The rest after a statement that deleted a whole batch, as a multiple of the statement's time.
    pub rest: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { batch: 1000, margin: Duration::from_secs(8), rest: 1 }
    }
}

/// The rows that a run deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Of `idempotency_key`.
    pub keys: u64,
    /// Of `webhook_inbox`.
    pub inbox: u64,
    /// Of `outbox`: delivered, or without a subscriber.
    pub outbox: u64,
    /// Of `outbox`: dead letters.
    pub dead: u64,
    /// Of `outbox`: discarded.
    pub discarded: u64,
    /// Of `inventory_snapshot`.
    pub snapshots: u64,
    /// Bodies of ended exceptions.
    pub exceptions: u64,
    /// Retired secrets of destinations and of senders.
    pub secrets: u64,
    /// Whether time was up before all were deleted.
    pub more: bool,
}

/// What is deleted by one kind of statement: its name for `holdfast.reap`, its age, and where it is counted.
struct Kind {
    table: &'static str,
    age: fn(&Retention) -> i32,
    deleted: fn(&mut Summary) -> &mut u64,
}

const KINDS: [Kind; 10] = [
    Kind { table: "idempotency_key", age: |r| r.keys_hours, deleted: |s| &mut s.keys },
    Kind { table: "webhook_inbox", age: |r| r.inbox_days, deleted: |s| &mut s.inbox },
    Kind { table: "outbox", age: |r| r.outbox_days, deleted: |s| &mut s.outbox },
    Kind { table: "outbox_dead", age: |r| r.dead_days, deleted: |s| &mut s.dead },
    Kind { table: "outbox_discarded", age: |r| r.discarded_days, deleted: |s| &mut s.discarded },
    Kind { table: "inventory_snapshot", age: |r| r.snapshot_days, deleted: |s| &mut s.snapshots },
    Kind { table: "inbox_exception", age: |r| r.exception_days, deleted: |s| &mut s.exceptions },
    Kind { table: "destination_secret", age: |r| r.secret_days, deleted: |s| &mut s.secrets },
    Kind { table: "threepl_account", age: |r| r.secret_days, deleted: |s| &mut s.secrets },
    Kind { table: "shopify_shop", age: |r| r.secret_days, deleted: |s| &mut s.secrets },
];

/// One run. The kinds take turns, batch by batch, so that a large one does not hold up the others. After an error the
/// batches before it stay deleted.
pub async fn run_once(
    db: &Db,
    retention: Retention,
    limits: Limits,
    deadline: Instant,
) -> Result<Summary, DbError> {
    let mut summary = Summary::default();
    let mut left: Vec<&Kind> = KINDS.iter().collect();
    let last_start = deadline.checked_sub(limits.margin);
    while !left.is_empty() {
        for kind in std::mem::take(&mut left) {
            let begun = Instant::now();
            if last_start.is_none_or(|last_start| begun >= last_start) {
                summary.more = true;
                return Ok(summary);
            }
            let deleted = delete_batch(db, kind, &retention, limits.batch).await?;
            *(kind.deleted)(&mut summary) += deleted;
            if deleted >= limits.batch {
                left.push(kind);
                tokio::time::sleep(begun.elapsed() * limits.rest).await;
            }
        }
    }
    Ok(summary)
}

/// Deletes the oldest rows past their retention, at most `batch`; returns how many.
async fn delete_batch(db: &Db, kind: &Kind, retention: &Retention, batch: u64) -> Result<u64, DbError> {
    let argument = json!({"table": kind.table, "age": (kind.age)(retention), "limit": batch});
    let row = db.call_one(&Statement::new("holdfast.reap", argument)).await?;
    Ok(u64::try_from(row.try_get::<i64, _>("reap")?).unwrap_or(0))
}

/// One invocation. The event's content does not matter. `scheduler`: where another run is asked for if rows are left; without it
/// the next scheduled run goes on.
pub async fn handle(
    db: &Db,
    config: &Config,
    scheduler: Option<&Scheduler>,
    event: LambdaEvent<Value>,
) -> Result<Summary, DbError> {
    // Local runtimes send a deadline of 1970: then the configured time counts.
    let deadline = UNIX_EPOCH + Duration::from_millis(event.context.deadline);
    let left = deadline.duration_since(SystemTime::now()).unwrap_or(config.timeout);
    let summary = run_once(db, config.retention, Limits::default(), Instant::now() + left).await?;
    tracing::info!(?summary, "reaped");
    if summary.more
        && let Some(scheduler) = scheduler
    {
        go_on(scheduler, Timestamp::now()).await;
    }
    Ok(summary)
}

/// Asks for a run in the next minute. Its name holds the minute, so reapers that ask at the same time ask for one. A failure is only
/// logged: the hourly run goes on.
pub async fn go_on(scheduler: &Scheduler, now: Timestamp) {
    let minute = now.as_second().div_euclid(60) + 1;
    let Ok(at) = Timestamp::from_second(minute * 60) else { return };
    match scheduler.once_at(&format!("holdfast-reaper-{minute}"), at, &json!({"goOn": true})).await {
        Ok(scheduled) => tracing::info!(?scheduled, "another run is asked for"),
        Err(error) => tracing::warn!(%error, "no other run could be asked for"),
    }
}
