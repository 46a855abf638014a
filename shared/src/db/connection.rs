//! The database connection of a sandbox.
//!
//! Promises: one user at a time; the connection is reused only after [`ConnectionGuard::keep`]. An error, a panic, a timeout
//! or a cancelled future drops the guard, which closes the socket, so that no request gets an open or aborted transaction.
//! Relies on: one request at a time (a Lambda sandbox), and the role's own timeouts (`migrations/roles`).
//! Does not promise that a connection that was idle for a short time still works; its first statement finds out.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant, SystemTime};

use futures_util::future::BoxFuture;
use sqlx::postgres::PgRow;
use sqlx::{ConnectOptions, PgConnection};
use tokio::sync::Mutex;

use crate::db::call::{Statement, first_row, send};
use crate::db::error::{DbError, is_login_refused, is_lost, is_retryable};
use crate::db::run::{Run, count};
use crate::runtime::aws;
use crate::runtime::config::{DatabaseConfig, Pooler};

/// Limit for opening a connection. A request may open two (the second after a loss); both fit into [`REQUEST_TIMEOUT`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

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

/// The sandbox's connection; opened at first use, and again after a loss.
pub struct Db {
    config: DatabaseConfig,
    idle_check: Duration,
    idle: Mutex<Option<Idle>>,
}

/// The connection between two requests. `since` is wall-clock time: a monotonic clock may stop while a sandbox is frozen.
struct Idle {
    connection: PgConnection,
    since: SystemTime,
}

impl Db {
    /// Connects later; fails only if a URL that a variable holds cannot be used.
    pub fn new(config: &DatabaseConfig) -> Result<Self, DbError> {
        if let Some(url) = config.url.given() {
            postgres_url::options(url, &config.overrides)?;
        }
        let idle_check = Duration::from_secs(config.idle_check_secs);
        Ok(Self { config: config.clone(), idle_check, idle: Mutex::new(None) })
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
        count(begun.elapsed());
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

    /// As [`Db::send`], for a message that changes something and can be repeated: an answer that is lost is then an unknown
    /// outcome.
    pub(crate) async fn commit(&self, message: String) -> Result<Vec<PgRow>, DbError> {
        self.run(&message, |connection, run, message| {
            Box::pin(async move {
                let message = format!("{}{message}", run.server_limit());
                run.commits();
                Ok(send(connection, message).await?)
            })
        })
        .await
    }

    async fn attempts<C: Sync, T>(&self, run: &Run, context: &C, work: Work<C, T>) -> Result<T, DbError> {
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
        // Boxed: every request's future holds it, and it is as large as all of TLS and HTTP.
        let log_in: BoxFuture<'_, _> = Box::pin(self.log_in());
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, log_in).await;
        let connected = connected.unwrap_or(Err(DbError::Timeout));
        if let Err(DbError::Sql(error)) = &connected
            && let Some(why) = postgres_url::why_refused(error)
        {
            tracing::error!(%error, why, "no connection to the database");
        }
        connected
    }

    /// Connects; with the secret's newer value, if there is one, where the login is refused: the password was rotated.
    async fn log_in(&self) -> Result<PgConnection, DbError> {
        let url = self.config.url.current().await?;
        match self.open(&url).await {
            Err(DbError::Sql(error)) if is_login_refused(&error) => {
                match self.config.url.newer_than(&url).await {
                    Some(newer) => self.open(&newer).await,
                    None => Err(error.into()),
                }
            }
            opened => opened,
        }
    }

    async fn open(&self, url: &str) -> Result<PgConnection, DbError> {
        let mut options = postgres_url::options(url, &self.config.overrides)?;
        if self.config.iam {
            let token = aws::rds_token(options.get_host(), options.get_port(), options.get_username());
            options = options.password(&token.map_err(|error| DbError::NoLogin(error.to_string()))?);
        }
        if self.config.pooler == Pooler::Transaction {
            // PgBouncer rejects startup parameters that it does not know.
            options = options.extra_float_digits(None);
        }
        Ok(options.application_name("holdfast").disable_statement_logging().connect().await?)
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
