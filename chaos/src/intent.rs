//! One intention of one client: a request that is sent until its outcome is known, or given up.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;
use testing::emulator::event::HttpAnswer;

/// A request, as often as it is sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// The function's name.
    pub function: &'static str,
    pub method: &'static str,
    pub path: String,
    /// Names of headers in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// The idempotency key; none for a webhook.
    pub key: Option<String>,
    /// `(provider, event id)` of a webhook.
    pub delivery: Option<(String, String)>,
    /// What is tried, for people: "allocate", "asn.received" …
    pub what: &'static str,
}

/// What one try came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// An answer that stands: it is the same for every repeat.
    Answer(Kept),
    /// 503 `unavailable`: nothing was changed.
    Unchanged,
    /// 409: an equal request runs.
    InUse,
    /// Everything else that may be repeated: 503 `outcome_unknown`, 500, a sandbox that died, no answer in time.
    Unknown(String),
}

/// The members of an answer that a replay repeats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    pub status: u16,
    pub body: String,
    pub content_type: Option<String>,
    pub etag: Option<String>,
    pub location: Option<String>,
}

impl Kept {
    /// The body, parsed; null if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

impl Told {
    /// Reads an HTTP answer.
    pub fn of(answer: &HttpAnswer) -> Self {
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        let error = serde_json::from_str::<Value>(&body)
            .ok()
            .and_then(|body| body["error"].as_str().map(str::to_owned));
        match (answer.status, error.as_deref()) {
            (503, Some("unavailable")) => Self::Unchanged,
            (409, Some("idempotency_key_in_use")) => Self::InUse,
            (500.., error) => Self::Unknown(format!("{} {}", answer.status, error.unwrap_or_default())),
            (status, _) => {
                let header = |name: &str| answer.headers.get(name).cloned();
                Self::Answer(Kept {
                    status,
                    body,
                    content_type: header("content-type"),
                    etag: header("etag"),
                    location: header("location"),
                })
            }
        }
    }
}

/// One try of an intention.
#[derive(Clone, Debug)]
pub struct Try {
    pub sent: Instant,
    pub ended: Instant,
    pub told: Told,
}

/// An intention and all its tries.
#[derive(Clone, Debug)]
pub struct Intent {
    pub id: usize,
    pub client: usize,
    pub request: Request,
    pub tries: Vec<Try>,
    /// Whether the client went away without an answer; nobody repeats it.
    pub given_up: bool,
}

impl Intent {
    /// The first answer that stands.
    pub fn answer(&self) -> Option<&Kept> {
        self.tries.iter().find_map(|one| match &one.told {
            Told::Answer(kept) => Some(kept),
            _ => None,
        })
    }

    /// Whether nobody can know if it was done: some try ended without an answer that says so.
    pub fn is_open(&self) -> bool {
        self.answer().is_none() && !self.tries.iter().all(|one| one.told == Told::Unchanged)
    }

    /// Milliseconds from `start`, for a history.
    pub fn at(start: Instant, moment: Instant) -> f64 {
        (moment.saturating_duration_since(start).as_secs_f64() * 1e6).round() / 1e3
    }
}

/// How long a client waits for one answer; API Gateway waits 30 s.
pub const PATIENCE: Duration = Duration::from_secs(12);
