//! The outbox as a person sees it: lists, one event with all that is known of it, sending again, setting aside.
//!
//! Promises: only the caller's own tenant is seen or touched; whatever is done is audited in the same transaction; an
//! event that is sent again keeps its id, and is sent once however often the button is pressed.
//! Relies on: `migrations/functions/41_outbox_admin.sql`, and [`crate::idempotency::once`] around each deed.

use jiff::Timestamp;
use serde_json::{Value, json};
use sqlx::{PgConnection, Row};

use crate::auth::Caller;
use crate::db::Db;
use crate::endpoint::Parsed;
use crate::error::Problem;
use crate::fields::{Fields, uuid};
use crate::http::Answer;
use crate::idempotency::{Call, Outcome, literal};
use crate::json::BodyError;
use crate::orders::outcome;
use crate::reads::Parameters;

/// Where an event may be.
pub const STATES: [&str; 4] = ["pending", "dead", "delivered", "discarded"];
/// Rows that one requeue by filter sends back at most: some seconds' work.
const REQUEUE_MAX: u32 = 20_000;
/// Characters of the reason of a discard.
const REASON_MAX_CHARS: usize = 2_000;
/// 0001-01-01: years before it have another spelling there.
const YEAR_ONE_SECS: i64 = -62_135_596_800;
/// Characters of an event type in a filter: more than any has.
const TYPE_MAX_CHARS: usize = 100;

/// What an administrator asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Look {
    /// Events by a filter, newest first.
    Outbox(Value),
    /// One event with its payload and history.
    Event(i64),
    /// Destinations, newest first.
    Destinations(Value),
    /// The live secrets of one destination.
    Secrets(uuid::Uuid),
    /// Backlog, age and dead letters.
    Health,
}

impl Look {
    /// `GET /admin/outbox`: `state`, `destination`, `type`, `from`, `to`, `limit`, `after`.
    ///
    /// # Errors
    /// 400 `invalid_query`, every wrong parameter named.
    pub fn outbox(query: &[(String, String)]) -> Result<Self, Problem> {
        let mut parameters = Parameters::new(query);
        let limit = parameters.limit();
        let after = parameters.one("after").and_then(|text| {
            let id = outbox_id(text);
            if id.is_none() {
                parameters.wrong("after", "must be the id of an event");
            }
            id
        });
        let state = parameters.one_of("state", &STATES);
        let destination =
            parameters.filter("destination").and_then(|text| parameters.uuid("destination", text));
        let event_type = parameters.filter("type").and_then(|text| {
            let fits = is_type(text);
            if !fits {
                parameters.wrong("type", "must be the name of an event type");
            }
            fits.then_some(text)
        });
        let [from, to] = ["from", "to"].map(|name| {
            let text = parameters.filter(name)?;
            let at = instant(text);
            if at.is_none() {
                parameters.wrong(name, "must be a time, RFC 3339");
            }
            at
        });
        parameters.finish(Self::Outbox(json!({"limit": limit, "after": after, "state": state,
            "destination": destination, "type": event_type, "from": from, "to": to})))
    }

    /// `GET /admin/destinations`: `limit`, `after`.
    ///
    /// # Errors
    /// 400 `invalid_query`, every wrong parameter named.
    pub fn destinations(query: &[(String, String)]) -> Result<Self, Problem> {
        let mut parameters = Parameters::new(query);
        let page = parameters.page();
        parameters.finish(Self::Destinations(json!({"limit": page.limit, "after": page.after})))
    }

    /// Answers it in one message.
    ///
    /// # Errors
    /// 401 for a user who is not there; 404; 400 `invalid_query` for an `after` that is not there; 503.
    pub async fn answer(&self, db: &Db, caller: &Caller) -> Result<Answer, Problem> {
        let (function, mut argument) = match self {
            Self::Outbox(filter) => ("holdfast.list_outbox", filter.clone()),
            Self::Event(id) => ("holdfast.read_outbox", json!({"id": id})),
            Self::Destinations(page) => ("holdfast.list_destinations", page.clone()),
            Self::Secrets(id) => ("holdfast.destination_secrets", json!({"id": id})),
            Self::Health => ("holdfast.outbox_health", json!({})),
        };
        argument["tenantId"] = json!(caller.tenant_id);
        argument["userId"] = json!(caller.user_id);
        argument["actor"] = json!(caller.actor);
        let rows = db.send(format!("select * from {function}({})", literal(&argument))).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        match row.try_get("decision")? {
            "answer" => Ok(Answer {
                status: 200,
                body: row.try_get("body")?,
                content_type: row.try_get("content_type")?,
                etag: None,
                location: None,
                replayed: false,
            }),
            "unknown_user" => Err(Problem::unauthenticated()),
            "not_found" => Err(Problem::not_found()),
            "unknown_after" => Err(Problem::invalid_query(&[BodyError {
                path: "after".into(),
                message: "is not an item of this list".into(),
            }])),
            other => Err(sqlx::Error::Decode(format!("unknown decision {other}").into()).into()),
        }
    }
}

/// An event's id: a bigint in decimal.
pub fn outbox_id(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Leading zeros would be a second spelling of one path.
    (digits && (text.len() == 1 || !text.starts_with('0'))).then(|| text.parse().ok()).flatten()
}

fn is_type(text: &str) -> bool {
    (1..=TYPE_MAX_CHARS).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_'))
}

/// A time, in the one spelling that PostgreSQL surely reads.
fn instant(text: &str) -> Option<String> {
    // A plus that was not encoded arrives as a space.
    let at: Timestamp = text.replace(' ', "+").parse().ok()?;
    (at.as_second() >= YEAR_ONE_SECS).then(|| at.to_string())
}

/// Reads the body of a requeue by filter: `{"state"?,"destination"?,"type"?,"from"?,"to"?}`; without `state` the dead
/// letters.
///
/// # Errors
/// Every mistake, each with its place.
pub fn read_filter(body: &Value) -> Parsed<Value> {
    let mut errors = Vec::new();
    let mut filter = json!({"state": "dead"});
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        let mut text = |name: &'static str, message: &str, read: &dyn Fn(&str) -> Option<String>| {
            let Some(value) = fields.optional(name).filter(|value| !value.is_null()) else { return };
            match value.as_str().and_then(read) {
                Some(value) => filter[name] = value.into(),
                None => fields.wrong(name, message, &mut errors),
            }
        };
        text("state", "must be pending, dead, delivered or discarded", &|text| {
            STATES.contains(&text).then(|| text.to_owned())
        });
        text("destination", "must be a UUID", &|text| uuid(text).map(|id| id.to_string()));
        text("type", "must be the name of an event type", &|text| is_type(text).then(|| text.to_owned()));
        text("from", "must be a time, RFC 3339", &|text| instant(text));
        text("to", "must be a time, RFC 3339", &|text| instant(text));
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok(filter) } else { Err(errors) }
}

/// Reads the body of a discard: `{"reason"}`, 1 … 2,000 characters.
///
/// # Errors
/// Every mistake, each with its place.
pub fn read_reason(body: &Value) -> Parsed<String> {
    let mut errors = Vec::new();
    let mut reason = None;
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        if let Some(value) = fields.required("reason", &mut errors) {
            reason = value.as_str().filter(|text| !text.trim().is_empty());
            if reason.is_none_or(|text| text.chars().count() > REASON_MAX_CHARS) {
                let message = format!("must be a string of 1 to {REASON_MAX_CHARS} characters");
                fields.wrong("reason", message, &mut errors);
            }
        }
        fields.finish(&mut errors);
    }
    match reason {
        Some(reason) if errors.is_empty() => Ok(reason.to_owned()),
        _ => Err(errors),
    }
}

/// Sends one dead or delivered event back to pending, in the caller's transaction: 404, 409 `outbox_state`.
///
/// # Errors
/// Of the statement.
pub async fn requeue(connection: &mut PgConnection, call: &Call, id: &i64) -> Result<Outcome, sqlx::Error> {
    let who = literal(&call.to_json());
    outcome(connection, format!("select * from holdfast.requeue_one({who}, {id})")).await
}

/// Sends all that a filter finds back to pending, in the caller's transaction: `{"requeued":n}`, 409 `outbox_state`.
///
/// # Errors
/// Of the statement.
pub async fn requeue_all(
    connection: &mut PgConnection,
    call: &Call,
    filter: &Value,
) -> Result<Outcome, sqlx::Error> {
    let (who, filter) = (literal(&call.to_json()), literal(filter));
    outcome(connection, format!("select * from holdfast.requeue_many({who}, {filter}, {REQUEUE_MAX})")).await
}

/// Sets one pending or dead event aside for good, in the caller's transaction: 404, 409 `outbox_state`.
///
/// # Errors
/// Of the statement.
pub async fn discard(
    connection: &mut PgConnection,
    call: &Call,
    (id, reason): &(i64, String),
) -> Result<Outcome, sqlx::Error> {
    let (who, reason) = (literal(&call.to_json()), literal(&json!(reason)));
    outcome(connection, format!("select * from holdfast.discard_one({who}, {id}, {reason} #>> '{{}}')")).await
}
