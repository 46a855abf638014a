//! What every endpoint function does around its own work.
//!
//! Promises: checks in the order of the contract: credentials (401), scope (403), size (413), key (400), body (400); none of
//! these refusals uses the key. Every request is answered within 6.5 s, logged and counted.
//! Relies on: the claim or the read to check that the user exists, if the request passes all checks.

use std::time::Duration;

use http::Method;
use lambda_http::{Body, Request, Response};
use serde_json::{Value, json};
use sqlx::Row;

use crate::db::call::Statement;
use crate::db::connection::Db;
use crate::db::error::DbError;
use crate::db::run::RequestScope;
use crate::http::answered::answered;
use crate::http::auth::{Auth, Caller};
use crate::http::event::{Answer, Incoming, MAX_BODY_BYTES};
use crate::http::json::BodyError;
use crate::http::problem::Problem;
use crate::http::query::Query;
use crate::http::route::{Access, Matched, Route, dispatch};
use crate::idempotency::key;
use crate::idempotency::once::Call;
use crate::idempotency::precondition::Precondition;
use crate::runtime::config::{AuthConfig, ConfigError, DatabaseConfig};
use crate::runtime::request_log;

/// A sandbox's state, built once at cold start.
pub struct Endpoint {
    /// Verifies the credentials of requests.
    pub auth: Auth,
    /// Connected as the role of the endpoint functions.
    pub db: Db,
}

/// Limit for a whole request: 503 must be answered within 7 s. Its database work ends before that.
const REQUEST_DEADLINE: Duration = Duration::from_millis(6_800);

/// The content of a body, or every mistake in it.
pub type Parsed<T> = Result<T, Vec<BodyError>>;

impl Endpoint {
    /// Fails if the JWT secret or the database URL cannot be used.
    pub fn new(auth: &AuthConfig, database: &DatabaseConfig) -> Result<Self, ConfigError> {
        let db =
            Db::new(database).map_err(|error| ConfigError::new("APP_DATABASE_URL", error.to_string()))?;
        Ok(Self { auth: Auth::new(auth)?, db })
    }

    /// Reads the environment and opens the connection.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let endpoint = Self::new(&AuthConfig::from_env()?, &DatabaseConfig::app()?)?;
        futures_util::future::join(endpoint.auth.warm(), endpoint.db.warm()).await;
        Ok(endpoint)
    }

    /// Runs `work`, logs and counts the result and renders it; 503 after the deadline.
    pub async fn respond(
        &self,
        incoming: &Incoming,
        work: impl Future<Output = Result<Answer, Problem>>,
    ) -> Response<Body> {
        let scope = RequestScope::begin();
        let limited = async {
            let done = tokio::time::timeout(REQUEST_DEADLINE, scope.clone().run(work)).await;
            done.unwrap_or_else(|_| Err(too_late(incoming)))
        };
        let (result, seen) = request_log::watch(limited).await;
        answered(incoming, result, seen, scope.database_ms())
    }

    /// Routes one event and answers it; `state` is passed to the handlers.
    pub async fn serve<S>(&self, state: &S, routes: &[Route<S>], request: Request) -> Response<Body> {
        let incoming = Incoming::read(request);
        self.respond(&incoming, dispatch(state, routes, &incoming)).await
    }

    /// Checks a request that has an idempotency key and changes nothing that has a version; `read` reads its body. `If-Match`
    /// then matches nothing: 412, which leaves the key unused.
    pub async fn mutation<T>(
        &self,
        request: &Matched<'_>,
        read: impl FnOnce(&Value) -> Parsed<T>,
    ) -> Result<(Call, T), Problem> {
        self.check(request, |body| {
            let command = read(body).map_err(|errors| Problem::invalid_body(&errors))?;
            match Precondition::optional(&request.incoming.headers) {
                Some(_) => Err(Problem::nothing_to_match()),
                None => Ok((command, None)),
            }
        })
        .await
    }

    /// As [`Endpoint::mutation`], for a route about a versioned document that needs no version: `If-Match` is honoured where it
    /// is sent. The call's argument then holds it as `match`.
    pub async fn matched_mutation<T>(
        &self,
        request: &Matched<'_>,
        read: impl FnOnce(&Value) -> Parsed<T>,
    ) -> Result<(Call, T), Problem> {
        self.check(request, |body| {
            let command = read(body).map_err(|errors| Problem::invalid_body(&errors))?;
            Ok((command, Precondition::optional(&request.incoming.headers)))
        })
        .await
    }

    /// As [`Endpoint::mutation`], for a save of a versioned document. `read` also returns the body's `baseVersion`; then 428
    /// `version_required` and 400 `version_mismatch`.
    pub async fn versioned_mutation<T>(
        &self,
        request: &Matched<'_>,
        read: impl FnOnce(&Value) -> Parsed<(T, Option<i64>)>,
    ) -> Result<(Call, T), Problem> {
        self.check(request, |body| {
            let (command, base_version) = read(body).map_err(|errors| Problem::invalid_body(&errors))?;
            Ok((command, Some(Precondition::read(&request.incoming.headers, base_version)?)))
        })
        .await
    }

    async fn check<T>(
        &self,
        request: &Matched<'_>,
        read: impl FnOnce(&Value) -> Result<(T, Option<Precondition>), Problem>,
    ) -> Result<(Call, T), Problem> {
        let incoming = request.incoming;
        let caller = self.auth.caller(incoming, &self.db).await?;
        let checked = check_scope(&caller, request.access).and_then(|()| {
            let path = request.path()?;
            check_size(incoming)?;
            let key = key::read(&incoming.headers)?;
            let body = incoming.json().map_err(|error| Problem::invalid_body(&[error]))?;
            let (command, precondition) = read(&body)?;
            Ok((Call::new(caller.clone(), key, incoming.method.as_str(), path, precondition, &body), command))
        });
        self.unknown_user_first(&caller, checked).await
    }

    /// Answers a read: 401, 403, 413, then the refusals of `query` and of the database.
    pub async fn read(
        &self,
        request: &Matched<'_>,
        query: impl FnOnce(&Matched<'_>) -> Result<Query, Problem>,
    ) -> Result<Answer, Problem> {
        let caller = self.auth.caller(request.incoming, &self.db).await?;
        let query = check_scope(&caller, request.access).and_then(|()| {
            check_size(request.incoming)?;
            query(request)
        });
        self.unknown_user_first(&caller, query).await?.answer(&self.db, &caller).await
    }

    /// For an unknown user 401 takes precedence over every other refusal. If the request is well formed, the claim or the read
    /// looks for the user; only a refusal before it needs its own query.
    async fn unknown_user_first<T>(
        &self,
        caller: &Caller,
        checked: Result<T, Problem>,
    ) -> Result<T, Problem> {
        let problem = match checked {
            Ok(value) => return Ok(value),
            Err(problem) => problem,
        };
        if self.user_exists(caller).await? { Err(problem) } else { Err(Problem::unauthenticated()) }
    }

    async fn user_exists(&self, caller: &Caller) -> Result<bool, DbError> {
        let who = caller.named_in(Statement::new("holdfast.is_user", json!({})));
        Ok(self.db.call_one(&who).await?.try_get("is_user")?)
    }
}

/// A read changes nothing; what became of anything else is not known.
fn too_late(incoming: &Incoming) -> Problem {
    if incoming.method == Method::GET { Problem::unavailable() } else { Problem::outcome_unknown() }
}

fn check_scope(caller: &Caller, access: Access) -> Result<(), Problem> {
    match access {
        Access::Scope(scope) if !caller.may(scope) => Err(Problem::forbidden(scope.name())),
        _ => Ok(()),
    }
}

fn check_size(incoming: &Incoming) -> Result<(), Problem> {
    if incoming.body.len() > MAX_BODY_BYTES { Err(Problem::body_too_large()) } else { Ok(()) }
}
