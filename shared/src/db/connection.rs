//! The database connection of a sandbox.
//!
//! Promises: one user at a time; the connection is reused only after [`ConnectionGuard::keep`]. An error, a panic, a timeout
//! or a cancelled future drops the guard, which closes the socket, so that no request gets an open or aborted transaction.
//! Relies on: one request at a time (a Lambda sandbox), and the role's own timeouts (`migrations/roles`).
//! Does not promise that a connection that was idle for a short time still works; its first statement finds out.

use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions, PgConnection};
use tokio::sync::Mutex;

use crate::db::call::{Statement, first_row, send};
use crate::runtime::config::{DatabaseConfig, Pooler};

/// Limit for opening a connection. A request may open two (the second after a loss); both fit into [`REQUEST_TIMEOUT`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Limit for all database work of a request: below the 7 s in which 503 must be answered.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(6_600);

/// The server's limit for a statement ends this long before ours: it gives up first, and says that nothing was changed.
const SERVER_GIVES_UP_EARLIER: Duration = Duration::from_millis(300);
/// The role's `statement_timeout`; a message carries a limit of its own only when less time than this is left.
const ROLE_STATEMENT_TIMEOUT: Duration = Duration::from_secs(6);

/// How long a request waits for its key after it lost its own connection: the server may not have noticed the loss yet, and
/// the lost session then still holds the key's locks.
const KEY_WAIT: Duration = Duration::from_secs(3);
const KEY_WAIT_STEP: Duration = Duration::from_millis(100);

const MAX_RETRIES: u32 = 3;
/// Backoff: retry n waits n times this, with a jitter of ±50 %.
const RETRY_PAUSE: Duration = Duration::from_millis(10);
const ROLLBACK_TIMEOUT: Duration = Duration::from_millis(500);

/// One attempt at some work; runs again after a lost connection or a deadlock.
type Work<C, T> = for<'c> fn(&'c mut PgConnection, &'c Run, &'c C) -> BoxFuture<'c, Result<T, DbError>>;

const LIVENESS_TIMEOUT: Duration = Duration::from_secs(1);

/// Why database work failed.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// A failed statement or connection.
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    /// No connection in time, or no answer; nothing that could commit had been sent.
    #[error("the database did not answer in time")]
    Timeout,
    /// A message that may commit was sent, and its answer is not known.
    #[error("the outcome is not known: {0}")]
    OutcomeUnknown(String),
    /// The key is held, perhaps by a session that this request has lost. Only inside [`Db::run`].
    #[error("the key is held")]
    KeyHeld,
}

/// What a request leaves to its database work: how much time, and where to count it.
#[derive(Debug)]
pub struct RequestScope {
    deadline: Instant,
    database_micros: AtomicU64,
}

tokio::task_local! {
    static REQUEST: Arc<RequestScope>;
}

impl RequestScope {
    /// Of a request that begins now.
    pub fn begin() -> Arc<Self> {
        Arc::new(Self { deadline: Instant::now() + REQUEST_TIMEOUT, database_micros: AtomicU64::new(0) })
    }

    /// Runs a request's work in this scope.
    pub async fn run<T>(self: Arc<Self>, work: impl Future<Output = T>) -> T {
        REQUEST.scope(self, work).await
    }

    /// Milliseconds that the request spent with the database so far, connecting included.
    pub fn database_ms(&self) -> u64 {
        self.database_micros.load(Ordering::Relaxed) / 1_000
    }
}

/// One piece of work over all its attempts.
#[derive(Debug)]
pub(crate) struct Run {
    deadline: Instant,
    /// A message that may commit has been sent, and the server has not said that it failed.
    committing: AtomicBool,
    /// An earlier attempt ended while it was committing.
    unknown: AtomicBool,
    /// When an attempt lost its connection.
    lost_at: OnceLock<Instant>,
}

impl Run {
    fn new() -> Self {
        let own = Instant::now() + REQUEST_TIMEOUT;
        let deadline = REQUEST.try_with(|request| request.deadline.min(own)).unwrap_or(own);
        Self { deadline, committing: false.into(), unknown: false.into(), lost_at: OnceLock::new() }
    }

    /// To be called before a message is sent that may commit.
    pub(crate) fn commits(&self) {
        self.committing.store(true, Ordering::Relaxed);
    }

    /// To be put in front of a statement inside a transaction or a message: makes the server give up before the client does,
    /// where the role's own limit would end later than that. Empty where it would not.
    pub(crate) fn server_limit(&self) -> String {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let limit = left.saturating_sub(SERVER_GIVES_UP_EARLIER);
        if limit >= ROLE_STATEMENT_TIMEOUT {
            return String::new();
        }
        // 0 would be no limit.
        format!("set local statement_timeout = {}; ", limit.as_millis().max(1))
    }

    /// Whether an attempt of this run lost its connection, so that its own session may still hold the key.
    pub(crate) fn lost_connection(&self) -> bool {
        self.lost_at.get().is_some()
    }

    /// Notes how an attempt failed. Only what the server itself reported is known to have changed nothing.
    fn note(&self, error: &DbError) {
        let reported = match error {
            DbError::KeyHeld => true,
            DbError::Sql(sqlx::Error::Database(db)) => !db.code().is_some_and(|c| ended_session(&c)),
            _ => false,
        };
        if self.committing.swap(false, Ordering::Relaxed) && !reported {
            self.unknown.store(true, Ordering::Relaxed);
        }
        if matches!(error, DbError::Sql(sql) if is_lost(sql)) {
            self.lost_at.get_or_init(Instant::now);
        }
    }

    /// The failure of the whole run.
    fn failed(&self, error: DbError) -> DbError {
        let committing = self.committing.load(Ordering::Relaxed) || self.unknown.load(Ordering::Relaxed);
        match error {
            DbError::OutcomeUnknown(_) => error,
            error if committing => DbError::OutcomeUnknown(error.to_string()),
            error => error,
        }
    }
}

/// The sandbox's connection; opened at first use, and again after a loss.
pub struct Db {
    options: PgConnectOptions,
    idle_check: Duration,
    idle: Mutex<Option<Idle>>,
}

/// The connection between two requests. `since` is wall-clock time: a monotonic clock may stop while a sandbox is frozen.
struct Idle {
    connection: PgConnection,
    since: SystemTime,
}

impl Db {
    /// Connects later; fails only if the URL is not a `postgres://` URL.
    pub fn new(config: &DatabaseConfig) -> Result<Self, DbError> {
        let mut options =
            PgConnectOptions::from_str(&config.url)?.application_name("holdfast").disable_statement_logging();
        if config.pooler == Pooler::Transaction {
            // PgBouncer rejects startup parameters that it does not know.
            options = options.extra_float_digits(None);
        }
        Ok(Self { options, idle_check: Duration::from_secs(config.idle_check_secs), idle: Mutex::new(None) })
    }

    /// Opens the connection at cold start, so that the first request does not wait for it. A failure is only logged:
    /// requests get 503 until the database is back.
    pub async fn warm(&self) {
        match self.checkout().await {
            Ok(connection) => connection.keep().await,
            Err(error) => tracing::warn!(%error, "no database at cold start"),
        }
    }

    /// Takes the idle connection if it passes the liveness check, needed after a long pause; else opens one within 3 s.
    pub async fn checkout(&self) -> Result<ConnectionGuard<'_>, DbError> {
        let idle = self.idle.lock().await.take();
        let live = match idle {
            Some(Idle { connection, since }) if since.elapsed().is_ok_and(|idle| idle < self.idle_check) => {
                Some(connection)
            }
            Some(Idle { connection, .. }) => check_liveness(connection).await,
            None => None,
        };
        let connection = match live {
            Some(connection) => connection,
            None => self.connect().await?,
        };
        Ok(ConnectionGuard { db: self, connection: Some(connection) })
    }

    /// Runs `work` within the time of the request, 6.6 s in all. Retries once on a new connection after a lost one; since COMMIT
    /// may have been sent before the loss, `work` must be safe to repeat, as a read or work under an idempotency key is.
    /// Retries up to three times after a deadlock, a serialization failure or a race for one key. Returns the last failure; a
    /// transaction that `work` left open is rolled back. `context` is the input of `work`, a plain function because it may run
    /// again.
    pub(crate) async fn run<C: Sync, T>(&self, context: &C, work: Work<C, T>) -> Result<T, DbError> {
        let (begun, run) = (Instant::now(), Run::new());
        let attempts = self.attempts(&run, context, work);
        let done = tokio::time::timeout_at(run.deadline.into(), attempts).await;
        let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        // Outside a request, as in a job, nobody counts.
        let _ = REQUEST.try_with(|request| request.database_micros.fetch_add(took, Ordering::Relaxed));
        done.unwrap_or(Err(DbError::Timeout)).map_err(|error| run.failed(error))
    }

    /// Calls a function in one round trip and returns all its rows; retries after a lost connection or a deadlock.
    pub async fn call(&self, statement: &Statement) -> Result<Vec<PgRow>, DbError> {
        self.send(statement.sql()).await
    }

    /// As [`Db::call`], for a function that returns one row.
    pub async fn call_one(&self, statement: &Statement) -> Result<PgRow, DbError> {
        Ok(first_row(self.call(statement).await?)?)
    }

    /// Sends one message of the simple query protocol; retries as [`Db::call`]. Untrusted input may stand in the text only as
    /// hex digits or UUIDs.
    pub async fn send(&self, message: String) -> Result<Vec<PgRow>, DbError> {
        self.run(&message, |connection, run, message| {
            Box::pin(async move { Ok(send(connection, format!("{}{message}", run.server_limit())).await?) })
        })
        .await
    }

    async fn attempts<C: Sync, T>(
        &self,
        run: &Run,
        context: &C,
        work: Work<C, T>,
    ) -> Result<T, DbError> {
        let mut may_reconnect = true;
        let mut retries = 0;
        loop {
            let mut guard = self.checkout().await?;
            let error = match work(&mut guard, run, context).await {
                Ok(done) => {
                    guard.keep().await;
                    return Ok(done);
                }
                Err(error) => error,
            };
            run.note(&error);
            match &error {
                DbError::Sql(sql) if is_lost(sql) && may_reconnect => {
                    tracing::warn!(%error, "connection lost; retrying once on a new one");
                    may_reconnect = false;
                }
                DbError::KeyHeld => {
                    guard.keep().await;
                    let waited = run.lost_at.get().map_or(KEY_WAIT, Instant::elapsed);
                    if waited >= KEY_WAIT {
                        return Err(DbError::OutcomeUnknown("the key is still held".into()));
                    }
                    tokio::time::sleep(KEY_WAIT_STEP).await;
                }
                DbError::Sql(sql) if is_retryable(sql) && retries < MAX_RETRIES => {
                    tracing::warn!(%error, "retrying the transaction");
                    retries += 1;
                    guard.roll_back().await;
                    tokio::time::sleep(RETRY_PAUSE.mul_f64(rand::random_range(0.5..1.5)) * retries).await;
                }
                DbError::Sql(sql) if !is_lost(sql) => {
                    guard.roll_back().await;
                    return Err(error);
                }
                _ => return Err(error),
            }
        }
    }

    async fn connect(&self) -> Result<PgConnection, DbError> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.options.connect()).await {
            Ok(connected) => Ok(connected?),
            Err(_) => Err(DbError::Timeout),
        }
    }
}

/// The checked-out connection; closed if dropped without [`ConnectionGuard::keep`].
pub struct ConnectionGuard<'db> {
    db: &'db Db,
    connection: Option<PgConnection>,
}

impl ConnectionGuard<'_> {
    /// Puts the connection back for the next use. Only call it if nothing failed and no transaction is open.
    pub async fn keep(mut self) {
        *self.db.idle.lock().await =
            self.connection.take().map(|connection| Idle { connection, since: SystemTime::now() });
    }

    /// Rolls back after a failed statement and keeps the connection, or closes it if that fails. Outside a transaction
    /// ROLLBACK only warns.
    async fn roll_back(mut self) {
        let rolled_back =
            tokio::time::timeout(ROLLBACK_TIMEOUT, sqlx::raw_sql("rollback").execute(&mut *self)).await;
        if matches!(rolled_back, Ok(Ok(_))) {
            self.keep().await;
        }
    }
}

impl Deref for ConnectionGuard<'_> {
    type Target = PgConnection;
    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect("taken only by keep(), which consumes the guard")
    }
}

impl DerefMut for ConnectionGuard<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("taken only by keep(), which consumes the guard")
    }
}

async fn check_liveness(mut connection: PgConnection) -> Option<PgConnection> {
    match tokio::time::timeout(LIVENESS_TIMEOUT, sqlx::raw_sql("").execute(&mut connection)).await {
        Ok(Ok(_)) => Some(connection),
        _ => None,
    }
}

/// Whether the connection failed and not the statement. The transaction may or may not have committed.
pub(crate) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        // cannot_connect_now, idle_session_timeout. 25006, read-only transaction: after a failover this session is on a
        // standby; a new one finds the primary.
        sqlx::Error::Database(db) => db
            .code()
            .is_some_and(|c| ended_session(&c) || matches!(c.as_ref(), "57P03" | "57P05" | "25006")),
        _ => false,
    }
}

/// Whether the session was ended at a moment that is not known, so perhaps after a commit: admin_shutdown, crash_shutdown;
/// class 08, connection exceptions.
fn ended_session(code: &str) -> bool {
    matches!(code, "57P01" | "57P02") || code.starts_with("08")
}

impl DbError {
    /// The server's error code, for logs.
    pub(crate) fn sqlstate(&self) -> Option<String> {
        match self {
            Self::Sql(sqlx::Error::Database(db)) => db.code().map(|code| code.into_owned()),
            _ => None,
        }
    }
}

/// Deadlock, serialization failure, or a key that another transaction has just recorded.
fn is_retryable(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(db)
        if matches!(db.code().as_deref(), Some("40P01" | "40001")) || db.constraint() == Some("idempotency_key_pkey"))
}

/// Whether the database is too busy or not reachable, to be answered with 503; otherwise the statement is at fault.
pub(crate) fn is_unavailable(error: &sqlx::Error) -> bool {
    is_lost(error)
        || is_retryable(error)
        || matches!(error, sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut)
        // query_canceled (statement_timeout), lock_not_available, idle_in_transaction_session_timeout,
        // transaction_timeout; class 53: insufficient resources.
        || matches!(error, sqlx::Error::Database(db) if db.code().is_some_and(|c| {
            matches!(c.as_ref(), "57014" | "55P03" | "25P03" | "25P04") || c.starts_with("53")
        }))
}
