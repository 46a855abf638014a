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
use crate::http::fields::{Fields, uuid};
use crate::http::json::BodyError;
use crate::http::problem::Problem;
use crate::http::query::{Parameters, Query};
use crate::idempotency::endpoint::Parsed;
use crate::idempotency::once::Call;
use crate::operations::outbox_admin::instant;
use crate::webhooks::inbox;

const NOTE_MAX_CHARS: usize = 2_000;
const REASON_MAX_CHARS: usize = 2_000;
const FILTER_MAX_CHARS: usize = 300;
/// Of one retry by filter: each holds what it locked until the commit, and buyers wait behind it.
const RETRIES_MAX: usize = 20;
/// Of one dismissal by filter: some tens of milliseconds of work.
const DISMISSALS_MAX: usize = 1_000;

/// `GET /admin/exceptions?state=open|resolved&provider=&topic=&from=&to=`, newest first; without `state` all: 200; 400
/// `invalid_query`. An item's `excerpt` is the beginning of the raw body as text; what is not UTF-8 is U+FFFD. With
/// `tenant=none`, for which the route wants another scope, those of no tenant.
pub fn exceptions(query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let nobodys = parameters.one_of("tenant", &["none"]).is_some();
    let page = parameters.page();
    let mut filters = json!({"state": parameters.one_of("state", &["open", "resolved"])});
    for name in ["provider", "topic"] {
        filters[name] = json!(parameters.filter(name, "must be a name", sender_text));
    }
    for name in ["from", "to"] {
        filters[name] = json!(parameters.filter(name, "must be a time, RFC 3339", instant));
    }
    parameters.finish(if nobodys {
        filters["limit"] = json!(page.limit);
        filters["after"] = json!(page.after);
        Query::new("holdfast.exceptions_of_nobody", filters)
    } else {
        Query::list("inbox_exception", &page, filters)
    })
}

/// A sender's name or topic, as it is compared with stored ones.
fn sender_text(text: &str) -> Option<String> {
    let fits = (1..=FILTER_MAX_CHARS).contains(&text.chars().count()) && !text.contains('\0');
    fits.then(|| text.to_owned())
}

/// Which open exceptions a bulk change is about.
#[derive(Debug)]
pub struct Filter {
    members: Value,
    after: Option<Uuid>,
}

/// Reads the body of a retry by filter: `{"state"?,"provider"?,"topic"?,"from"?,"to"?,"after"?}`. `state` can only be `open`;
/// `after` is the last answer's `next`.
pub fn read_filter(body: &Value) -> Parsed<Filter> {
    let mut errors = Vec::new();
    let filter = Fields::open(body, "", &mut errors).map(|mut fields| {
        let filter = filter(&mut fields, &mut errors);
        fields.finish(&mut errors);
        filter
    });
    filter.filter(|_| errors.is_empty()).ok_or(errors)
}

/// Reads the body of a dismissal by filter: that of a retry, and `reason`, which may be left out.
pub fn read_filter_and_reason(body: &Value) -> Parsed<(Filter, String)> {
    let mut errors = Vec::new();
    let read = Fields::open(body, "", &mut errors).map(|mut fields| {
        let filter = filter(&mut fields, &mut errors);
        let reason = reason(&mut fields, &mut errors);
        fields.finish(&mut errors);
        (filter, reason)
    });
    read.filter(|_| errors.is_empty()).ok_or(errors)
}

/// Reads the body of a dismissal, `{"reason"?}`: 1 … 2,000 characters.
pub fn read_reason(body: &Value) -> Parsed<String> {
    let mut errors = Vec::new();
    let reason = Fields::open(body, "", &mut errors).map(|mut fields| {
        let reason = reason(&mut fields, &mut errors);
        fields.finish(&mut errors);
        reason
    });
    reason.filter(|_| errors.is_empty()).ok_or(errors)
}

fn reason(fields: &mut Fields<'_>, errors: &mut Vec<BodyError>) -> String {
    // An exception without a reason is one that was processed.
    let Some(_) = fields.optional("reason") else { return NO_REASON.to_owned() };
    fields.text("reason", REASON_MAX_CHARS, errors).unwrap_or_default().to_owned()
}

const NO_REASON: &str = "no reason was given";

fn filter(fields: &mut Fields<'_>, errors: &mut Vec<BodyError>) -> Filter {
    let mut members = json!({"state": "open"});
    let mut after = None;
    let mut text =
        |name: &'static str, message: &str, read: &mut dyn FnMut(&str) -> Option<String>| -> Option<String> {
            let value = fields.optional(name).filter(|value| !value.is_null())?;
            let read = value.as_str().and_then(read);
            if read.is_none() {
                fields.wrong(name, message, errors);
            }
            read
        };
    text("state", "must be open: others have ended", &mut |text| (text == "open").then(|| text.to_owned()));
    for name in ["provider", "topic"] {
        members[name] = json!(text(name, "must be a name", &mut sender_text));
    }
    for name in ["from", "to"] {
        members[name] = json!(text(name, "must be a time, RFC 3339", &mut instant));
    }
    text("after", "must be the id of an exception", &mut |text| {
        after = uuid(text);
        after.map(|id| id.to_string())
    });
    Filter { members, after }
}

/// `GET /admin/shortfalls?state=open|settled`, newest first; without `state` all: 200; 400 `invalid_query`.
pub fn shortfalls(query: &[(String, String)]) -> Result<Query, Problem> {
    let mut parameters = Parameters::new(query);
    let (page, state) = (parameters.page(), parameters.one_of("state", &["open", "settled"]));
    parameters.finish(Query::list("shortfall", &page, json!({"state": state})))
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
    let (items, _) = reread(connection, &named("holdfast.exceptions_to_retry")).await?;
    let delivery = items.first().map_or_else(|| json!({}), |item| item["delivery"].clone());
    outcome(connection, &named("holdfast.retry_exception").with("delivery", delivery)).await
}

/// As [`retry`], for the newest open ones that a filter finds: 200 `{"retried","resolved","next"}`; `next` is null where none is
/// left.
pub async fn retry_all(
    connection: &mut PgConnection,
    call: &Call,
    filter: &Filter,
) -> Result<Outcome, sqlx::Error> {
    let argument = json!({"filter": filter.members, "after": filter.after, "limit": RETRIES_MAX});
    let found = call.caller.named_in(Statement::new("holdfast.exceptions_to_retry", argument));
    let (items, more) = reread(connection, &found).await?;
    let retries = Statement::new("holdfast.retry_exceptions", json!({"items": items, "more": more}));
    outcome(connection, &call.caller.named_in(retries)).await
}

/// Reads kept bodies with the present code: `[{"id","provider","delivery"}]`, and whether the filter finds more.
async fn reread(connection: &mut PgConnection, found: &Statement) -> Result<(Vec<Value>, bool), sqlx::Error> {
    let mut items = Vec::new();
    let mut more = false;
    for row in send(connection, found.sql()).await? {
        let (id, provider): (String, String) = (row.try_get("id")?, row.try_get("provider")?);
        let body: Vec<u8> = row.try_get("body")?;
        let delivery = inbox::reread(&provider, row.try_get("topic")?, &body);
        more = row.try_get("more")?;
        items.push(json!({"id": id, "provider": provider, "delivery": delivery}));
    }
    Ok((items, more))
}

/// Ends an exception without processing it: 200 with it; 404; 409 `exception_resolved`.
pub fn dismiss(id: Uuid, reason: &str) -> Statement {
    Statement::new("holdfast.dismiss_exception", json!({"id": id, "reason": reason}))
}

/// As [`dismiss`], for the newest open ones that a filter finds: 200 `{"dismissed","next"}`.
pub fn dismiss_all(filter: &Filter, reason: &str) -> Statement {
    let argument = json!({"filter": filter.members, "after": filter.after, "reason": reason,
        "limit": DISMISSALS_MAX});
    Statement::new("holdfast.dismiss_exceptions", argument)
}

/// Closes a shortfall: 200 with it; 404; 409 `shortfall_settled`. `unbooked` counts units that are gone but still in the
/// position, because they are promised: they are booked out as soon as ATS covers them.
pub fn settle(id: Uuid, note: &str) -> Statement {
    Statement::new("holdfast.settle_shortfall", json!({"id": id, "note": note}))
}
