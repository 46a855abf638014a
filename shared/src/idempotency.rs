//! A repeat is harmless: the key's row, the work, its ledger lines and events, and the recorded answer commit in one
//! transaction, or none of them does.
//!
//! Promises: for one (tenant, key) the work commits at most once; an equal request gets the recorded bytes, another
//! request 422, one that is still running 409 at once. There is no `in_progress` state, no lease and no takeover: a
//! committed key is a finished one, and a dead attempt's claim dies with its transaction.
//! Relies on `holdfast.claim` and `holdfast.record`, on READ COMMITTED, and on the role's time-outs, which end a dead
//! client's transaction within 15 s.
//! Does not promise anything for a key that was reaped, nor past an asynchronous failover that lost the commit.
//!
//! Two spellings of one mechanism, and nothing else commits: [`once_fused`] where one SQL function does it all in one
//! message, [`once`] around any closure over the open transaction.

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::auth::Caller;
use crate::db::{Db, DbError};
use crate::error::Problem;
use crate::http::Answer;
use crate::json::{BodyError, fingerprint};

/// What identifies one keyed request.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who sent it.
    pub caller: Caller,
    /// The unquoted key.
    pub key: String,
    /// The method.
    pub method: String,
    /// The decoded path without stage.
    pub path: String,
    /// SHA-256 over method, path, base version and canonical body.
    pub hash: [u8; 32],
}

impl Call {
    /// Fingerprints a request. `base_version` is empty where the route has none.
    pub fn new(
        caller: Caller,
        key: String,
        method: &str,
        path: String,
        base_version: &str,
        body: &Value,
    ) -> Self {
        let hash = fingerprint(method, &path, base_version, body);
        Self { caller, key, method: method.to_owned(), path, hash }
    }

    /// The argument that `holdfast.claim` and `holdfast.record` take.
    pub fn to_json(&self) -> Value {
        let tenant_id = self.caller.tenant_id.to_string();
        let key_parts = [tenant_id.as_bytes(), self.key.as_bytes()];
        json!({
            "tenantId": tenant_id,
            "userId": self.caller.user_id,
            "actor": self.caller.actor,
            "key": self.key,
            "method": self.method,
            "path": self.path,
            "hash": hex::encode(self.hash),
            "lockRequest": lock_id(&[key_parts[0], key_parts[1], &self.hash]),
            "lockKey": lock_id(&key_parts),
        })
    }
}

/// An advisory lock's id: the first 8 bytes of a SHA-256. A collision costs a 409 that a retry mends.
fn lock_id(parts: &[&[u8]]) -> i64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let [a, b, c, d, e, f, g, h, ..] = digest;
    i64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// What the work decided; see `holdfast.outcome` for the members.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// HTTP status; a success or a business refusal, never 5xx.
    pub status: i32,
    /// Code of a refusal.
    pub error: Option<String>,
    /// Sentence of a refusal.
    pub detail: Option<String>,
    /// The whole document of a success, or a refusal's further members as a JSON fragment.
    pub content: Option<String>,
    /// `ETag`, quotes included.
    pub etag: Option<String>,
    /// `Location`.
    pub location: Option<String>,
}

impl Outcome {
    /// Decodes the row of a function that returns `holdfast.outcome`.
    ///
    /// # Errors
    /// A column that is missing or of another type.
    pub fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            status: row.try_get("status")?,
            error: row.try_get("error")?,
            detail: row.try_get("detail")?,
            content: row.try_get("content")?,
            etag: row.try_get("etag")?,
            location: row.try_get("location")?,
        })
    }
}

impl Outcome {
    /// The `errors` of a refusal of status 400.
    fn body_errors(&self) -> Result<Vec<BodyError>, sqlx::Error> {
        #[derive(serde::Deserialize)]
        struct Members {
            errors: Vec<BodyError>,
        }
        let members = format!("{{{}}}", self.content.as_deref().unwrap_or_default());
        serde_json::from_str::<Members>(&members)
            .map(|m| m.errors)
            .map_err(|e| sqlx::Error::Decode(Box::new(e)))
    }
}

/// A value as one argument of a simple-protocol message: hex digits only, so there is nothing to escape, and no
/// prepared statement that a pooler would have to know.
pub fn literal(value: &Value) -> String {
    format!("holdfast.json('\\x{}')", hex::encode(value.to_string()))
}

/// Runs `function(call)` — claim, work and record in one statement — as one message and one commit.
///
/// # Errors
/// 401, 409, 422 of the key itself; 503, 500 of the database. Nothing was changed then.
pub async fn once_fused(
    db: &Db,
    function: &'static str,
    call: &Call,
    arguments: Value,
) -> Result<Answer, Problem> {
    let mut argument = call.to_json();
    if let (Value::Object(members), Value::Object(more)) = (&mut argument, arguments) {
        members.extend(more);
    }
    let rows = db.send(format!("select * from {function}({})", literal(&argument))).await?;
    decide(only(rows)?)?
}

/// The work of a keyed request, in the open transaction; `context` is what it was given.
pub type Deed<C> =
    for<'c> fn(&'c mut PgConnection, &'c Call, &'c C) -> BoxFuture<'c, Result<Outcome, sqlx::Error>>;

/// Runs `work` once under the key, in the wrapper's transaction. `work` may neither commit nor keep anything outside
/// the transaction: it runs again when the transaction does. A refusal (any outcome with an `error`) is recorded; what
/// it had written is rolled back.
///
/// Three messages around and with the work's own: BEGIN with the claim; the work; the record with COMMIT.
///
/// # Errors
/// 401, 409, 422 of the key itself; 503, 500 of the database or of `work`. Nothing was changed then.
pub async fn once<C: Sync>(db: &Db, call: &Call, context: &C, work: Deed<C>) -> Result<Answer, Problem> {
    let once = Once { call, claim: literal(&call.to_json()), context, work };
    db.run(&once, |connection, once| Box::pin(once.attempt(connection))).await?
}

struct Once<'r, C> {
    call: &'r Call,
    claim: String,
    context: &'r C,
    work: Deed<C>,
}

impl<C: Sync> Once<'_, C> {
    async fn attempt(&self, connection: &mut PgConnection) -> Result<Result<Answer, Problem>, DbError> {
        let claim = &self.claim;
        let open = format!("begin; select * from holdfast.claim({claim}); savepoint work");
        let verdict = only(send(connection, open).await?)?;
        if verdict.try_get::<&str, _>("decision")? != "run" {
            send(connection, "rollback".into()).await?;
            return decide(verdict);
        }
        let outcome = (self.work)(connection, self.call, self.context).await?;
        if outcome.status == 400 {
            // What the body asks for does not fit what is stored: as any other 400, it leaves the key unused.
            send(connection, "rollback".into()).await?;
            return Ok(Err(Problem::invalid_body(&outcome.body_errors()?)));
        }
        let undo = if outcome.error.is_some() { "rollback to savepoint work; " } else { "" };
        let outcome = literal(&json!(outcome));
        let record = format!(
            "{undo}select * from holdfast.record({claim}, jsonb_populate_record(null::holdfast.outcome, {outcome})); \
             commit"
        );
        decide(only(send(connection, record).await?)?)
    }
}

/// One simple-protocol message. The whole answer is read, so that an error behind a row, such as a commit's, is seen.
async fn send(connection: &mut PgConnection, message: String) -> Result<Vec<PgRow>, sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(message)).fetch_all(connection).await
}

fn only(rows: Vec<PgRow>) -> Result<PgRow, sqlx::Error> {
    rows.into_iter().next().ok_or(sqlx::Error::RowNotFound)
}

/// From a `holdfast.answer` row to the answer or the key's own problem.
fn decide(row: PgRow) -> Result<Result<Answer, Problem>, DbError> {
    let decision: &str = row.try_get("decision")?;
    Ok(match decision {
        "unknown_user" => Err(Problem::unauthenticated()),
        "reused" => Err(Problem::key_reused()),
        "in_use" => Err(Problem::key_in_use()),
        "answer" | "replay" => Ok(Answer {
            status: u16::try_from(row.try_get::<i32, _>("status")?)
                .map_err(|e| sqlx::Error::Decode(Box::new(e)))?,
            body: row.try_get("body")?,
            content_type: row.try_get("content_type")?,
            etag: row.try_get("etag")?,
            location: row.try_get("location")?,
            replayed: decision == "replay",
        }),
        other => return Err(sqlx::Error::Decode(format!("unknown decision {other}").into()).into()),
    })
}
