//! A scripted partner, a relay with short times, and queries of the outbox.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use relay::{Ambient, Limits, Relay, Summary};
use shared::delivery::address::Guard;
use sqlx::Row as _;
use testing::TestDb;
use tokio::time::Instant;

/// Longest wait of any test, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A request that a partner got.
#[derive(Clone, Debug)]
pub struct Received {
    pub headers: HeaderMap,
    pub body: Bytes,
    pub at: Instant,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no header {name}")).to_str().unwrap()
    }

    /// The outbox row.
    pub fn id(&self) -> i64 {
        self.header("webhook-id").strip_prefix("outbox-").unwrap().parse().unwrap()
    }

    /// The `n` of `TestDb::emit`.
    pub fn n(&self) -> i64 {
        let envelope: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        envelope["data"]["n"].as_i64().unwrap()
    }
}

type Answer = Pin<Box<dyn Future<Output = Response> + Send>>;

struct Inner {
    received: Mutex<Vec<Received>>,
    answer: Mutex<Box<dyn Fn(Received) -> Answer + Send>>,
}

/// An HTTP server on loopback.
#[derive(Clone)]
pub struct Partner {
    pub url: String,
    inner: Arc<Inner>,
}

impl Partner {
    /// A partner that answers as `answer` says.
    pub async fn start<F, R>(answer: impl Fn(Received) -> F + Send + 'static) -> Self
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoResponse,
    {
        let inner = Arc::new(Inner { received: Mutex::default(), answer: Mutex::new(boxed(answer)) });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let router = Router::new().fallback(serve).with_state(Arc::clone(&inner));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, inner }
    }

    /// A partner that answers 200.
    pub async fn content() -> Self {
        Self::start(|_| async { 200_u16.to_status() }).await
    }

    /// Changes the answers.
    pub fn answer<F, R>(&self, answer: impl Fn(Received) -> F + Send + 'static)
    where
        F: Future<Output = R> + Send + 'static,
        R: IntoResponse,
    {
        *self.inner.answer.lock().unwrap() = boxed(answer);
    }

    /// All requests, oldest first.
    pub fn received(&self) -> Vec<Received> {
        self.inner.received.lock().unwrap().clone()
    }

    /// The ids of rows received, ascending, with duplicates.
    pub fn ids(&self) -> Vec<i64> {
        let mut ids: Vec<i64> = self.received().iter().map(Received::id).collect();
        ids.sort_unstable();
        ids
    }
}

fn boxed<F, R>(answer: impl Fn(Received) -> F + Send + 'static) -> Box<dyn Fn(Received) -> Answer + Send>
where
    F: Future<Output = R> + Send + 'static,
    R: IntoResponse,
{
    Box::new(move |received| {
        let answered = answer(received);
        Box::pin(async move { answered.await.into_response() })
    })
}

async fn serve(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    let received = Received { headers, body, at: Instant::now() };
    inner.received.lock().unwrap().push(received.clone());
    let answered = (inner.answer.lock().unwrap())(received);
    answered.await
}

/// `500.to_status()`.
pub trait ToStatus {
    fn to_status(self) -> axum::http::StatusCode;
}

impl ToStatus for u16 {
    fn to_status(self) -> axum::http::StatusCode {
        axum::http::StatusCode::from_u16(self).unwrap()
    }
}

/// Limits with short times, for tests that wait for one of them. On a busy machine a partner that answers may take longer.
pub fn hasty() -> Limits {
    Limits {
        attempt: Duration::from_millis(300),
        settle: Duration::from_millis(100),
        lease: Duration::from_millis(600),
        poll_interval: Duration::from_millis(20),
        ..Limits::default()
    }
}

/// The deployed limits with frequent polls.
pub fn eager() -> Limits {
    Limits { poll_interval: Duration::from_millis(20), ..Limits::default() }
}

/// A sandbox with the deployed limits.
pub fn relay(db: &TestDb) -> Relay {
    relay_with(db, Limits::default())
}

pub fn relay_with(db: &TestDb, limits: Limits) -> Relay {
    let mut relay = Relay::with(db.worker(), limits, Ambient::default());
    relay.guard = Guard::allowing("127.0.0.1").unwrap();
    relay.sealer = Some(testing::sealer());
    relay
}

/// One drain with a distant deadline.
pub async fn drain(relay: &Relay) -> Summary {
    let deadline = Instant::now() + PATIENCE * 2;
    tokio::time::timeout(PATIENCE, relay.run_once(Duration::ZERO, deadline)).await.unwrap().unwrap()
}

/// One row of the outbox.
#[derive(Debug)]
pub struct Row {
    pub id: i64,
    pub attempts: i32,
    pub processed: bool,
    pub dead: bool,
    pub leased: bool,
    pub last_error: Option<String>,
    pub due_in_secs: f64,
}

/// The outbox, by id.
pub async fn rows(db: &TestDb) -> Vec<Row> {
    let rows = sqlx::query(
        "select id, attempts, processed_at is not null as processed, dead_lettered_at is not null as dead,
           lease_token is not null as leased, last_error,
           extract(epoch from next_attempt_at - clock_timestamp())::float8 as due_in_secs from outbox order by id",
    )
    .fetch_all(&mut db.owner().await)
    .await
    .unwrap();
    rows.iter()
        .map(|row| Row {
            id: row.get("id"),
            attempts: row.get("attempts"),
            processed: row.get("processed"),
            dead: row.get("dead"),
            leased: row.get("leased"),
            last_error: row.get("last_error"),
            due_in_secs: row.get("due_in_secs"),
        })
        .collect()
}

/// Waits until a query returns true.
pub async fn until(db: &TestDb, what: &'static str) {
    let mut owner = db.owner().await;
    let end = Instant::now() + PATIENCE;
    loop {
        let holds: bool = sqlx::query_scalar(what).fetch_one(&mut owner).await.unwrap();
        if holds {
            return;
        }
        assert!(Instant::now() < end, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
