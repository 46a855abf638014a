//! What needs a person: signed events that could not be processed, and units that are promised but not there.
//!
//! Promises: a retry runs the kept event through the very code that receives one, in one transaction, and moves only what
//! was not moved before; nothing here is decided outside a lock.
//! Relies on: `holdfast.list_exceptions`, `holdfast.list_shortfalls`, `holdfast.retry_exception`,
//! `holdfast.settle_shortfall`; `idempotency::once` around the two deeds.

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use crate::auth::Caller;
use crate::db::Db;
use crate::endpoint::Parsed;
use crate::error::Problem;
use crate::fields::{Fields, uuid};
use crate::http::Answer;
use crate::idempotency::{Call, Outcome, literal};
use crate::inbox;
use crate::json::BodyError;
use crate::orders::outcome;
use crate::reads::{Page, Parameters};

/// Characters of the note that settles a shortfall.
const MAX_NOTE: usize = 2_000;

/// `GET /admin/exceptions` or `GET /admin/shortfalls`: which part of which list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    function: &'static str,
    page: Page,
    state: Option<&'static str>,
}

impl List {
    /// `GET /admin/exceptions?state=open|resolved&limit=&after=`, newest first; without `state` all of them. Items:
    /// `{"id","provider","eventId","topic","reason","waitsFor","attempts","receivedAt","lastTriedAt","resolvedAt",
    /// "resolvedBy","redactedAt","sizeBytes","excerpt"}`; `excerpt` is the beginning of the raw body, bytes that are not ASCII as
    /// `\ooo`.
    ///
    /// # Errors
    /// 400 `invalid_query`, every wrong parameter named.
    pub fn exceptions(query: &[(String, String)]) -> Result<Self, Problem> {
        Self::read("holdfast.list_exceptions", &["open", "resolved"], query)
    }

    /// `GET /admin/shortfalls?state=open|settled&limit=&after=`, newest first; without `state` all of them. Items:
    /// `{"id","skuId","code","qty","cause","openedAt","updatedAt","settledAt","settledBy","note","unbooked"}`.
    ///
    /// # Errors
    /// 400 `invalid_query`, every wrong parameter named.
    pub fn shortfalls(query: &[(String, String)]) -> Result<Self, Problem> {
        Self::read("holdfast.list_shortfalls", &["open", "settled"], query)
    }

    fn read(
        function: &'static str,
        states: &[&'static str],
        query: &[(String, String)],
    ) -> Result<Self, Problem> {
        let mut parameters = Parameters::new(query);
        let (page, state) = (parameters.page(), parameters.one_of("state", states));
        parameters.finish(Self { function, page, state })
    }

    /// Answers it in one message.
    ///
    /// # Errors
    /// 401 for a user who is not there; 400 `invalid_query` for an `after` that is not there; 503.
    pub async fn answer(&self, db: &Db, caller: &Caller) -> Result<Answer, Problem> {
        let argument = json!({"tenantId": caller.tenant_id, "userId": caller.user_id, "limit": self.page.limit,
            "after": self.page.after, "state": self.state});
        let rows = db.send(format!("select * from {}({})", self.function, literal(&argument))).await?;
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
            _ => Err(Problem::invalid_query(&[BodyError {
                path: "after".into(),
                message: "is not an item of this list".into(),
            }])),
        }
    }
}

/// The id of an exception or a shortfall from its path segment.
///
/// # Errors
/// 404 `not_found` where it is no UUID.
pub fn id(segment: &str) -> Result<Uuid, Problem> {
    uuid(segment).ok_or_else(Problem::not_found)
}

/// Reads the body of a settlement, `{"note"}`: 1 … 2,000 characters.
///
/// # Errors
/// Every mistake, each with its place.
pub fn read_note(body: &Value) -> Parsed<String> {
    let mut errors = Vec::new();
    let mut note = None;
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        if !fields.has("note") {
            fields.wrong("note", "is required", &mut errors);
        }
        note = fields.nullable_text("note", MAX_NOTE, &mut errors).and_then(Value::as_str).map(str::to_owned);
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

/// The deed of `POST /admin/exceptions/{id}/retry` (body `{}`), for `idempotency::once`: runs the kept event once more.
/// 200 with the exception as it then stands (`resolvedAt` null and a new `reason` where it still cannot be processed;
/// `excerpt` null, since answers are recorded and a person may have to be erased);
/// 404 `not_found`; 409 `exception_resolved`.
///
/// # Errors
/// Of the statements; nothing was changed then.
pub async fn retry(
    connection: &mut PgConnection,
    call: &Call,
    exception: &Uuid,
) -> Result<Outcome, sqlx::Error> {
    let tenant_id = call.caller.tenant_id;
    let sql = format!("select * from holdfast.exception_to_retry('{tenant_id}', '{exception}')");
    let kept = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_optional(&mut *connection).await?;
    let delivery = match kept {
        Some(row) => {
            let body: Vec<u8> = row.try_get("body")?;
            inbox::reread(row.try_get("provider")?, row.try_get("topic")?, &body)
        }
        None => Value::Null,
    };
    let (actor, delivery) = (literal(&json!(call.caller.actor)), literal(&delivery));
    let sql = format!(
        "select * from holdfast.retry_exception('{tenant_id}', '{exception}', {actor} #>> '{{}}', {delivery})"
    );
    outcome(connection, sql).await
}

/// What a person says of a shortfall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The shortfall.
    pub id: Uuid,
    /// How it was settled.
    pub note: String,
}

/// The deed of `POST /admin/shortfalls/{id}/settle`, for `idempotency::once`: closes it. 200 with the shortfall; `unbooked`
/// is what the position still carries too many, since it is promised: booked as soon as ATS covers it. 404 `not_found`; 409
/// `shortfall_settled`.
///
/// # Errors
/// Of the statement; nothing was changed then.
pub async fn settle(
    connection: &mut PgConnection,
    call: &Call,
    settlement: &Settlement,
) -> Result<Outcome, sqlx::Error> {
    let (tenant_id, id) = (call.caller.tenant_id, settlement.id);
    let (actor, note) = (literal(&json!(call.caller.actor)), literal(&json!(settlement.note)));
    let sql = format!(
        "select * from holdfast.settle_shortfall('{tenant_id}', '{id}', {actor} #>> '{{}}', {note} #>> '{{}}')"
    );
    outcome(connection, sql).await
}
