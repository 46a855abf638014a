//! Keyed work: the key's row, the work with its ledger lines and events, and the recorded answer commit in one transaction,
//! or none of them does.
//!
//! Promises: for one (tenant, key) the work commits at most once. An equal request gets the recorded bytes, a different one
//! 422; while an equal one is running, 409 at once. There is no `in_progress` state, no lease and no takeover: a committed
//! key is a finished one, and the claim of a dead attempt ends with its transaction.
//! Relies on: `holdfast.claim` and `holdfast.record_key`, READ COMMITTED, and the role's timeouts, which end the transaction of
//! a dead client within 15 s.
//! Does not promise anything for a key that was reaped, or after an asynchronous failover that lost the commit.
//!
//! Two variants, single-statement ([`once_fused`]) and multi-statement ([`once`]); nothing else commits keyed work.

use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use crate::db::call::{Outcome, Statement, first_row, outcome, send};
use crate::db::connection::Db;
use crate::db::error::DbError;
use crate::db::run::Run;
use crate::http::auth::Caller;
use crate::http::event::Answer;
use crate::http::json::{BodyError, fingerprint};
use crate::http::problem::Problem;
use crate::idempotency::precondition::Precondition;

/// A keyed request.
#[derive(Clone, Debug)]
pub struct Call {
    pub(crate) caller: Caller,
    key: String,
    method: String,
    /// In canonical form, see `Matched::path`.
    path: String,
    precondition: Option<Precondition>,
    /// SHA-256 over method, path, precondition and canonical body.
    fingerprint: [u8; 32],
}

impl Call {
    pub(crate) fn new(
        caller: Caller,
        key: String,
        method: &str,
        path: String,
        precondition: Option<Precondition>,
        body: &Value,
    ) -> Self {
        let base_version = precondition.as_ref().map(Precondition::fingerprinted).unwrap_or_default();
        let fingerprint = fingerprint(method, &path, &base_version, body);
        Self { caller, key, method: method.to_owned(), path, precondition, fingerprint }
    }

    fn named_in(&self, statement: Statement) -> Statement {
        let call = self.to_json();
        let members = call.as_object().into_iter().flatten();
        members.fold(statement, |statement, (name, value)| statement.with(name, value))
    }

    /// The argument of `holdfast.claim` and `holdfast.record_key`; `match` is for the work (`holdfast.matches`), null without one.
    pub(crate) fn to_json(&self) -> Value {
        let tenant_id = self.caller.tenant_id.to_string();
        let key_parts = [tenant_id.as_bytes(), self.key.as_bytes()];
        json!({
            "tenantId": tenant_id,
            "userId": self.caller.user_id,
            "actor": self.caller.actor,
            "key": self.key,
            "method": self.method,
            "path": self.path,
            "match": self.precondition.as_ref().map(Precondition::to_json),
            "hash": hex::encode(self.fingerprint),
            "lockRequest": lock_id(&[key_parts[0], key_parts[1], &self.fingerprint]),
            "lockKey": lock_id(&key_parts),
        })
    }
}

/// The id of an advisory lock: the first 8 bytes of a SHA-256. A collision of two running requests gives one of them a wrong
/// 409 or 422; nothing is recorded, and a retry succeeds.
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

/// Single-statement variant: one SQL function claims, works and records, in one message and one commit. Adds the call's
/// members to the argument. 401, 409, 422 of the key and 500, 503 `unavailable` of the database changed nothing; 503
/// `outcome_unknown` says that it was done once or not at all.
pub async fn once_fused(db: &Db, call: &Call, statement: Statement) -> Result<Answer, Problem> {
    let sql = call.named_in(statement).sql();
    db.run(&sql, |connection, run, sql| {
        Box::pin(async move {
            let message = format!("{}{sql}", run.server_limit());
            run.commits();
            answer_of_row(run, first_row(send(connection, message).await?)?)
        })
    })
    .await?
}

/// Multi-statement variant: one transaction with the claim, `statement` and the record. Adds the call's members to the
/// argument of `statement`, which returns `holdfast.outcome`. Problems as [`once_fused`].
pub async fn once(db: &Db, call: &Call, statement: Statement) -> Result<Answer, Problem> {
    once_with(db, call, &call.named_in(statement), |connection, _, statement| {
        Box::pin(outcome(connection, statement))
    })
    .await
}

/// The work of a keyed request in its open transaction; the last argument is the `context` of [`once_with`].
pub type KeyedWork<C> =
    for<'c> fn(&'c mut PgConnection, &'c Call, &'c C) -> BoxFuture<'c, Result<Outcome, sqlx::Error>>;

/// As [`once`], for work of several statements. `work` must not commit or keep anything outside the transaction, since it runs
/// again if the transaction is retried. A refusal (an outcome with an `error`) is recorded, its writes are rolled back.
///
/// Messages: BEGIN with the claim; those of the work; the record with COMMIT.
pub async fn once_with<C: Sync>(
    db: &Db,
    call: &Call,
    context: &C,
    work: KeyedWork<C>,
) -> Result<Answer, Problem> {
    let keyed = Keyed { call, context, work };
    db.run(&keyed, |connection, run, keyed| Box::pin(keyed.attempt(connection, run))).await?
}

struct Keyed<'r, C> {
    call: &'r Call,
    context: &'r C,
    work: KeyedWork<C>,
}

impl<C: Sync> Keyed<'_, C> {
    async fn attempt(
        &self,
        connection: &mut PgConnection,
        run: &Run,
    ) -> Result<Result<Answer, Problem>, DbError> {
        let call = self.call.to_json();
        let claim = Statement::new("holdfast.claim", call.clone()).sql();
        let claimed = first_row(
            send(connection, format!("begin; {}{claim}; savepoint work", run.server_limit())).await?,
        )?;
        if claimed.try_get::<&str, _>("decision")? != "run" {
            send(connection, "rollback".into()).await?;
            return answer_of_row(run, claimed);
        }
        let outcome = (self.work)(connection, self.call, self.context).await?;
        if outcome.status == 400 {
            // The body does not fit the stored document. As every 400, this leaves the key unused.
            send(connection, "rollback".into()).await?;
            return Ok(Err(Problem::invalid_body(&body_errors(&outcome)?)));
        }
        let undo = if outcome.error.is_some() { "rollback to savepoint work; " } else { "" };
        let record =
            Statement::new("holdfast.record_outcome", json!({"call": call, "outcome": outcome})).sql();
        let message = format!("{undo}{}{record}; commit", run.server_limit());
        run.commits();
        answer_of_row(run, first_row(send(connection, message).await?)?)
    }
}

fn body_errors(refusal: &Outcome) -> Result<Vec<BodyError>, sqlx::Error> {
    #[derive(serde::Deserialize)]
    struct Members {
        errors: Vec<BodyError>,
    }
    let members = format!("{{{}}}", refusal.content.as_deref().unwrap_or_default());
    let read: Result<Members, _> = serde_json::from_str(&members);
    read.map(|members| members.errors).map_err(|error| sqlx::Error::Decode(Box::new(error)))
}

fn answer_of_row(run: &Run, row: PgRow) -> Result<Result<Answer, Problem>, DbError> {
    let decision: &str = row.try_get("decision")?;
    Ok(match decision {
        "unknown_user" => Err(Problem::unauthenticated()),
        "reused" => Err(Problem::key_reused()),
        "in_use" if run.lost_connection() => return Err(DbError::KeyHeld),
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
