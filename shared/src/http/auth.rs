//! Authentication: the JWT of a UI user, or a partner's API key.
//!
//! Promises: a credential gives a tenant, a user and scopes, or 401. A JWT needs no database round trip; an API key needs one
//! every 30 s, so a revocation takes effect within that time; one that does not exist needs one every 5 s, however often it
//! is sent.
//! Does not promise that the user still exists: the claim or the read checks that.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Row;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::Db;
use crate::db::error::DbError;
use crate::http::event::Incoming;
use crate::http::fields::uuid;
use crate::http::jwt::JwtVerifier;
use crate::http::problem::Problem;
use crate::http::recent::Recent;
use crate::runtime::config::{AuthConfig, ConfigError};
use crate::runtime::request_log;

/// How long a key is known; a revocation must take effect within 60 s.
const KNOWN_FOR: Duration = Duration::from_secs(30);
/// How long a key is known not to exist. One that was issued a moment after it was tried works after this time.
const UNKNOWN_FOR: Duration = Duration::from_secs(5);
/// Bounds the memory of each cache.
const API_KEYS_MAX: usize = 10_000;

/// A permission of a credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Change orders, styles and allocations.
    OrdersWrite,
    /// Read all documents and lists of the tenant.
    OrdersRead,
    /// Operate the outbox and its destinations.
    OutboxAdmin,
    /// Change customers' limits and holds, void invoices, book payments.
    CreditWrite,
    /// Read the events of a destination, and ask for them again.
    EventsRead,
    /// See what belongs to no tenant.
    PlatformAdmin,
}

impl Scope {
    /// As written in tokens and API keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::OrdersWrite => "orders:write",
            Self::OrdersRead => "orders:read",
            Self::OutboxAdmin => "outbox:admin",
            Self::CreditWrite => "credit:write",
            Self::EventsRead => "events:read",
            Self::PlatformAdmin => "platform:admin",
        }
    }
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Whose rows the caller may see.
    pub tenant_id: Uuid,
    /// A row of `app_user`.
    pub user_id: Uuid,
    /// `user:<id>` or `api_key:<id>`, as written in the ledgers.
    pub actor: String,
    scopes: Vec<String>,
}

impl Caller {
    /// Adds `tenantId`, `userId` and `actor` to the argument.
    pub(crate) fn named_in(&self, statement: Statement) -> Statement {
        statement.with("tenantId", self.tenant_id).with("userId", self.user_id).with("actor", &self.actor)
    }

    pub(crate) fn may(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|s| s == scope.name())
    }
}

#[derive(Clone)]
struct ApiKey {
    caller: Caller,
    expires_at: Option<Timestamp>,
}

/// What look-ups of API keys found, by the key's hash.
struct ApiKeys {
    known: Recent<ApiKey>,
    unknown: Recent<()>,
}

impl ApiKeys {
    /// `Some(None)`: it does not exist. `None`: it must be looked up.
    fn get(&self, hash: &[u8; 32], now: SystemTime) -> Option<Option<ApiKey>> {
        match self.known.get(hash, now) {
            Some(key) => Some(Some(key)),
            None => self.unknown.get(hash, now).map(|()| None),
        }
    }

    fn put(&mut self, hash: [u8; 32], found: Option<ApiKey>, now: SystemTime) {
        match found {
            Some(key) => self.known.put(hash, key, now),
            None => self.unknown.put(hash, (), now),
        }
    }
}

/// Verifies credentials; caches API keys and the JWKS.
pub struct Auth {
    jwt: JwtVerifier,
    tenant_claim: String,
    scope_claim: String,
    api_keys: Mutex<ApiKeys>,
}

impl Auth {
    /// Makes no call yet: the JWKS is fetched at the first token.
    pub fn new(config: &AuthConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            jwt: JwtVerifier::new(config)?,
            tenant_claim: config.tenant_claim.clone(),
            scope_claim: config.scope_claim.clone(),
            api_keys: Mutex::new(ApiKeys {
                known: Recent::new(KNOWN_FOR, API_KEYS_MAX),
                unknown: Recent::new(UNKNOWN_FOR, API_KEYS_MAX),
            }),
        })
    }

    /// Fetches a shared secret that is kept elsewhere.
    pub async fn warm(&self) {
        self.jwt.warm().await;
    }

    /// Authenticates by the `Authorization` header: 401; 503 if the JWKS or the API key cannot be fetched.
    pub async fn caller(&self, incoming: &Incoming, db: &Db) -> Result<Caller, Problem> {
        let credential = bearer(incoming).ok_or_else(Problem::unauthenticated)?;
        let caller = if credential.starts_with("hf_") {
            self.by_api_key(credential, db).await
        } else {
            self.by_jwt(credential).await
        }?;
        request_log::caller(caller.tenant_id, &caller.actor);
        Ok(caller)
    }

    async fn by_jwt(&self, token: &str) -> Result<Caller, Problem> {
        let claims = self.jwt.verify(token).await?;
        let id = |claim: &str| claims.get(claim).and_then(Value::as_str).and_then(uuid);
        let (Some(tenant_id), Some(user_id)) = (id(&self.tenant_claim), id("sub")) else {
            return Err(Problem::unauthenticated());
        };
        let scopes = match claims.get(&self.scope_claim) {
            Some(Value::String(list)) => list.split_whitespace().map(str::to_owned).collect(),
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        Ok(Caller { tenant_id, user_id, actor: format!("user:{user_id}"), scopes })
    }

    async fn by_api_key(&self, credential: &str, db: &Db) -> Result<Caller, Problem> {
        let hash: [u8; 32] = Sha256::digest(credential.as_bytes()).into();
        // Of before the look-up: what is revoked during it must not count from its end.
        let now = SystemTime::now();
        let cached = self.api_keys.lock().await.get(&hash, now);
        let key = match cached {
            Some(found) => found,
            None => {
                let found = find_api_key(db, &hash).await?;
                self.api_keys.lock().await.put(hash, found.clone(), now);
                found
            }
        };
        match key {
            Some(key) if key.expires_at.is_none_or(|at| at > Timestamp::now()) => Ok(key.caller),
            _ => Err(Problem::unauthenticated()),
        }
    }
}

/// The token of `Authorization: Bearer …`, the scheme in any case; `None` if the header was sent twice.
fn bearer(incoming: &Incoming) -> Option<&str> {
    let mut values = incoming.headers.get_all(http::header::AUTHORIZATION).iter();
    let value = values.next()?.to_str().ok()?;
    if values.next().is_some() {
        return None;
    }
    let (scheme, token) = value.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

async fn find_api_key(db: &Db, hash: &[u8; 32]) -> Result<Option<ApiKey>, DbError> {
    let statement = Statement::new("holdfast.find_api_key", json!({"hash": hex::encode(hash)}));
    let rows = db.call(&statement).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let id = |column: &str| -> Result<Uuid, sqlx::Error> {
        row.try_get::<String, _>(column)?.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))
    };
    let scopes: String = row.try_get("scopes")?;
    let expires_at_secs: Option<i64> = row.try_get("expires_at_secs")?;
    Ok(Some(ApiKey {
        caller: Caller {
            tenant_id: id("tenant_id")?,
            user_id: id("app_user_id")?,
            actor: format!("api_key:{}", id("id")?),
            scopes: scopes.split(' ').map(str::to_owned).collect(),
        },
        expires_at: expires_at_secs.and_then(|secs| Timestamp::from_second(secs).ok()),
    }))
}
