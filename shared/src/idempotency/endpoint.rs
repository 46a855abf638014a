//! What every endpoint function does around its own work: who is calling, may they, and is the request well formed, in
//! the order the contract gives: credentials (401), scope (403), size (413), key (400), body (400).

use std::time::Duration;

use lambda_http::{Body, Request, Response};
use serde_json::{Value, json};
use sqlx::Row;

use crate::db::call::Statement;
use crate::db::connection::{Db, DbError};
use crate::http::auth::{Auth, Caller};
use crate::http::event::{Answer, Incoming, MAX_BODY_BYTES, respond};
use crate::http::json::{BodyError, parse};
use crate::http::problem::Problem;
use crate::http::query::Query;
use crate::http::route::{Access, Matched, Route, dispatch};
use crate::idempotency::key;
use crate::idempotency::once::Call;
use crate::idempotency::precondition::Precondition;
use crate::runtime::config::{AuthConfig, ConfigError, DatabaseConfig};

/// A sandbox's state: made once at cold start.
pub struct Endpoint {
    /// Verifies credentials.
    pub auth: Auth,
    /// The one connection, in the role of the endpoint functions.
    pub db: Db,
}

/// All that a request may take, a credential's look-up included: "unavailable" is answered within 7 s.
const REQUEST_DEADLINE: Duration = Duration::from_millis(6_500);

/// What a route makes of a body that is strict JSON.
pub type Parsed<T> = Result<T, Vec<BodyError>>;

impl Endpoint {
    /// From parsed configuration.
    ///
    /// # Errors
    /// A secret or an address that cannot be used.
    pub fn new(auth: &AuthConfig, database: &DatabaseConfig) -> Result<Self, ConfigError> {
        let db = Db::new(database).map_err(|_| ConfigError::new("APP_DATABASE_URL", "is wrong"))?;
        Ok(Self { auth: Auth::new(auth)?, db })
    }

    /// From the environment, with the connection opened: the cold start of an endpoint function.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let endpoint = Self::new(&AuthConfig::from_env()?, &DatabaseConfig::app()?)?;
        endpoint.db.warm().await;
        Ok(endpoint)
    }

    /// Answers one request within [`REQUEST_DEADLINE`]: runs its work, logs it and renders its answer or refusal.
    pub async fn respond(
        &self,
        incoming: &Incoming,
        work: impl Future<Output = Result<Answer, Problem>>,
    ) -> Response<Body> {
        let result = tokio::time::timeout(REQUEST_DEADLINE, work)
            .await
            .unwrap_or_else(|_| Err(Problem::unavailable()));
        let (status, error, replayed) = match &result {
            Ok(answer) => (answer.status, None, answer.replayed),
            Err(problem) => (problem.status, Some(problem.error), false),
        };
        tracing::info!(request_id = %incoming.request_id, method = %incoming.method,
            path = %incoming.segments.join("/"), status, error, replayed, "answered");
        let allocation = incoming.segments.last().is_some_and(|last| last == "allocate");
        crate::runtime::metrics::of_answer(allocation, status, error, replayed).write();
        respond(result, &incoming.request_id)
    }

    /// Serves one event by the function's table of routes; `state` is what its handlers get.
    pub async fn serve<S>(&self, state: &S, routes: &[Route<S>], request: Request) -> Response<Body> {
        let incoming = Incoming::read(request);
        self.respond(&incoming, dispatch(state, routes, &incoming)).await
    }

    /// Admits a keyed mutation: its call, and what `read` makes of its body.
    ///
    /// # Errors
    /// The first refusal in the contract's order; none of them touches the key.
    pub async fn mutation<T>(
        &self,
        request: &Matched<'_>,
        read: impl FnOnce(&Value) -> Parsed<T>,
    ) -> Result<(Call, T), Problem> {
        self.admit(request, |body| {
            Ok((read(body).map_err(|errors| Problem::invalid_body(&errors))?, String::new()))
        })
        .await
    }

    /// Admits a save of a versioned document: `read` gives the command and the `baseVersion` of the body, if any.
    ///
    /// # Errors
    /// As [`Endpoint::mutation`], then 428 and 400 of the version.
    pub async fn versioned_mutation<T>(
        &self,
        request: &Matched<'_>,
        read: impl FnOnce(&Value) -> Parsed<(T, Option<i64>)>,
    ) -> Result<(Call, (T, Precondition)), Problem> {
        self.admit(request, |body| {
            let (command, base_version) = read(body).map_err(|errors| Problem::invalid_body(&errors))?;
            let precondition = Precondition::read(&request.incoming.headers, base_version)?;
            let fingerprinted = precondition.base_version();
            Ok(((command, precondition), fingerprinted))
        })
        .await
    }

    async fn admit<T>(
        &self,
        request: &Matched<'_>,
        read: impl FnOnce(&Value) -> Result<(T, String), Problem>,
    ) -> Result<(Call, T), Problem> {
        let incoming = request.incoming;
        let caller = self.auth.caller(incoming, &self.db).await?;
        let checked = may(&caller, request.access).and_then(|()| {
            let path = request.path()?;
            let body = sized(incoming)?;
            let key = key::read(&incoming.headers)?;
            let body = parse(body).map_err(|error| Problem::invalid_body(&[error]))?;
            let (command, base_version) = read(&body)?;
            Ok((
                Call::new(caller.clone(), key, incoming.method.as_str(), path, &base_version, &body),
                command,
            ))
        });
        self.after_credentials(&caller, checked).await
    }

    /// Answers a read.
    ///
    /// # Errors
    /// 401, 403, 413, what `query` found, or what [`Query::answer`] did.
    pub async fn read(
        &self,
        request: &Matched<'_>,
        query: impl FnOnce(&Matched<'_>) -> Result<Query, Problem>,
    ) -> Result<Answer, Problem> {
        let caller = self.auth.caller(request.incoming, &self.db).await?;
        let query = may(&caller, request.access).and_then(|()| {
            sized(request.incoming)?;
            query(request)
        });
        self.after_credentials(&caller, query).await?.answer(&self.db, &caller).await
    }

    /// An unknown user is 401 before anything else. The claim sees to that where the request is well formed; only a
    /// refusal on the way there needs a look of its own.
    async fn after_credentials<T>(&self, caller: &Caller, checked: Result<T, Problem>) -> Result<T, Problem> {
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

fn may(caller: &Caller, access: Access) -> Result<(), Problem> {
    match access {
        Access::Scope(scope) if !caller.may(scope) => Err(Problem::forbidden(scope.name())),
        _ => Ok(()),
    }
}

fn sized(incoming: &Incoming) -> Result<&[u8], Problem> {
    if incoming.body.len() > MAX_BODY_BYTES { Err(Problem::body_too_large()) } else { Ok(&incoming.body) }
}
