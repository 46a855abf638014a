//! What needs a person: signed events that could not be processed (exceptions), and promised units that are missing
//! (shortfalls).
//!
//! Promises: a retry runs the kept event through the code that receives events, in one transaction, and moves only what was
//! not moved before; every decision is made under a lock.
//! Relies on: `migrations/functions/7_operations/exceptions.sql`; `idempotency::once` around each change.

use serde_json::{Value, json};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use crate::db::call::{Outcome, Statement, outcome, send};
use crate::http::fields::Fields;
use crate::http::problem::Problem;
use crate::http::query::{Parameters, Query};
use crate::idempotency::endpoint::Parsed;
use crate::idempotency::once::Call;
use crate::webhooks::inbox;

const NOTE_MAX_CHARS: usize = 2_000;

/// `GET /admin/exceptions?state=open|resolved`, newest first; without `state` all: 200; 400 `invalid_query`. An item's
/// `excerpt` is the beginning of the raw body as text; what is not UTF-8 is U+FFFD.
pub fn exceptions(query: &[(String, String)]) -> Result<Query, Problem> {
    list("inbox_exception", &["open", "resolved"], query)
}

/// `GET /admin/shortfalls?state=open|settled`, newest first; without `state` all: 200; 400 `invalid_query`.
pub fn shortfalls(query: &[(String, String)]) -> Result<Query, Problem> {
    list("shortfall", &["open", "settled"], query)
}

fn list(table: &'static str, states: &[&'static str], query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let (page, filters) = (parameters.page(), json!({"state": parameters.one_of("state", states)}));
    parameters.finish(Query::list(table, &page, filters))
}

/// Reads the body of a settlement, `{"note"}`: 1 … 2,000 characters.
pub fn read_note(body: &Value) -> Parsed<String> {
    let mut errors = Vec::new();
    let mut note = None;
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        if !fields.has("note") {
            fields.wrong("note", "is required", &mut errors);
        }
        note = fields
            .nullable_text("note", NOTE_MAX_CHARS, &mut errors)
            .and_then(Value::as_str)
            .map(str::to_owned);
        if errors.is_empty() && note.as_ref().is_none_or(|note| note.trim().is_empty()) {
            fields.wrong("note", "must say something", &mut errors);
        }
        fields.finish(&mut errors);
    }
    match note {
        Some(note) if errors.is_empty() => Ok(note),
        _ => Err(errors),
    }
}

/// Processes a kept event once more, inside `idempotency::once_with`: 200 with the exception as it is then (`resolvedAt`
/// null and a new `reason` where it failed again); 404; 409 `exception_resolved`. `excerpt` is null here, since answers are
/// recorded and personal data must stay erasable.
pub async fn retry(connection: &mut PgConnection, call: &Call, id: &Uuid) -> Result<Outcome, sqlx::Error> {
    let named = |function| call.caller.named_in(Statement::new(function, json!({"id": id})));
    let kept = send(connection, named("holdfast.exception_to_retry").sql()).await?;
    let delivery = match kept.first() {
        Some(row) => {
            let body: Vec<u8> = row.try_get("body")?;
            inbox::reread(row.try_get("provider")?, row.try_get("topic")?, &body)
        }
        None => json!({}),
    };
    outcome(connection, &named("holdfast.retry_exception").with("delivery", delivery)).await
}

/// Closes a shortfall: 200 with it; 404; 409 `shortfall_settled`. `unbooked` counts units that are gone but still in the
/// position, because they are promised: they are booked out as soon as ATS covers them.
pub fn settle(id: Uuid, note: &str) -> Statement {
    Statement::new("holdfast.settle_shortfall", json!({"id": id, "note": note}))
}
