//! One request for a partner's document, such as a page of a 3PL's inventory.
//!
//! Promises: ends within its time limit, connecting included; reads no more than its limit; follows no redirect; calls only
//! addresses that [`Guard`] admits. An error quotes neither the address nor the token.
//! Does not retry: the caller knows what is worth it, see [`FetchError::passes`].

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;
use jiff::Timestamp;
use tokio::time::timeout;

use crate::delivery::address::Guard;
use crate::delivery::attempt::{chain, client, retry_after};

/// The part of a refusal's body that an error quotes.
const EXCERPT_MAX_CHARS: usize = 300;

/// A client with a guard. Make one per invocation: connections that were open when a sandbox froze are dead.
#[derive(Clone, Debug)]
pub struct Fetcher {
    client: reqwest::Client,
    guard: Arc<Guard>,
    timeout: Duration,
    max_bytes: usize,
}

/// Why there is no document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// The address may not be called.
    #[error("the address {0}")]
    Address(String),
    /// No answer in time, or not a whole one.
    #[error("no answer: {0}")]
    NoAnswer(String),
    /// An answer that is not 2xx.
    #[error("HTTP {status}{}{excerpt}", if excerpt.is_empty() { "" } else { ": " })]
    Refused {
        /// The status.
        status: u16,
        /// The beginning of its body.
        excerpt: String,
        /// `Retry-After`, at most an hour.
        retry_after: Option<Duration>,
    },
    /// The document is larger than allowed.
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
}

impl FetchError {
    /// Whether the same request may succeed later: no answer, 408, 425, 429 and 5xx.
    pub fn passes(&self) -> bool {
        match self {
            Self::NoAnswer(_) => true,
            Self::Refused { status, .. } => matches!(status, 408 | 425 | 429 | 500..),
            Self::Address(_) | Self::TooLarge(_) => false,
        }
    }

    /// How long the partner asks to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        if let Self::Refused { retry_after, .. } = self { *retry_after } else { None }
    }
}

impl Fetcher {
    /// `timeout` is for one request, `max_bytes` for its document. Fails where TLS cannot be set up.
    pub fn new(timeout: Duration, max_bytes: usize, guard: Guard) -> Result<Self, reqwest::Error> {
        Ok(Self { client: client(guard.resolver())?, guard: Arc::new(guard), timeout, max_bytes })
    }

    /// Asks once, with a bearer token where there is one. `query` is appended to the address.
    pub async fn get(
        &self,
        address: &str,
        query: &[(&str, &str)],
        token: Option<&str>,
    ) -> Result<Vec<u8>, FetchError> {
        let mut url = self.guard.url(address).map_err(FetchError::Address)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut asked = self.client.get(url);
        if let Some(token) = token {
            asked = asked.bearer_auth(token).header("accept", "application/json");
        }
        match timeout(self.timeout, self.answer(asked)).await {
            Ok(answer) => answer,
            Err(_) => Err(FetchError::NoAnswer(format!("none within {:?}", self.timeout))),
        }
    }

    async fn answer(&self, asked: reqwest::RequestBuilder) -> Result<Vec<u8>, FetchError> {
        let lost = |error| FetchError::NoAnswer(chain(error));
        let mut answer = asked.send().await.map_err(lost)?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > self.max_bytes {
                return Err(FetchError::TooLarge(self.max_bytes));
            }
            body.extend_from_slice(&chunk);
        }
        if status.is_success() && status != StatusCode::NO_CONTENT {
            return Ok(body);
        }
        let wait = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let text = String::from_utf8_lossy(&body);
        let excerpt = text.trim().chars().filter(|c| !c.is_control());
        Err(FetchError::Refused {
            status: status.as_u16(),
            excerpt: excerpt.take(EXCERPT_MAX_CHARS).collect(),
            retry_after: wait.and_then(|value| retry_after(value, Timestamp::now())),
        })
    }
}
