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
use lambda_http::{Body, Response};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Row;
use uuid::Uuid;

use crate::config::{ConfigError, DatabaseConfig};
use crate::db::Db;
use crate::error::Problem;
use crate::http::{Answer, Incoming, respond};
use crate::idempotency::literal;
use crate::{shopify, stripe, threepl};

/// All that a delivery may take. Work that is cut off rolls back, or has committed and makes the redelivery a duplicate.
const DEADLINE: Duration = Duration::from_millis(6_600);
/// Characters of an id or a code that a sender may use.
const MAX_TEXT: usize = 255;
/// Characters of a fault that are kept.
const MAX_FAULT: usize = 500;

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

    /// Answers one delivery in time, logs and renders it.
    pub async fn respond(
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

    /// Takes a delivery in: one message, one commit. 200 `{"received":true}`, with `"duplicate":true` where it was taken
    /// in before.
    ///
    /// # Errors
    /// 503, 500 of the database; nothing was changed then.
    pub async fn receive(&self, delivery: &Delivery<'_>) -> Result<Answer, Problem> {
        let (argument, body) = (literal(&delivery.to_json()), hex::encode(delivery.body));
        let rows =
            self.db.send(format!("select holdfast.receive({argument}, '\\x{body}') as verdict")).await?;
        let verdict: &str = rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get("verdict")?;
        tracing::info!(provider = delivery.provider, topic = %delivery.reading.topic, verdict, "webhook");
        Ok(received(verdict == "duplicate"))
    }
}

/// 200, said to a sender so that it does not send the event again.
pub fn received(duplicate: bool) -> Answer {
    let body =
        if duplicate { json!({"received": true, "duplicate": true}) } else { json!({"received": true}) };
    Answer {
        status: 200,
        body: body.to_string().into_bytes(),
        content_type: "application/json".into(),
        etag: None,
        location: None,
        replayed: false,
    }
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

/// What was understood of a body.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The event's type, as the sender calls it.
    pub topic: String,
    /// What it asks for.
    pub meaning: Meaning,
}

/// What a delivery asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// Something to do: `{"do":…}`, as `holdfast.take_effect` takes it.
    Command(Value),
    /// Nothing that concerns us.
    Nothing,
    /// It can never be processed: why, for a person.
    Unreadable(String),
    /// The same, and the invoice that it names: so it is known whose it is.
    UnreadableOf(String, Uuid),
}

impl Meaning {
    /// Puts `command` or `fault` into an argument of `holdfast.receive` or `holdfast.retry_exception`. A command with U+0000
    /// in it, which no text column takes, or with an overlong text is none.
    fn write_into(&self, argument: &mut Value) {
        match self {
            Self::Nothing => {}
            Self::Unreadable(why) => argument["fault"] = json!(printable(why)),
            Self::UnreadableOf(why, invoice) => {
                argument["fault"] = json!(printable(why));
                argument["command"] = json!({"invoiceId": invoice});
            }
            Self::Command(command) => match unfit(command) {
                None => argument["command"] = command.clone(),
                Some(fault) => {
                    argument["fault"] = json!(fault);
                    if let Some(invoice) = command.get("invoiceId") {
                        argument["command"] = json!({"invoiceId": invoice});
                    }
                }
            },
        }
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

/// What a person reads of a fault: nothing that a text column does not take, and no novel.
fn printable(why: &str) -> String {
    why.chars().filter(|c| !c.is_control()).take(MAX_FAULT).collect()
}

fn is_text(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TEXT && !text.contains('\0')
}

/// The first text of a command that cannot be stored. Commands are made by our readers and so are not deep.
fn unfit(command: &Value) -> Option<&'static str> {
    match command {
        Value::String(text) if text.contains('\0') => Some("it has U+0000 in a text that is needed"),
        Value::String(text) if text.len() > MAX_TEXT => Some("it has an id or a code of more than 255 bytes"),
        Value::Array(items) => items.iter().find_map(unfit),
        Value::Object(members) => members.values().find_map(unfit),
        _ => None,
    }
}

/// An id as its sender writes it, a string or an integer of 64 bits; no digit is lost.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Id(pub String);

impl<'de> serde::Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Id;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an id: a string or an integer of 64 bits")
            }
            fn visit_u64<E>(self, id: u64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }
            fn visit_i64<E>(self, id: i64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }
            fn visit_str<E: serde::de::Error>(self, id: &str) -> Result<Id, E> {
                if id.is_empty() { Err(E::invalid_length(0, &self)) } else { Ok(Id(id.to_owned())) }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Reads the members in use. Whatever else a body holds is skipped unread, at any depth, in constant memory.
///
/// # Errors
/// Why it cannot be read, for a person: no JSON, a member in use missing or of another type. It quotes nothing of the body:
/// what stands there may be somebody's name, and the reason travels in an event.
pub fn parse<'b, T: serde::Deserialize<'b>>(body: &'b [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| {
        let told = error.to_string();
        let ours = told.rfind(", expected ").map_or(told.as_str(), |quoted| &told[quoted + 2..]);
        format!("it cannot be read: {ours}")
    })
}
