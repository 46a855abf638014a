//! The one database connection of a sandbox.
//!
//! Promises: whoever checks the connection out owns it alone; it goes back only by an explicit [`Lease::keep`] after
//! clean use. An error, a panic, a time-out or a cancelled future drops it, which closes the socket, so that no later
//! request ever meets an open or aborted transaction.
//! Relies on: one request at a time (a Lambda sandbox), the role's own timeouts (`migrations/roles`).
//! Does not promise that an idle connection still lives: the first statement finds out, see [`is_lost`]; only one that
//! lay idle for long is asked first.

use std::ops::{Deref, DerefMut};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{ConnectOptions, PgConnection};
use tokio::sync::Mutex;

use crate::db::call::{Statement, only, send};
use crate::runtime::config::{DatabaseConfig, Pooler};

/// Longest wait for a new connection. Two of these and a statement's own limit stay within the 7 s of "unavailable".
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Longest a request may be with the database in all: below the 7 s in which "unavailable" must be answered, above
/// the role's `statement_timeout` of 6 s, so that the server gives up first and nothing is left running.
pub const REQUEST_TIMEOUT: Duration = Duration::from_millis(6_300);

/// How often a transaction is run again after a deadlock or the like.
const MAX_RERUNS: u32 = 3;
/// Before the first rerun, give or take a half; longer before the next ones.
const RERUN_PAUSE: Duration = Duration::from_millis(10);
/// A connection that cannot roll back in this time is closed.
const ROLLBACK_TIMEOUT: Duration = Duration::from_millis(500);

/// Work on a connection; see [`Db::run`].
pub type Work<C, T> = for<'c> fn(&'c mut PgConnection, &'c C) -> BoxFuture<'c, Result<T, DbError>>;

/// A liveness check takes a round trip; a connection that does not answer it in this time is replaced.
const ALIVE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why the database did not do it.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The statement or the connection failed.
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    /// No answer within [`REQUEST_TIMEOUT`], or no connection within 3 s.
    #[error("the database did not answer in time")]
    Timeout,
}

/// The sandbox's connection; opened at the first use, again after a loss.
pub struct Db {
    options: PgConnectOptions,
    idle_check: Duration,
    idle: Mutex<Option<Idle>>,
}

/// The connection between two requests. Wall-clock time: a frozen sandbox's other clocks may stand still.
struct Idle {
    connection: PgConnection,
    since: SystemTime,
}

impl Db {
    /// Parses the address; connects lazily.
    ///
    /// # Errors
    /// When the address is not a `postgres://` URL.
    pub fn new(config: &DatabaseConfig) -> Result<Self, DbError> {
        let mut options =
            PgConnectOptions::from_str(&config.url)?.application_name("holdfast").disable_statement_logging();
        if config.pooler == Pooler::Transaction {
            // pgbouncer refuses start-up parameters it does not know.
            options = options.extra_float_digits(None);
        }
        Ok(Self { options, idle_check: Duration::from_secs(config.idle_check_secs), idle: Mutex::new(None) })
    }

    /// Opens the connection at cold start, so that the first request does not pay for it. A database that is down is
    /// no reason not to start: requests answer 503 until it is back.
    pub async fn warm(&self) {
        match self.checkout().await {
            Ok(lease) => lease.keep().await,
            Err(error) => tracing::warn!(%error, "no database at cold start"),
        }
    }

    /// Takes the connection, or opens one. One that lay idle for long is checked for liveness first.
    ///
    /// # Errors
    /// When none can be opened within 3 s.
    pub async fn checkout(&self) -> Result<Lease<'_>, DbError> {
        let idle = self.idle.lock().await.take();
        let live = match idle {
            Some(Idle { connection, since }) if since.elapsed().is_ok_and(|idle| idle < self.idle_check) => {
                Some(connection)
            }
            Some(Idle { connection, .. }) => alive(connection).await,
            None => None,
        };
        let (connection, fresh) = match live {
            Some(connection) => (connection, false),
            None => (self.connect().await?, true),
        };
        Ok(Lease { db: self, connection: Some(connection), fresh })
    }

    /// Runs `work` on the connection, within [`REQUEST_TIMEOUT`] in all. Runs it again, on a new connection, once after
    /// a lost one (the key, or reading only, makes that safe even where the loss came after COMMIT was sent), and
    /// up to three times after a deadlock, a serialization failure or a race for the same key.
    ///
    /// What `work` needs comes as `context`, so that it can be a plain function that runs more than once.
    ///
    /// # Errors
    /// The last failure. A transaction that `work` left open is rolled back.
    pub async fn run<C: Sync, T>(&self, context: &C, work: Work<C, T>) -> Result<T, DbError> {
        let attempts = self.attempts(context, work);
        tokio::time::timeout(REQUEST_TIMEOUT, attempts).await.unwrap_or(Err(DbError::Timeout))
    }

    /// Calls a function: one message, one round trip, all its rows.
    ///
    /// # Errors
    /// As [`Db::run`].
    pub async fn call(&self, statement: &Statement) -> Result<Vec<PgRow>, DbError> {
        self.send(statement.sql()).await
    }

    /// Calls a function that returns one row.
    ///
    /// # Errors
    /// As [`Db::run`], and where there is no row.
    pub async fn call_one(&self, statement: &Statement) -> Result<PgRow, DbError> {
        Ok(only(self.call(statement).await?)?)
    }

    /// Sends one simple-protocol message and reads all its rows: one round trip, directly and behind every pooler.
    /// The text must hold no untrusted input but hex literals and UUIDs.
    ///
    /// # Errors
    /// As [`Db::run`].
    pub async fn send(&self, message: String) -> Result<Vec<PgRow>, DbError> {
        self.run(&message, |connection, message| {
            Box::pin(async move { Ok(send(connection, message.clone()).await?) })
        })
        .await
    }

    async fn attempts<C: Sync, T>(&self, context: &C, work: Work<C, T>) -> Result<T, DbError> {
        let mut may_reconnect = true;
        let mut reruns = 0;
        loop {
            let mut lease = self.checkout().await?;
            let error = match work(&mut lease, context).await {
                Ok(done) => {
                    lease.keep().await;
                    return Ok(done);
                }
                Err(error) => error,
            };
            match &error {
                DbError::Sql(sql) if is_lost(sql) && may_reconnect => {
                    tracing::warn!(%error, "connection lost; trying once more on a new one");
                    may_reconnect = false;
                }
                DbError::Sql(sql) if runs_again(sql) && reruns < MAX_RERUNS => {
                    tracing::warn!(%error, "running the transaction again");
                    reruns += 1;
                    lease.roll_back().await;
                    tokio::time::sleep(RERUN_PAUSE.mul_f64(rand::random_range(0.5..1.5)) * reruns).await;
                }
                DbError::Sql(sql) if !is_lost(sql) => {
                    lease.roll_back().await;
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

/// The connection, checked out. Dropped without [`Lease::keep`] it is closed.
pub struct Lease<'db> {
    db: &'db Db,
    connection: Option<PgConnection>,
    fresh: bool,
}

impl Lease<'_> {
    /// Puts the connection back: nothing failed and no transaction is open.
    pub async fn keep(mut self) {
        *self.db.idle.lock().await =
            self.connection.take().map(|connection| Idle { connection, since: SystemTime::now() });
    }

    /// After a failed statement: ends what transaction there is and puts the connection back, or closes it where that
    /// fails. Outside a transaction a ROLLBACK is only a warning.
    async fn roll_back(mut self) {
        let rolled_back =
            tokio::time::timeout(ROLLBACK_TIMEOUT, sqlx::raw_sql("rollback").execute(&mut *self)).await;
        if matches!(rolled_back, Ok(Ok(_))) {
            self.keep().await;
        }
    }

    /// Whether it was opened for this check-out; only one that lay idle may have died unnoticed.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }
}

impl Deref for Lease<'_> {
    type Target = PgConnection;
    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect("taken only by keep(), which consumes the lease")
    }
}

impl DerefMut for Lease<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("taken only by keep(), which consumes the lease")
    }
}

/// The connection, if it still answers.
async fn alive(mut connection: PgConnection) -> Option<PgConnection> {
    match tokio::time::timeout(ALIVE_TIMEOUT, sqlx::raw_sql("").execute(&mut connection)).await {
        Ok(Ok(_)) => Some(connection),
        _ => None,
    }
}

/// Whether the connection, not the statement, failed: the server went away, ended the session or cut it off. What it
/// was doing may or may not have committed.
pub fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        // admin_shutdown, crash_shutdown, cannot_connect_now, idle_session_timeout; class 08 is the connection itself.
        // 25006, read-only: a failover left this session on what is now a standby; a new one finds the primary.
        sqlx::Error::Database(db) => db.code().is_some_and(|c| {
            matches!(c.as_ref(), "57P01" | "57P02" | "57P03" | "57P05" | "25006") || c.starts_with("08")
        }),
        _ => false,
    }
}

/// Whether a transaction should simply be run again: deadlock, serialization failure, or a key that another
/// transaction has just recorded.
fn runs_again(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(db)
        if matches!(db.code().as_deref(), Some("40P01" | "40001")) || db.constraint() == Some("idempotency_key_pkey"))
}

/// Whether the database is too busy or away, rather than the statement wrong: answered 503.
pub fn is_unavailable(error: &sqlx::Error) -> bool {
    is_lost(error)
        || runs_again(error)
        || matches!(error, sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut)
        // query_canceled (statement_timeout), lock_not_available, insufficient resources (53…), idle in transaction
        // and transaction time-outs.
        || matches!(error, sqlx::Error::Database(db) if db.code().is_some_and(|c| {
            matches!(c.as_ref(), "57014" | "55P03" | "25P03" | "25P04") || c.starts_with("53")
        }))
}
