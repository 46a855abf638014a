//! One attempt to deliver one event over HTTP: sign, send, classify the answer.
//!
//! Promises: the body is the stored payload, byte for byte; each attempt is signed anew with every live secret (Standard
//! Webhooks) under an unchanging message id; it ends within its time limit, connecting included; redirects are failures
//! and never followed; only addresses that [`Guard`] admits are called.
//! Relies on: the caller, which holds the lease and plans the next attempt.
//! Does not promise that a partner has done nothing when no 2xx came in time: the event is sent again.

use std::error::Error as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

use tokio::time::{Instant, timeout, timeout_at};

use crate::delivery::address::{Guard, GuardedResolver};
use crate::delivery::outbox::Claimed;

/// The rest of an answer's body is not read.
const ANSWER_MAX_BYTES: usize = 64 * 1024;
/// hyper takes 100 by default. An answer with more than this is none, whatever its status.
const ANSWER_MAX_HEADERS: usize = 1000;
/// Longest wait for the body of a 2xx, which nobody needs: it is read so that the connection can be used again.
const BODY_OF_2XX: Duration = Duration::from_secs(1);
/// The part of an answer that is kept as the row's error.
const EXCERPT_MAX_CHARS: usize = 1000;
/// A partner's `Retry-After` delays a row by no more than this.
const RETRY_MAX: Duration = Duration::from_secs(3600);
/// Below the 5 s after which common servers close an idle connection: none is closed while we send on it.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// The result of an attempt; an error is a text for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A 2xx, whatever became of its body.
    Delivered,
    /// There was nothing to do: why.
    Passed(String),
    /// A failure that may pass.
    Failed {
        /// Status and beginning of the answer.
        error: String,
        /// `Retry-After`, at most an hour.
        retry_after: Option<Duration>,
    },
    /// 410: the destination is gone for good.
    Gone(String),
    /// Permanent rejection by a healthy destination.
    Rejected(String),
    /// A healthy destination asks for a pause: 429, or 503 with `Retry-After`.
    Throttled {
        /// What it answered.
        error: String,
        /// The pause; `None` where it did not say how long.
        wait: Option<Duration>,
    },
    /// No connection, no answer in time, or one that is not 2xx and incomplete.
    NoAnswer(String),
    /// Nothing was sent: no valid secret or address.
    Unsendable(String),
}

/// An attempt, and the status of the answer if there was one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The result.
    pub attempt: Attempt,
    /// The HTTP status.
    pub status: Option<u16>,
}

impl From<Attempt> for Answered {
    fn from(attempt: Attempt) -> Self {
        Self { attempt, status: None }
    }
}

/// An HTTP client with a guard. Make one per invocation: connections that were open when a sandbox froze are dead.
pub struct Sender {
    client: reqwest::Client,
    guard: Guard,
    timeout: Duration,
}

impl Sender {
    /// `timeout` is for a whole attempt. Fails where TLS cannot be set up.
    pub fn new(timeout: Duration, guard: Guard) -> Result<Self, reqwest::Error> {
        let resolver = guard.resolver();
        Self::with_resolver(timeout, guard, resolver)
    }

    /// As [`Sender::new`], with another resolver; for tests.
    pub fn with_resolver(
        timeout: Duration,
        guard: Guard,
        resolver: Arc<GuardedResolver>,
    ) -> Result<Self, reqwest::Error> {
        Ok(Self { client: client(resolver)?, guard, timeout })
    }

    /// Sends a webhook once; `now` goes into the signature.
    pub async fn attempt(&self, message: &Claimed, now: Timestamp) -> Answered {
        let headers = match signed_headers(message, now) {
            Ok(headers) => headers,
            Err(error) => return Attempt::Unsendable(error).into(),
        };
        let deadline = Instant::now() + self.timeout;
        let answer = match self.send(&message.url, headers, message.payload.clone(), deadline).await {
            Ok(answer) => answer,
            Err(attempt) => return attempt.into(),
        };
        let status = Some(answer.status().as_u16());
        if answer.status().is_success() {
            let _ = timeout_at(deadline.min(Instant::now() + BODY_OF_2XX), read(answer)).await;
            return Answered { attempt: Attempt::Delivered, status };
        }
        let attempt = match self.rest(answer, deadline).await {
            Ok(answer) => classify(&answer, now),
            Err(attempt) => attempt,
        };
        Answered { attempt, status }
    }

    /// Gives `work` the time limit of an attempt.
    pub async fn within(&self, work: impl Future<Output = Attempt>) -> Attempt {
        self.in_time(work).await.unwrap_or_else(|late| late)
    }

    /// As [`Sender::within`], of any work.
    pub async fn in_time<T>(&self, work: impl Future<Output = T>) -> Result<T, Attempt> {
        timeout(self.timeout, work).await.map_err(|_| Attempt::NoAnswer(self.too_late()))
    }

    /// One request and its whole answer.
    pub(crate) async fn post(
        &self,
        url: &str,
        headers: HeaderMap,
        body: String,
    ) -> Result<PartnerAnswer, Attempt> {
        let deadline = Instant::now() + self.timeout;
        let answer = self.send(url, headers, body, deadline).await?;
        self.rest(answer, deadline).await
    }

    /// One request and the head of its answer.
    async fn send(
        &self,
        url: &str,
        headers: HeaderMap,
        body: String,
        deadline: Instant,
    ) -> Result<reqwest::Response, Attempt> {
        // The resolver does not see an address literal, since nobody looks it up: it is checked here.
        let url = self
            .guard
            .url(url)
            .map_err(|error| Attempt::Unsendable(format!("the destination's address {error}")))?;
        let sent = timeout_at(deadline, self.client.post(url).headers(headers).body(body).send());
        match sent.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if error.is_builder() => Err(Attempt::Unsendable(chain(error))),
            Ok(Err(error)) => Err(Attempt::NoAnswer(chain(error))),
            Err(_) => Err(Attempt::NoAnswer(self.too_late())),
        }
    }

    /// The answer with its body, which must arrive whole.
    async fn rest(&self, answer: reqwest::Response, deadline: Instant) -> Result<PartnerAnswer, Attempt> {
        let status = answer.status();
        let broken = match timeout_at(deadline, read(answer)).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => chain(error),
            Err(_) => self.too_late(),
        };
        Err(Attempt::NoAnswer(format!("HTTP {status}, then {broken}")))
    }

    fn too_late(&self) -> String {
        format!("no whole answer within {:?}", self.timeout)
    }
}

/// A client that follows nobody: no redirect, no proxy, no retry, and only addresses that the resolver lets through.
pub(crate) fn client(resolver: Arc<GuardedResolver>) -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .dns_resolver(resolver)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .no_proxy()
        .pool_idle_timeout(IDLE_CONNECTION)
        .http1_max_headers(ANSWER_MAX_HEADERS)
        .user_agent(concat!("Holdfast/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// Reads the body, of which [`ANSWER_MAX_BYTES`] are kept and no more are asked for.
async fn read(mut answer: reqwest::Response) -> Result<PartnerAnswer, reqwest::Error> {
    let mut body = Vec::new();
    while body.len() < ANSWER_MAX_BYTES
        && let Some(chunk) = answer.chunk().await?
    {
        body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_MAX_BYTES - body.len())]);
    }
    Ok(PartnerAnswer { status: answer.status(), headers: answer.headers().clone(), body })
}

/// A partner's answer to one request.
pub(crate) struct PartnerAnswer {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl PartnerAnswer {
    pub(crate) fn excerpt(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let excerpt: String = body.trim().chars().take(EXCERPT_MAX_CHARS).collect();
        let separator = if excerpt.is_empty() { "" } else { ": " };
        format!("HTTP {}{separator}{excerpt}", self.status)
    }

    pub(crate) fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        self.headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, now))
    }
}

/// The result of a plain webhook: any 2xx is success.
pub(crate) fn classify(answer: &PartnerAnswer, now: Timestamp) -> Attempt {
    if answer.status.is_success() {
        return Attempt::Delivered;
    }
    let error = answer.excerpt();
    // A time that has passed is no wait: what is tried again at once would come back at once.
    let wait = answer.retry_after(now).filter(|wait| !wait.is_zero());
    match answer.status {
        StatusCode::GONE => Attempt::Gone(error),
        StatusCode::TOO_MANY_REQUESTS => Attempt::Throttled { error, wait },
        StatusCode::SERVICE_UNAVAILABLE if wait.is_some() => Attempt::Throttled { error, wait },
        _ => Attempt::Failed { error, retry_after: wait },
    }
}

/// The row's id on the wire, the same at every attempt. No dot in it: in the signed text a dot ends the id.
pub fn message_id(id: i64) -> String {
    format!("outbox-{id}")
}

/// `v1,<base64>` for each secret, separated by spaces. Fails without a secret or with one that is not base64; the error
/// text shows no secret.
pub fn signature(
    secrets: &[String],
    message_id: &str,
    timestamp_secs: i64,
    body: &str,
) -> Result<String, String> {
    if secrets.is_empty() {
        return Err("the destination has no live secret to sign with".into());
    }
    let signatures: Result<Vec<_>, _> = secrets
        .iter()
        .map(|secret| Webhook::new(secret)?.sign(message_id, timestamp_secs, body.as_bytes()))
        .collect();
    Ok(signatures.map_err(|_| "a secret of the destination is not `whsec_` and base64")?.join(" "))
}

fn signed_headers(message: &Claimed, now: Timestamp) -> Result<HeaderMap, String> {
    let id = message_id(message.id);
    let signature = signature(&message.secrets, &id, now.as_second(), &message.payload)?;
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(HEADER_WEBHOOK_ID, value(&id)?);
    headers.insert("idempotency-key", value(&id)?);
    headers.insert(HEADER_WEBHOOK_TIMESTAMP, HeaderValue::from(now.as_second()));
    headers.insert(HEADER_WEBHOOK_SIGNATURE, value(&signature)?);
    Ok(headers)
}

/// The wait that `Retry-After` asks for, in seconds (some servers send a fraction: rounded up) or by an HTTP date in any of the
/// three forms of RFC 9110: at most an hour, zero for a past date. `None` for anything else.
pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if value.starts_with(|c: char| c.is_ascii_digit())
        && value.chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        // Very many digits parse as infinity, which the limit cuts off.
        let secs: f64 = value.parse().ok()?;
        return Some(Duration::from_secs_f64(secs.ceil().min(RETRY_MAX.as_secs_f64())));
    }
    let until = httpdate::parse_http_date(value).ok()?;
    let now = UNIX_EPOCH + Duration::from_secs(u64::try_from(now.as_second()).unwrap_or(0));
    let wait = until.duration_since(now).unwrap_or(Duration::ZERO);
    Some(wait.min(RETRY_MAX))
}

/// The error and its causes in one line, without the address: that may hold a partner's credentials.
pub(crate) fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
