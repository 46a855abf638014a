//! A partner's own events: to read, and to ask for again, so that a gap heals without a person.
//!
//! Promises: an API key with `events:read` sees its destination and no other; a user sees any of the tenant's.
//! Relies on: `migrations/functions/7_operations/events.sql`.

use serde_json::{Value, json};

use crate::db::call::Statement;
use crate::http::fields::{Fields, uuid};
use crate::http::json::BodyError;
use crate::http::problem::Problem;
use crate::http::query::{Parameters, Query, wrong};
use crate::http::route::outbox_id;
use crate::idempotency::endpoint::Parsed;
use crate::operations::outbox_admin::{BATCH_MAX, LOOK_MAX, instant};

/// `GET /events?destination=&after=&limit=`, oldest first: 200; 404; 400 `invalid_query`.
pub fn list(query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let page =
        parameters.page_by("must be the id of an event", |text| outbox_id(text).map(|id| id.to_string()));
    let destination = parameters.uuid("destination");
    let argument =
        json!({"destination": destination, "after": page.after, "limit": page.limit, "look": LOOK_MAX});
    let events = Query::new("holdfast.read_events", argument);
    parameters.finish(if destination.is_some() { events } else { events.or_else(which_destination) })
}

/// An API key has a destination of its own, so only a user meets this.
fn which_destination() -> Problem {
    Problem::invalid_query(&[wrong("destination", "is required; only an API key need not name its own")])
}

/// What to send again, read from `{"destination","from","to"}` or `{"destination","aggregateId","fromSequence","toSequence"}`, with
/// `after` to go on.
#[derive(Debug)]
pub struct Replay(Value);

/// Reads the body of `POST /events/replay`.
pub fn read_replay(body: &Value) -> Parsed<Replay> {
    let mut errors = Vec::new();
    let mut argument = json!({"look": LOOK_MAX, "most": BATCH_MAX});
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        let by_time = !fields.has("aggregateId");
        let as_uuid = |text: &str| uuid(text).map(|id| id.to_string());
        text(&mut fields, &mut argument, "destination", "must be a UUID", &as_uuid, &mut errors);
        if by_time {
            for name in ["from", "to"] {
                text(&mut fields, &mut argument, name, "must be a time, RFC 3339", &instant, &mut errors);
            }
        } else {
            text(&mut fields, &mut argument, "aggregateId", "must be a UUID", &as_uuid, &mut errors);
            for name in ["fromSequence", "toSequence"] {
                fields.required(name, &mut errors);
                if let Some(number) = fields.optional_integer(name, 1..=MAX_SEQUENCE, &mut errors) {
                    argument[name] = number.into();
                }
            }
        }
        if fields.has("after") {
            let id = |text: &str| outbox_id(text).map(|id| id.to_string());
            text(&mut fields, &mut argument, "after", "must be the id of an event", &id, &mut errors);
        } else {
            fields.optional("after");
        }
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok(Replay(argument)) } else { Err(errors) }
}

/// Numbers in JSON are exact up to here.
const MAX_SEQUENCE: i64 = (1 << 53) - 1;

fn text(
    fields: &mut Fields<'_>,
    argument: &mut Value,
    name: &'static str,
    message: &str,
    read: &dyn Fn(&str) -> Option<String>,
    errors: &mut Vec<BodyError>,
) {
    let Some(value) = fields.required(name, errors) else { return };
    match value.as_str().and_then(read) {
        Some(value) => argument[name] = value.into(),
        None => fields.wrong(name, message, errors),
    }
}

/// Sends the next of these events again: 200 `{"requeued":n,"next":…|null}`; 404.
pub fn replay(Replay(argument): Replay) -> Statement {
    Statement::new("holdfast.replay_events", argument)
}
