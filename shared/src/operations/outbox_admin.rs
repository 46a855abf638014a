//! The outbox for an operator: list, one event with its history, requeue, discard.
//!
//! Promises: each change is audited in the same transaction; a requeued event keeps its id and is sent once, however often
//! the button is pressed.
//! Relies on: `migrations/functions/7_operations/outbox_admin.sql`; [`crate::idempotency::once::once`] around each change.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::db::call::Statement;
use crate::http::fields::{Fields, uuid};
use crate::http::json::BodyError;
use crate::http::problem::Problem;
use crate::http::query::{Parameters, Query};
use crate::http::route::outbox_id;
use crate::idempotency::endpoint::Parsed;

/// States of an event at one destination, as people see them.
pub const STATES: [&str; 4] = ["pending", "dead", "delivered", "discarded"];
/// Most rows that one call of a change by filter changes: about a second's work, at ordered destinations too.
pub(crate) const BATCH_MAX: u32 = 2_000;
/// Most rows that it looks at, so that a filter that fits few rows of many ends in time as well.
pub(crate) const LOOK_MAX: u32 = 10_000;
/// Most rows that `GET /admin/health` counts of each kind.
const HEALTH_MAX: u32 = 20_000;
const REASON_MAX_CHARS: usize = 2_000;
/// 0001-01-01: PostgreSQL writes earlier years in another form (BC).
const YEAR_ONE_SECS: i64 = -62_135_596_800;
/// More than any event type has.
const TYPE_MAX_CHARS: usize = 100;

/// `GET /admin/outbox?state=&destination=&type=&from=&to=`, newest first: 200; 400 `invalid_query`.
pub fn list(query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let page =
        parameters.page_by("must be the id of an event", |text| outbox_id(text).map(|id| id.to_string()));
    let mut filters = json!({"state": parameters.one_of("state", &STATES),
        "destination": parameters.uuid("destination"),
        "type": parameters.filter("type", "must be the name of an event type", |text| is_type(text).then_some(text))});
    for name in ["from", "to"] {
        filters[name] = json!(parameters.filter(name, "must be a time, RFC 3339", instant));
    }
    parameters.finish(Query::list("outbox", &page, filters))
}

/// One event with its payload and history: 200; 404.
pub fn event(id: i64) -> Query {
    Query::new("holdfast.read_outbox", json!({"id": id, "listsAttempts": true}))
}

/// Pending rows, age of the oldest and dead letters, in all and per destination, counted up to a bound.
pub fn health() -> Query {
    Query::new("holdfast.outbox_health", json!({"most": HEALTH_MAX}))
}

pub(super) fn is_type(text: &str) -> bool {
    (1..=TYPE_MAX_CHARS).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_'))
}

/// Reads a time and renders it in UTC, a form that PostgreSQL reads without settings.
pub(super) fn instant(text: &str) -> Option<String> {
    // In a query string an unencoded plus arrives as a space.
    let at: Timestamp = text.replace(' ', "+").parse().ok()?;
    (at.as_second() >= YEAR_ONE_SECS).then(|| at.to_string())
}

/// Which events a change by filter is about, and where it goes on.
#[derive(Debug, PartialEq)]
pub struct Batch {
    /// `state`, `destination`, `type`, `from`, `to`.
    filter: Value,
    /// `next` of the call before: the id of an event.
    after: Option<String>,
}

impl Batch {
    fn argument(&self) -> Value {
        json!({"filter": self.filter, "after": self.after, "look": LOOK_MAX, "most": BATCH_MAX})
    }
}

/// Reads the body of a requeue by filter, `{"state"?,"destination"?,"type"?,"from"?,"to"?,"after"?}`; without `state`: dead
/// letters.
pub fn read_requeue(body: &Value) -> Parsed<Batch> {
    let mut errors = Vec::new();
    let batch = Fields::open(body, "", &mut errors).map(|mut fields| {
        let batch = read_batch(&mut fields, &mut errors);
        fields.finish(&mut errors);
        batch
    });
    batch.filter(|_| errors.is_empty()).ok_or(errors)
}

/// Reads the body of a discard by filter: as [`read_requeue`], and `reason`.
pub fn read_discard(body: &Value) -> Parsed<(Batch, String)> {
    let mut errors = Vec::new();
    let mut read = None;
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        let batch = read_batch(&mut fields, &mut errors);
        read = required_reason(&mut fields, &mut errors).map(|reason| (batch, reason));
        fields.finish(&mut errors);
    }
    read.filter(|_| errors.is_empty()).ok_or(errors)
}

fn read_batch(fields: &mut Fields<'_>, errors: &mut Vec<BodyError>) -> Batch {
    let mut filter = json!({"state": "dead"});
    let mut after = json!({});
    let mut text =
        |into: &mut Value, name: &'static str, message: &str, read: &dyn Fn(&str) -> Option<String>| {
            let Some(value) = fields.optional(name).filter(|value| !value.is_null()) else { return };
            match value.as_str().and_then(read) {
                Some(value) => into[name] = value.into(),
                None => fields.wrong(name, message, errors),
            }
        };
    text(&mut filter, "state", "must be pending, dead, delivered or discarded", &|text| {
        STATES.contains(&text).then(|| text.to_owned())
    });
    text(&mut filter, "destination", "must be a UUID", &|text| uuid(text).map(|id| id.to_string()));
    text(&mut filter, "type", "must be the name of an event type", &|text| {
        is_type(text).then(|| text.to_owned())
    });
    text(&mut filter, "from", "must be a time, RFC 3339", &|text| instant(text));
    text(&mut filter, "to", "must be a time, RFC 3339", &|text| instant(text));
    text(&mut after, "after", "must be the id of an event", &|text| outbox_id(text).map(|id| id.to_string()));
    Batch { filter, after: after["after"].as_str().map(str::to_owned) }
}

fn required_reason(fields: &mut Fields<'_>, errors: &mut Vec<BodyError>) -> Option<String> {
    let value = fields.required("reason", errors)?;
    let reason = value.as_str().filter(|text| !text.trim().is_empty());
    let reason = reason.filter(|text| text.chars().count() <= REASON_MAX_CHARS).map(str::to_owned);
    if reason.is_none() {
        fields.wrong("reason", format!("must be a string of 1 to {REASON_MAX_CHARS} characters"), errors);
    }
    reason
}

/// Reads the body of a discard, `{"reason"}`: 1 … 2,000 characters.
pub fn read_reason(body: &Value) -> Parsed<String> {
    let mut errors = Vec::new();
    let mut reason = None;
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        reason = required_reason(&mut fields, &mut errors);
        fields.finish(&mut errors);
    }
    reason.filter(|_| errors.is_empty()).ok_or(errors)
}

/// Makes one dead or delivered event due again, with all its attempts: 200; 404; 409 `outbox_state`.
pub fn requeue(id: i64) -> Statement {
    Statement::new("holdfast.requeue_one", json!({"id": id}))
}

/// Makes the next events of a filter due again: 200 `{"requeued":n,"next":…|null}`; 409 `outbox_state`.
pub fn requeue_next(batch: &Batch) -> Statement {
    Statement::new("holdfast.requeue_many", batch.argument())
}

/// Ends the next events of a filter without delivery: 200 `{"discarded":n,"next":…|null}`; 409 `outbox_state`.
pub fn discard_next(batch: &Batch, reason: &str) -> Statement {
    Statement::new("holdfast.discard_many", batch.argument()).with("reason", reason)
}

/// Ends one pending or dead event without delivery, though an attempt under way may still arrive: 200; 404; 409
/// `outbox_state`.
pub fn discard(id: i64, reason: &str) -> Statement {
    Statement::new("holdfast.discard_one", json!({"id": id, "reason": reason}))
}
