//! Receives a webhook once: the inbox row `(provider, event id)`, the effect and what could not be done commit in one
//! transaction, or none of them does.
//!
//! Promises: however often and at however many sandboxes a delivery arrives, its effect commits at most once; a failure
//! for a passing reason leaves no row, so that the redelivery runs; what can never be processed is kept whole.
//! Relies on: `holdfast.receive`, one message; the sender's redelivery; business ids beneath the event ids
//! (unique constraints of migration 0004), which hold after the inbox row was reaped.
//! Does not promise an order of events: every effect ends in the same state whatever came first.

use std::time::Duration;

use jiff::Timestamp;
use lambda_http::{Body, Request, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Row;

use crate::db::call::{Statement, literal, only};
use crate::db::connection::Db;
use crate::http::event::{Answer, Incoming, respond};
use crate::http::problem::Problem;
use crate::http::route::{Route, dispatch};
use crate::runtime::config::{ConfigError, DatabaseConfig};
use crate::webhooks::reading::{MAX_TEXT, Reading, is_text};
use crate::webhooks::signature::Secrets;
use crate::webhooks::{shopify, stripe, threepl};

/// All that a delivery may take. Work that is cut off rolls back, or has committed and makes the redelivery a duplicate.
const DEADLINE: Duration = Duration::from_millis(6_600);

/// What an endpoint for webhooks stands on.
pub struct Receiver {
    /// The one connection, in the role of the endpoint functions.
    pub db: Db,
    /// What signed timestamps are compared with.
    pub now: fn() -> Timestamp,
    /// All that a delivery may take.
    pub deadline: Duration,
}

impl Receiver {
    /// From parsed configuration, with the machine's clock.
    ///
    /// # Errors
    /// An address that cannot be used.
    pub fn new(database: &DatabaseConfig) -> Result<Self, ConfigError> {
        let db = Db::new(database).map_err(|_| ConfigError::new("APP_DATABASE_URL", "is wrong"))?;
        Ok(Self { db, now: Timestamp::now, deadline: DEADLINE })
    }

    /// From the environment, with the connection opened.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let receiver = Self::new(&DatabaseConfig::app()?)?;
        receiver.db.warm().await;
        Ok(receiver)
    }

    /// Serves one delivery by the function's table of routes.
    pub async fn serve<S>(&self, state: &S, routes: &[Route<S>], request: Request) -> Response<Body> {
        let incoming = Incoming::read(request);
        self.respond(&incoming, dispatch(state, routes, &incoming)).await
    }

    /// Answers one delivery in time, logs and renders it.
    async fn respond(
        &self,
        incoming: &Incoming,
        work: impl Future<Output = Result<Answer, Problem>>,
    ) -> Response<Body> {
        let result =
            tokio::time::timeout(self.deadline, work).await.unwrap_or_else(|_| Err(Problem::unavailable()));
        let (status, error) = match &result {
            Ok(answer) => (answer.status, None),
            Err(problem) => (problem.status, Some(problem.error)),
        };
        tracing::info!(request_id = %incoming.request_id, path = %incoming.segments.join("/"), status, error, "answered");
        respond(result, &incoming.request_id)
    }

    /// The secrets that a 3PL account may sign with; none for one that is not there.
    ///
    /// # Errors
    /// 503, 500 of the database.
    pub async fn threepl_secrets(&self, account: &str) -> Result<Secrets, Problem> {
        if account.contains('\0') {
            return Ok(Secrets::base64(""));
        }
        let statement = Statement::new("holdfast.threepl_secret", json!({"account": account}));
        let secret: Option<String> = self.db.call_one(&statement).await?.try_get("threepl_secret")?;
        Ok(Secrets::base64(secret.as_deref().unwrap_or_default()))
    }

    /// Takes a delivery in: one message, one commit. 200 `{"received":true}`, with `"duplicate":true` where it was taken
    /// in before.
    ///
    /// # Errors
    /// 503, 500 of the database; nothing was changed then.
    pub async fn receive(&self, delivery: &Delivery<'_>) -> Result<Answer, Problem> {
        // The raw bytes stand beside the argument: inside it they would be encoded twice.
        let (argument, body) = (literal(&delivery.to_json()), hex::encode(delivery.body));
        let row = only(self.db.send(format!("select holdfast.receive({argument}, '\\x{body}')")).await?)?;
        let verdict: &str = row.try_get("receive")?;
        tracing::info!(provider = delivery.provider, topic = %delivery.reading.topic, verdict, "webhook");
        Ok(received(verdict == "duplicate"))
    }
}

/// 200, said to a sender so that it does not send the event again.
pub fn received(duplicate: bool) -> Answer {
    let body =
        if duplicate { json!({"received": true, "duplicate": true}) } else { json!({"received": true}) };
    Answer::new(200, "application/json", body.to_string())
}

/// One signed delivery.
#[derive(Debug)]
pub struct Delivery<'b> {
    /// `stripe`, `shopify:<shop domain>` or `3pl:<account id>`: event ids are unique within it.
    pub provider: &'b str,
    /// What the sender calls the event; where it has no usable name, it is named after its bytes.
    pub event_id: Option<&'b str>,
    /// What was understood of it.
    pub reading: Reading,
    /// The bytes that were signed.
    pub body: &'b [u8],
}

impl Delivery<'_> {
    fn to_json(&self) -> Value {
        let event_id = self
            .event_id
            .filter(|id| is_text(id))
            .map_or_else(|| format!("sha256:{}", hex::encode(Sha256::digest(self.body))), str::to_owned);
        let topic: String = self.reading.topic.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
        let mut json = json!({"provider": self.provider, "eventId": event_id, "topic": topic});
        self.reading.meaning.write_into(&mut json);
        json
    }
}

/// Reads a kept body again, with the code of today: the argument of `holdfast.retry_exception`.
pub fn reread(provider: &str, topic: &str, body: &[u8]) -> Value {
    let meaning = match provider.split_once(':') {
        Some(("shopify", _)) => shopify::read(topic, body),
        Some(("3pl", _)) => threepl::read(body).meaning,
        _ => stripe::read(body).reading.meaning,
    };
    let mut argument = json!({});
    meaning.write_into(&mut argument);
    argument
}
