//! Why database work failed, and what that says: whether the connection was lost, whether the work may run again, whether
//! the database is only too busy. Touches nothing.

use postgres_url::WrongAddress;

use crate::runtime::secret::SecretError;

/// Why database work failed.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// A failed statement or connection.
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    /// The address or the secret of the database cannot be had or used, so nothing was sent.
    #[error("no login to the database: {0}")]
    NoLogin(String),
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

impl From<SecretError> for DbError {
    fn from(error: SecretError) -> Self {
        Self::NoLogin(error.to_string())
    }
}

impl From<WrongAddress> for DbError {
    fn from(error: WrongAddress) -> Self {
        Self::NoLogin(error.to_string())
    }
}

/// Whether the server, or a pooler in its place, refused user or password: class 28; 08P01 is pgbouncer's, for a password that
/// the server behind it refused.
pub(super) fn is_login_refused(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(db)
        if db.code().is_some_and(|c| matches!(c.as_ref(), "28P01" | "28000" | "08P01")))
}

/// Whether the connection failed and not the statement. The transaction may or may not have committed.
pub(super) fn is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => true,
        // cannot_connect_now, idle_session_timeout. 25006, read-only transaction: after a failover this session is on a
        // standby; a new one finds the primary.
        sqlx::Error::Database(db) => {
            db.code().is_some_and(|c| ended_session(&c) || matches!(c.as_ref(), "57P03" | "57P05" | "25006"))
        }
        _ => false,
    }
}

/// Whether the session was ended at a moment that is not known, so perhaps after a commit: admin_shutdown, crash_shutdown;
/// class 08, connection exceptions.
pub(super) fn ended_session(code: &str) -> bool {
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
pub(super) fn is_retryable(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(db)
        if matches!(db.code().as_deref(), Some("40P01" | "40001")) || db.constraint() == Some("idempotency_key_pkey"))
}

/// Whether the database is too busy or not reachable, to be answered with 503; otherwise the statement is at fault.
pub(crate) fn is_unavailable(error: &sqlx::Error) -> bool {
    is_lost(error)
        || is_retryable(error)
        || matches!(error, sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut)
        // query_canceled (statement_timeout), lock_not_available, idle_in_transaction_session_timeout,
        // transaction_timeout; class 53: insufficient resources; class 28: the login was refused, so nothing was sent.
        || matches!(error, sqlx::Error::Database(db) if db.code().is_some_and(|c| {
            matches!(c.as_ref(), "57014" | "55P03" | "25P03" | "25P04") || c.starts_with("53") || c.starts_with("28")
        }))
}
