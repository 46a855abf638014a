//! Shopify's Admin GraphQL API: one request and what its answer means for the next attempt.
//!
//! Promises: an answer is data, or an [`Attempt`] that says how it failed; throttling names the pause that the shop needs.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::delivery::attempt::{Attempt, PartnerAnswer, Sender, classify};

/// The pause where a throttled answer names none.
const THROTTLED_WAIT: Duration = Duration::from_secs(2);
/// Longest pause, whatever the shop asks for.
const THROTTLED_WAIT_MAX: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct GraphqlAnswer<T> {
    data: Option<T>,
    #[serde(default)]
    errors: Vec<GraphqlError>,
    #[serde(default)]
    extensions: Value,
}

#[derive(Deserialize)]
struct GraphqlError {
    message: String,
    #[serde(default)]
    extensions: Value,
}

/// A shop's API, as one attempt uses it.
pub(super) struct AdminApi<'a> {
    sender: &'a Sender,
    /// The GraphQL endpoint.
    url: &'a str,
    /// The access token; without one none is sent.
    token: Option<&'a str>,
    /// Names the attempt's message for logs of the shop; Shopify itself deduplicates by a variable of the query.
    pub(super) message_id: &'a str,
    now: Timestamp,
    /// Of the last answer; 0 before there was one.
    last_status: AtomicU16,
}

impl<'a> AdminApi<'a> {
    pub(super) fn new(
        sender: &'a Sender,
        url: &'a str,
        token: Option<&'a str>,
        message_id: &'a str,
        now: Timestamp,
    ) -> Self {
        Self { sender, url, token, message_id, now, last_status: AtomicU16::new(0) }
    }

    /// The HTTP status of the last answer.
    pub(super) fn last_status(&self) -> Option<u16> {
        Some(self.last_status.load(Ordering::Relaxed)).filter(|status| *status > 0)
    }

    /// Makes one GraphQL request and returns its `data`.
    pub(super) async fn ask<T: for<'de> Deserialize<'de>>(
        &self,
        query: &str,
        variables: &Value,
    ) -> Result<T, Attempt> {
        let body = json!({"query": query, "variables": variables}).to_string();
        let answer = self.sender.post(self.url, self.headers()?, body).await?;
        self.last_status.store(answer.status.as_u16(), Ordering::Relaxed);
        match classify(&answer, self.now) {
            Attempt::Delivered => read(&answer),
            failure => Err(failure),
        }
    }

    fn headers(&self) -> Result<HeaderMap, Attempt> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let value = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| Attempt::Unsendable("the access token is no header value".into()))
        };
        headers.insert("idempotency-key", value(self.message_id)?);
        if let Some(token) = self.token {
            let mut token = value(token)?;
            token.set_sensitive(true);
            headers.insert("x-shopify-access-token", token);
        }
        Ok(headers)
    }
}

pub(super) fn failed(error: String) -> Attempt {
    Attempt::Failed { error, retry_after: None }
}

fn read<T: for<'de> Deserialize<'de>>(answer: &PartnerAnswer) -> Result<T, Attempt> {
    let read: GraphqlAnswer<T> = serde_json::from_slice(&answer.body)
        .map_err(|_| failed(format!("no GraphQL answer: {}", answer.excerpt())))?;
    if let Some(error) = read.errors.iter().find(|error| error.extensions["code"] == "THROTTLED") {
        let wait = throttled_wait(&read.extensions["cost"]);
        return Err(Attempt::Throttled { error: format!("THROTTLED: {}", error.message), wait: Some(wait) });
    }
    match (read.errors.first(), read.data) {
        (Some(error), _) => Err(failed(format!("GraphQL: {}", error.message))),
        (None, Some(data)) => Ok(data),
        (None, None) => Err(failed(format!("no GraphQL answer: {}", answer.excerpt()))),
    }
}

/// Time until the shop's leaky bucket has room for the query's cost.
fn throttled_wait(cost: &Value) -> Duration {
    let number = |value: &Value| value.as_f64().filter(|n| n.is_finite());
    let status = &cost["throttleStatus"];
    let (needed, available, rate) = (
        number(&cost["requestedQueryCost"]),
        number(&status["currentlyAvailable"]),
        number(&status["restoreRate"]).filter(|rate| *rate > 0.0),
    );
    match (needed, available, rate) {
        (Some(needed), Some(available), Some(rate)) => {
            let secs = ((needed - available) / rate).clamp(1.0, THROTTLED_WAIT_MAX.as_secs_f64());
            Duration::from_secs_f64(secs)
        }
        _ => THROTTLED_WAIT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_waits_until_the_bucket_holds_enough() {
        let cost = |needed: f64, available: f64, rate: f64| {
            json!({"requestedQueryCost": needed,
                   "throttleStatus": {"maximumAvailable": 1000, "currentlyAvailable": available, "restoreRate": rate}})
        };
        assert_eq!(throttled_wait(&cost(110.0, 10.0, 50.0)), Duration::from_secs(2));
        assert_eq!(throttled_wait(&cost(11.0, 10.0, 50.0)), Duration::from_secs(1));
        assert_eq!(throttled_wait(&cost(1e9, 0.0, 50.0)), THROTTLED_WAIT_MAX);
        for unclear in [cost(11.0, 10.0, 0.0), json!({}), json!(null)] {
            assert_eq!(throttled_wait(&unclear), THROTTLED_WAIT, "{unclear}");
        }
    }
}
