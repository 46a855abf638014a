//! Receives webhooks: the inbox row `(provider, event id)`, the effect and the exception (what could not be done) commit in
//! one transaction, or none of them does.
//!
//! Promises: the effect of an event commits at most once, however often and at however many sandboxes it arrives. A temporary
//! failure leaves no row, so that the redelivery is processed; what can never be processed is stored as an exception.
//! Relies on: `holdfast.receive`; the sender's redelivery; unique constraints on business ids (migration 0004), which still
//! prevent a second effect after the inbox row was reaped.
//! Does not promise an order of events: the effects give the same state in every order.

use std::time::Duration;

use jiff::Timestamp;
use lambda_http::{Body, Request, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Row;

use crate::db::call::{Statement, first_row, json_literal};
use crate::db::connection::Db;
use crate::db::run::RequestScope;
use crate::http::answered::answered;
use crate::http::event::{Answer, Incoming};
use crate::http::problem::Problem;
use crate::http::route::{Route, dispatch};
use crate::runtime::config::{ConfigError, DatabaseConfig};
use crate::runtime::request_log;
use crate::runtime::sealed::{Sealer, shop_place, threepl_place};
use crate::webhooks::reading::{MAX_TEXT, Reading, is_storable};
use crate::webhooks::signature::Secrets;
use crate::webhooks::{shopify, stripe, threepl};

/// Work that is cut off either rolls back, or has committed and makes the redelivery a duplicate.
const DEADLINE: Duration = Duration::from_millis(6_600);
/// What is left for the answer when the database's time is up.
const AFTER_THE_DATABASE: Duration = Duration::from_millis(200);

/// The state that every webhook function needs.
pub struct Receiver {
    /// Connected as the role of the endpoint functions.
    pub db: Db,
    /// The clock for signed timestamps.
    pub now: fn() -> Timestamp,
    /// Limit for the database work of a delivery; after it 503.
    pub deadline: Duration,
}

impl Receiver {
    /// Uses the system clock; fails if the database URL cannot be used.
    pub fn new(database: &DatabaseConfig) -> Result<Self, ConfigError> {
        let db =
            Db::new(database).map_err(|error| ConfigError::new("APP_DATABASE_URL", error.to_string()))?;
        Ok(Self { db, now: Timestamp::now, deadline: DEADLINE })
    }

    /// Reads the environment and opens the connection.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let receiver = Self::new(&DatabaseConfig::app()?)?;
        receiver.db.warm().await;
        Ok(receiver)
    }

    /// Routes one delivery and answers it; `state` is passed to the handlers.
    pub async fn serve<S>(&self, state: &S, routes: &[Route<S>], request: Request) -> Response<Body> {
        let incoming = Incoming::read(request);
        self.respond(&incoming, dispatch(state, routes, &incoming)).await
    }

    async fn respond(
        &self,
        incoming: &Incoming,
        work: impl Future<Output = Result<Answer, Problem>>,
    ) -> Response<Body> {
        let scope = RequestScope::begin_within(self.deadline);
        let limited = async {
            let done =
                tokio::time::timeout(self.deadline + AFTER_THE_DATABASE, scope.clone().run(work)).await;
            done.unwrap_or_else(|_| Err(Problem::outcome_unknown()))
        };
        let (result, seen) = request_log::watch(limited).await;
        answered(incoming, result, seen, scope.database_ms())
    }

    /// The signing secrets of a 3PL account; empty for an unknown account.
    pub async fn threepl_secrets(&self, sealer: &Sealer, account: &str) -> Result<Secrets, Problem> {
        let statement = Statement::new("holdfast.threepl_secrets", json!({"account": account}));
        let secrets = self.secrets(sealer, &threepl_place(account), account, &statement).await?;
        Ok(Secrets::base64(&secrets.join(" ")))
    }

    /// The signing secrets of a shop that has its own; `None` where it has none, or is not known.
    pub async fn shop_secrets(&self, sealer: &Sealer, domain: &str) -> Result<Option<Secrets>, Problem> {
        let statement = Statement::new("holdfast.shop_secrets", json!({"domain": domain}));
        let secrets = self.secrets(sealer, &shop_place(domain), domain, &statement).await?;
        Ok((!secrets.is_empty()).then(|| Secrets::plain(&secrets.join(" "))))
    }

    async fn secrets(
        &self,
        sealer: &Sealer,
        place: &str,
        sender: &str,
        statement: &Statement,
    ) -> Result<Vec<String>, Problem> {
        // No text in PostgreSQL holds U+0000, so there is no such sender.
        if sender.contains('\0') {
            return Ok(Vec::new());
        }
        let rows = self.db.call(statement).await?;
        rows.iter().map(|row| Ok(sealer.open(place, row.try_get("secret")?)?)).collect()
    }

    /// Processes a delivery in one message and one commit: 200 as [`received`]; 503, 500 of the database.
    pub async fn receive(&self, delivery: &Delivery<'_>) -> Result<Answer, Problem> {
        // The raw body is a second argument, since inside the jsonb argument it would be encoded twice.
        let (argument, body) = (json_literal(&delivery.to_json()), hex::encode(delivery.body));
        let message = format!("select holdfast.receive({argument}, '\\x{body}')");
        let row = first_row(self.db.commit(message).await?)?;
        let verdict: &str = row.try_get("receive")?;
        request_log::delivery(delivery.provider, &delivery.reading.topic, verdict);
        Ok(received(verdict == "duplicate"))
    }
}

/// 200 `{"received":true}`, with `"duplicate":true` for a repeated event; the sender stops sending it.
pub fn received(duplicate: bool) -> Answer {
    let body =
        if duplicate { json!({"received": true, "duplicate": true}) } else { json!({"received": true}) };
    Answer::new(200, "application/json", body.to_string())
}

/// One delivery whose signature is verified.
#[derive(Debug)]
pub struct Delivery<'b> {
    /// `stripe`, `shopify:<shop domain>` or `3pl:<account id>`; event ids are unique within it.
    pub provider: &'b str,
    /// The sender's event id; if there is none that can be stored, the SHA-256 of the body is used.
    pub event_id: Option<&'b str>,
    /// The parsed body.
    pub reading: Reading,
    /// The raw body, as signed.
    pub body: &'b [u8],
}

impl Delivery<'_> {
    fn to_json(&self) -> Value {
        let event_id = self
            .event_id
            .filter(|id| is_storable(id))
            .map_or_else(|| format!("sha256:{}", hex::encode(Sha256::digest(self.body))), str::to_owned);
        let topic: String = self.reading.topic.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
        let mut json = json!({"provider": self.provider, "eventId": event_id, "topic": topic});
        self.reading.meaning.write_into(&mut json);
        json
    }
}

/// Reads a stored body again with the current code; returns the argument of `holdfast.retry_exception`.
pub fn reread(provider: &str, topic: &str, body: &[u8]) -> Value {
    let meaning = match provider.split_once(':') {
        Some(("shopify", _)) => shopify::read(topic, None, body),
        Some(("3pl", _)) => threepl::read(body).meaning,
        // What the reconciliation found is no event: each night looks anew, and a retry means that a person has seen it.
        Some(("reconcile", _)) => return json!({}),
        _ => stripe::read(body).reading.meaning,
    };
    let mut argument = json!({});
    meaning.write_into(&mut argument);
    argument
}
