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
//! Two variants of one mechanism, and nothing else commits: [`once_fused`], where one SQL function does all of it in one
//! statement, and [`once`], several statements in one transaction.

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::db::call::{Outcome, Statement, only, outcome, send};
use crate::db::connection::{Db, DbError};
use crate::http::auth::Caller;
use crate::http::event::Answer;
use crate::http::json::{BodyError, fingerprint};
use crate::http::problem::Problem;

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

    /// The statement with the members of this call beside its own.
    fn named_in(&self, statement: Statement) -> Statement {
        let call = self.to_json();
        let members = call.as_object().into_iter().flatten();
        members.fold(statement, |statement, (name, value)| statement.with(name, value))
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

/// Runs one SQL function that claims, works and records, as one message and one commit. Its argument is `statement`'s
/// with the members of the call.
///
/// # Errors
/// 401, 409, 422 of the key itself; 503, 500 of the database. Nothing was changed then.
pub async fn once_fused(db: &Db, call: &Call, statement: Statement) -> Result<Answer, Problem> {
    decide(db.call_one(&call.named_in(statement)).await?)?
}

/// Runs one SQL function once under the key, in a transaction with its claim and its record. Its argument is `statement`'s
/// with the members of the call; it returns `holdfast.outcome`.
///
/// # Errors
/// 401, 409, 422 of the key itself; 503, 500 of the database. Nothing was changed then.
pub async fn once(db: &Db, call: &Call, statement: Statement) -> Result<Answer, Problem> {
    once_with(db, call, &call.named_in(statement), |connection, _, statement| {
        Box::pin(outcome(connection, statement))
    })
    .await
}

/// The work of a keyed request, in the open transaction; `context` is what it was given.
pub type Work<C> =
    for<'c> fn(&'c mut PgConnection, &'c Call, &'c C) -> BoxFuture<'c, Result<Outcome, sqlx::Error>>;

/// As [`once`], for work of more than one statement. `work` may neither commit nor keep anything outside the
/// transaction: it runs again when the transaction does. A refusal (any outcome with an `error`) is recorded; what it had
/// written is rolled back.
///
/// Three messages around and with the work's own: BEGIN with the claim; the work; the record with COMMIT.
///
/// # Errors
/// 401, 409, 422 of the key itself; 503, 500 of the database or of `work`. Nothing was changed then.
pub async fn once_with<C: Sync>(db: &Db, call: &Call, context: &C, work: Work<C>) -> Result<Answer, Problem> {
    let keyed = Keyed { call, context, work };
    db.run(&keyed, |connection, keyed| Box::pin(keyed.attempt(connection))).await?
}

struct Keyed<'r, C> {
    call: &'r Call,
    context: &'r C,
    work: Work<C>,
}

impl<C: Sync> Keyed<'_, C> {
    async fn attempt(&self, connection: &mut PgConnection) -> Result<Result<Answer, Problem>, DbError> {
        let call = self.call.to_json();
        let claim = Statement::new("holdfast.claim", call.clone()).sql();
        let claimed = only(send(connection, format!("begin; {claim}; savepoint work")).await?)?;
        if claimed.try_get::<&str, _>("decision")? != "run" {
            send(connection, "rollback".into()).await?;
            return decide(claimed);
        }
        let outcome = (self.work)(connection, self.call, self.context).await?;
        if outcome.status == 400 {
            // What the body asks for does not fit what is stored: as any other 400, it leaves the key unused.
            send(connection, "rollback".into()).await?;
            return Ok(Err(Problem::invalid_body(&body_errors(&outcome)?)));
        }
        let undo = if outcome.error.is_some() { "rollback to savepoint work; " } else { "" };
        let record =
            Statement::new("holdfast.record_outcome", json!({"call": call, "outcome": outcome})).sql();
        decide(only(send(connection, format!("{undo}{record}; commit")).await?)?)
    }
}

/// The `errors` of a refusal of status 400.
fn body_errors(refusal: &Outcome) -> Result<Vec<BodyError>, sqlx::Error> {
    #[derive(serde::Deserialize)]
    struct Members {
        errors: Vec<BodyError>,
    }
    let members = format!("{{{}}}", refusal.content.as_deref().unwrap_or_default());
    let read: Result<Members, _> = serde_json::from_str(&members);
    read.map(|members| members.errors).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

/// From a `holdfast.answer` row to the answer or the key's own problem.
fn decide(row: PgRow) -> Result<Result<Answer, Problem>, DbError> {
    let decision: &str = row.try_get("decision")?;
    Ok(match decision {
        "unknown_user" => Err(Problem::unauthenticated()),
        "reused" => Err(Problem::key_reused()),
        "in_use" => Err(Problem::key_in_use()),
        "answer" | "replay" => {
            let status = row.try_get::<i32, _>("status")?;
            let status = u16::try_from(status).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            Ok(Answer {
                etag: row.try_get("etag")?,
                location: row.try_get("location")?,
                replayed: decision == "replay",
                ..Answer::new(
                    status,
                    row.try_get::<String, _>("content_type")?,
                    row.try_get::<Vec<u8>, _>("body")?,
                )
            })
        }
        other => return Err(sqlx::Error::Decode(format!("unknown decision {other}").into()).into()),
    })
}
