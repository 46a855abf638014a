//! One attempt to deliver one event over HTTP: signed, sent, judged.
//!
//! Promises: the body's bytes are the payload's; every attempt is signed anew with each live secret (Standard
//! Webhooks) under an id that never changes; it is over within its time limit, connecting included, whatever the partner does;
//! at most 64 KiB of an answer is read; a redirect is a failure and never followed; no
//! address is called that [`Guard`] does not admit.
//! Relies on: the caller for the lease and the time of the next attempt.
//! Does not promise that a partner whose answer broke off or came late has not acted: it is told again.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use standardwebhooks::{HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook};

use crate::delivery::address::{Guard, Guarded};
use crate::delivery::outbox::Claimed;

/// At most this much of an answer is read.
const ANSWER_MAX_BYTES: usize = 64 * 1024;
/// This much of an answer is kept for a person to read.
const EXCERPT_MAX_CHARS: usize = 1000;
/// No partner can put a row off for longer.
const RETRY_MAX: Duration = Duration::from_secs(3600);
/// Shorter than the 5 s after which common servers close an idle connection, so that none is closed under a request.
const IDLE_CONNECTION: Duration = Duration::from_secs(4);

/// How an attempt went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// A whole 2xx answer.
    Delivered,
    /// Any other answer.
    Refused {
        /// Status and beginning of the answer.
        error: String,
        /// `Retry-After`, at most an hour.
        retry_after: Option<Duration>,
    },
    /// 410: the destination is gone for good.
    Gone {
        /// Status and beginning of the answer.
        error: String,
    },
    /// Permanent rejection by a healthy destination.
    Rejected {
        /// What it said.
        error: String,
    },
    /// It asks to be left alone for a while.
    Throttled {
        /// What it said.
        error: String,
        /// For how long.
        wait: Duration,
    },
    /// No whole answer: no connection, none in time, or one that broke off.
    NoAnswer {
        /// What happened.
        error: String,
    },
    /// Nothing was sent: the event cannot be signed or the address is none.
    Unsendable {
        /// Why.
        error: String,
    },
}

/// Sends events. Keeps connections for a few seconds: make one per invocation, since a sandbox may thaw with dead ones.
pub struct Sender {
    client: reqwest::Client,
    guard: Guard,
    timeout: Duration,
}

impl Sender {
    /// `timeout` is for a whole attempt; `guard` says where one may go.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn new(timeout: Duration, guard: Guard) -> Result<Self, reqwest::Error> {
        let resolver = guard.resolver();
        Self::resolving(timeout, guard, resolver)
    }

    /// As [`Sender::new`], with a resolver of one's own.
    ///
    /// # Errors
    /// When TLS cannot be set up.
    pub fn resolving(
        timeout: Duration,
        guard: Guard,
        resolver: Arc<Guarded>,
    ) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .dns_resolver(resolver)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .pool_idle_timeout(IDLE_CONNECTION)
            .user_agent(concat!("Holdfast/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { client, guard, timeout })
    }

    /// Makes one attempt; `now` is what it is signed with.
    pub async fn attempt(&self, message: &Claimed, now: Timestamp) -> Attempt {
        let headers = match signed_headers(message, now) {
            Ok(headers) => headers,
            Err(error) => return Attempt::Unsendable { error },
        };
        self.within(async {
            match self.exchange(&message.url, headers, message.payload.clone()).await {
                Ok(answer) => judge(&answer, now),
                Err(attempt) => attempt,
            }
        })
        .await
    }

    /// An attempt's time limit around `work`.
    pub async fn within(&self, work: impl Future<Output = Attempt>) -> Attempt {
        tokio::time::timeout(self.timeout, work).await.unwrap_or_else(|_| Attempt::NoAnswer {
            error: format!("no whole answer within {:?}", self.timeout),
        })
    }

    /// One request and its whole answer, or the beginning of it; or how the attempt failed without one.
    pub(crate) async fn exchange(
        &self,
        url: &str,
        headers: HeaderMap,
        body: String,
    ) -> Result<WireAnswer, Attempt> {
        // An address literal is never looked up, so the resolver does not see it.
        let url = self
            .guard
            .url(url)
            .map_err(|error| Attempt::Unsendable { error: format!("the destination's address {error}") })?;
        let mut answer = match self.client.post(url).headers(headers).body(body).send().await {
            Ok(answer) => answer,
            Err(error) if error.is_builder() => return Err(Attempt::Unsendable { error: chain(error) }),
            Err(error) => return Err(Attempt::NoAnswer { error: chain(error) }),
        };
        let mut body = Vec::new();
        while body.len() < ANSWER_MAX_BYTES {
            match answer.chunk().await {
                Ok(Some(chunk)) => {
                    body.extend_from_slice(&chunk[..chunk.len().min(ANSWER_MAX_BYTES - body.len())]);
                }
                Ok(None) => break,
                Err(error) => {
                    let error = format!("HTTP {}, then {}", answer.status(), chain(error));
                    return Err(Attempt::NoAnswer { error });
                }
            }
        }
        Ok(WireAnswer { status: answer.status(), headers: answer.headers().clone(), body })
    }
}

/// What a partner answered.
pub(crate) struct WireAnswer {
    pub(crate) status: StatusCode,
    headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl WireAnswer {
    /// Status and beginning of the body, for a person.
    pub(crate) fn excerpt(&self) -> String {
        let body = String::from_utf8_lossy(&self.body);
        let excerpt: String = body.trim().chars().take(EXCERPT_MAX_CHARS).collect();
        let separator = if excerpt.is_empty() { "" } else { ": " };
        format!("HTTP {}{separator}{excerpt}", self.status)
    }

    /// `Retry-After`, at most an hour.
    pub(crate) fn retry_after(&self, now: Timestamp) -> Option<Duration> {
        self.headers.get(RETRY_AFTER).and_then(|value| retry_after(value.to_str().ok()?, now))
    }
}

/// What an answer means where any 2xx is a yes.
pub(crate) fn judge(answer: &WireAnswer, now: Timestamp) -> Attempt {
    if answer.status.is_success() {
        return Attempt::Delivered;
    }
    let error = answer.excerpt();
    if answer.status == StatusCode::GONE {
        return Attempt::Gone { error };
    }
    Attempt::Refused { error, retry_after: answer.retry_after(now) }
}

/// The row's id on the wire: the same at every attempt, and without a dot, which would end it in the signed text.
pub fn message_id(id: i64) -> String {
    format!("outbox-{id}")
}

/// One `v1,<base64>` per secret, separated by spaces.
///
/// # Errors
/// When there is no secret, or one is not base64; the text names no secret.
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

/// How long `Retry-After` asks to wait: seconds (a fraction is rounded up, as some servers send one) or an HTTP date;
/// at most an hour, zero for a past date. `None` for anything else.
pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    if value.starts_with(|c: char| c.is_ascii_digit())
        && value.chars().all(|c| c.is_ascii_digit() || c == '.')
    {
        // Digits and a point: too many of them are infinite, which the cap takes in.
        let secs: f64 = value.parse().ok()?;
        return Some(Duration::from_secs_f64(secs.ceil().min(RETRY_MAX.as_secs_f64())));
    }
    let until = jiff::fmt::rfc2822::parse(value).ok()?.timestamp();
    let wait = Duration::try_from(until.duration_since(now)).unwrap_or(Duration::ZERO);
    Some(wait.min(RETRY_MAX))
}

/// The causes in one line. The address stays out: it may hold a partner's credentials.
fn chain(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
