//! The one log line of a request, and what is collected for it on the way.
//!
//! Promises: nothing in the line comes from outside unescaped, and no raw path, header or body is in it.

use std::cell::RefCell;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::runtime::environment::optional;

/// What takes this long is always logged.
const SLOW: Duration = Duration::from_secs(1);

/// Whether an ordinary request is logged, as one of those that stand for the others.
fn is_in_sample() -> bool {
    static ONE_IN: OnceLock<u32> = OnceLock::new();
    let one_in = *ONE_IN.get_or_init(|| optional("LOG_SUCCESSES_ONE_IN", 1).unwrap_or(1));
    one_in <= 1 || rand::random_ratio(1, one_in)
}

/// What became known of a request while it was worked on.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pattern: Option<&'static str>,
    tenant: Option<Uuid>,
    actor: Option<String>,
    delivery: Option<Delivery>,
    took: Duration,
}

#[derive(Clone, Debug)]
struct Delivery {
    provider: String,
    topic: String,
    verdict: String,
}

tokio::task_local! {
    static SEEN: RefCell<Seen>;
}

/// Runs the work of a request; the functions below note what it finds out. Its time limit belongs into `work`, so that what
/// was known until then is kept.
pub async fn watch<T>(work: impl Future<Output = T>) -> (T, Seen) {
    let begun = Instant::now();
    let scope = async {
        let done = work.await;
        let seen = SEEN.with(RefCell::take);
        (done, Seen { took: begun.elapsed(), ..seen })
    };
    SEEN.scope(RefCell::default(), scope).await
}

/// Outside of [`watch`], as in a job, nothing is noted.
fn note(write: impl FnOnce(&mut Seen)) {
    let _ = SEEN.try_with(|seen| write(&mut seen.borrow_mut()));
}

/// Notes the path pattern of the route that was found.
pub fn route(pattern: &'static str) {
    note(|seen| seen.pattern = Some(pattern));
}

/// Notes who is calling; `actor` is `user:<id>` or `api_key:<id>`.
pub fn caller(tenant: Uuid, actor: &str) {
    note(|seen| (seen.tenant, seen.actor) = (Some(tenant), Some(actor.to_owned())));
}

/// Notes what became of a webhook's delivery: `duplicate`, `kept` as an exception, `unclaimed` (kept, and of no tenant), or
/// `processed`.
pub fn delivery(provider: &str, topic: &str, verdict: &str) {
    let [provider, topic, verdict] = [provider, topic, verdict].map(str::to_owned);
    note(|seen| seen.delivery = Some(Delivery { provider, topic, verdict }));
}

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct Answered<'a> {
    /// The id in `x-request-id`.
    pub request_id: &'a str,
    /// The HTTP method.
    pub method: &'a str,
    /// The HTTP status.
    pub status: u16,
    /// The error code.
    pub code: Option<&'a str>,
    /// Whether the answer is a recorded one; a problem with this is a refusal that the work decided.
    pub recorded: bool,
    /// Whether an earlier request recorded it.
    pub replayed: bool,
    /// Milliseconds with the database.
    pub database_ms: u64,
    /// What was collected.
    pub seen: Seen,
}

impl Answered<'_> {
    fn is_ordinary(&self) -> bool {
        self.status < 400 && !self.replayed && self.seen.took < SLOW
    }

    /// The path pattern of the route, if there is one.
    pub fn pattern(&self) -> Option<&'static str> {
        self.seen.pattern
    }

    /// What became of a webhook's delivery.
    pub fn verdict(&self) -> Option<&str> {
        self.seen.delivery.as_ref().map(|delivery| delivery.verdict.as_str())
    }

    /// Writes the line; of requests that were answered as they should be and soon, one in `LOG_SUCCESSES_ONE_IN` (1).
    pub fn log(&self) {
        if self.is_ordinary() && !is_in_sample() {
            return;
        }
        let Seen { pattern, tenant, actor, delivery, took } = &self.seen;
        let route = format!("{} {}", self.method, pattern.unwrap_or("(no route)"));
        let ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        // Text is passed as `&str`, never with `%`: only so every format escapes it.
        tracing::info!(
            requestId = self.request_id,
            tenant = tenant.map(tracing::field::display),
            actor = actor.as_deref(),
            route = route.as_str(),
            provider = delivery.as_ref().map(|delivery| delivery.provider.as_str()),
            topic = delivery.as_ref().map(|delivery| delivery.topic.as_str()),
            verdict = self.verdict(),
            status = self.status,
            code = self.code,
            replayed = self.replayed,
            ms,
            databaseMs = self.database_ms,
            "answered"
        );
    }
}
