//! What every endpoint function does around its own work: who is calling, may they, and is the request well formed, in
//! the order the contract gives: credentials (401), scope (403), size (413), key (400), body (400).

use std::time::Duration;

use lambda_http::{Body, Response};
use serde_json::Value;
use sqlx::Row;

use crate::auth::{Auth, Caller, Scope};
use crate::config::{AuthConfig, ConfigError, DatabaseConfig};
use crate::db::{Db, DbError};
use crate::documents::Precondition;
use crate::error::Problem;
use crate::http::{Answer, Incoming, MAX_BODY_BYTES, respond};
use crate::idempotency::{Call, literal};
use crate::json::{BodyError, parse};
use crate::key;

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
        crate::metrics::of_answer(allocation, status, error, replayed).write();
        respond(result, &incoming.request_id)
    }

    /// Admits a keyed mutation: its call and its command. `path` is the canonical path, or the problem that an id of
    /// the wrong form makes (404, after 401 and 403).
    ///
    /// # Errors
    /// The first refusal in the contract's order; none of them touches the key.
    pub async fn mutation<T>(
        &self,
        incoming: &Incoming,
        scope: Scope,
        path: Result<String, Problem>,
        read: impl FnOnce(&Value) -> Parsed<T>,
    ) -> Result<(Call, T), Problem> {
        self.admit(incoming, scope, path, |body| {
            Ok((read(body).map_err(|e| Problem::invalid_body(&e))?, String::new()))
        })
        .await
    }

    /// Admits a save of a versioned document: `read` gives the command and the `baseVersion` of the body, if any.
    ///
    /// # Errors
    /// As [`Endpoint::mutation`], then 428 and 400 of the version.
    pub async fn versioned_mutation<T>(
        &self,
        incoming: &Incoming,
        scope: Scope,
        path: Result<String, Problem>,
        read: impl FnOnce(&Value) -> Parsed<(T, Option<i64>)>,
    ) -> Result<(Call, (T, Precondition)), Problem> {
        self.admit(incoming, scope, path, |body| {
            let (command, base_version) = read(body).map_err(|errors| Problem::invalid_body(&errors))?;
            let precondition = Precondition::read(&incoming.headers, base_version)?;
            let fingerprinted = precondition.base_version();
            Ok(((command, precondition), fingerprinted))
        })
        .await
    }

    async fn admit<T>(
        &self,
        incoming: &Incoming,
        scope: Scope,
        path: Result<String, Problem>,
        read: impl FnOnce(&Value) -> Result<(T, String), Problem>,
    ) -> Result<(Call, T), Problem> {
        let caller = self.auth.caller(incoming, &self.db).await?;
        let checked = may(&caller, scope).and_then(|()| {
            let path = path?;
            if incoming.body.len() > MAX_BODY_BYTES {
                return Err(Problem::body_too_large());
            }
            let key = key::read(&incoming.headers)?;
            let body = parse(&incoming.body).map_err(|error| Problem::invalid_body(&[error]))?;
            let (command, base_version) = read(&body)?;
            Ok((
                Call::new(caller.clone(), key, incoming.method.as_str(), path, &base_version, &body),
                command,
            ))
        });
        self.after_credentials(&caller, checked).await
    }

    /// Admits a read.
    ///
    /// # Errors
    /// 401, 403, or what `checked` found.
    pub async fn reader<T>(
        &self,
        incoming: &Incoming,
        scope: Scope,
        checked: Result<T, Problem>,
    ) -> Result<(Caller, T), Problem> {
        let caller = self.auth.caller(incoming, &self.db).await?;
        let checked = may(&caller, scope).and(checked).map(|value| (caller.clone(), value));
        self.after_credentials(&caller, checked).await
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
        let who = literal(&serde_json::json!({"tenantId": caller.tenant_id, "userId": caller.user_id}));
        let rows = self.db.send(format!("select holdfast.is_user({who}) as found")).await?;
        Ok(rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get("found")?)
    }
}

fn may(caller: &Caller, scope: Scope) -> Result<(), Problem> {
    if caller.may(scope) { Ok(()) } else { Err(Problem::forbidden(scope)) }
}
