//! One piece of database work over all its attempts: how much time it has, and whether its outcome is known. Touches nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::db::error::{DbError, ended_session, is_lost};

/// Limit for all database work of a request: below the 7 s in which 503 must be answered.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(6_600);

/// The server's limit for a statement ends this long before ours: it gives up first, and says that nothing was changed.
const SERVER_GIVES_UP_EARLIER: Duration = Duration::from_millis(300);

/// The role's `statement_timeout`; a message carries a limit of its own only when less time than this is left.
const ROLE_STATEMENT_TIMEOUT: Duration = Duration::from_secs(6);

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
        Self::begin_within(REQUEST_TIMEOUT)
    }

    /// The same, with a limit for its database work.
    pub fn begin_within(limit: Duration) -> Arc<Self> {
        Arc::new(Self { deadline: Instant::now() + limit, database_micros: AtomicU64::new(0) })
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
    pub(super) deadline: Instant,
    /// A message that may commit has been sent, and the server has not said that it failed.
    committing: AtomicBool,
    /// An earlier attempt ended while it was committing.
    unknown: AtomicBool,
    /// When an attempt lost its connection.
    pub(super) lost_at: OnceLock<Instant>,
}

impl Run {
    pub(super) fn new() -> Self {
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
    pub(super) fn note(&self, error: &DbError) {
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
    pub(super) fn failed(&self, error: DbError) -> DbError {
        let committing = self.committing.load(Ordering::Relaxed) || self.unknown.load(Ordering::Relaxed);
        match error {
            DbError::OutcomeUnknown(_) => error,
            error if committing => DbError::OutcomeUnknown(error.to_string()),
            error => error,
        }
    }
}

/// Adds to the time that the present request spent with the database; outside a request, as in a job, nobody counts.
pub(super) fn count(took: Duration) {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let _ = REQUEST.try_with(|request| request.database_micros.fetch_add(micros, Ordering::Relaxed));
}
