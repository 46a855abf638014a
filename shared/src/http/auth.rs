//! Authentication: the JWT of a UI user, or a partner's API key.
//!
//! Promises: a credential gives a tenant, a user and scopes, or 401. A JWT needs no database round trip; an API key needs
//! one every 30 s, so a revocation takes effect within that time.
//! Does not promise that the user still exists: the claim or the read checks that.

use std::collections::HashMap;
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
use crate::runtime::config::{AuthConfig, ConfigError};

/// How long a lookup is cached; a revocation must take effect within 60 s.
const API_KEY_CACHE_SECS: u64 = 30;
/// Bounds the cache's memory; a sandbox sees fewer distinct keys than this in [`API_KEY_CACHE_SECS`].
const API_KEY_CACHE_MAX: usize = 10_000;

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
}

impl Scope {
    /// As written in tokens and API keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::OrdersWrite => "orders:write",
            Self::OrdersRead => "orders:read",
            Self::OutboxAdmin => "outbox:admin",
            Self::CreditWrite => "credit:write",
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
struct CachedKey {
    caller: Caller,
    expires_at: Option<Timestamp>,
    /// Wall-clock time: a monotonic clock may stop while the sandbox is frozen, and revocations would go unseen.
    looked_up_at: SystemTime,
}

impl CachedKey {
    /// Whether it is still valid. It is not if the clock was set back.
    fn is_recent(&self, now: SystemTime) -> bool {
        now.duration_since(self.looked_up_at).is_ok_and(|age| age < Duration::from_secs(API_KEY_CACHE_SECS))
    }
}

/// Verifies credentials; caches API keys and the JWKS.
pub struct Auth {
    jwt: JwtVerifier,
    tenant_claim: String,
    scope_claim: String,
    api_keys: Mutex<HashMap<[u8; 32], CachedKey>>,
}

impl Auth {
    /// Makes no call yet: the JWKS is fetched at the first token.
    pub fn new(config: &AuthConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            jwt: JwtVerifier::new(config)?,
            tenant_claim: config.tenant_claim.clone(),
            scope_claim: config.scope_claim.clone(),
            api_keys: Mutex::new(HashMap::new()),
        })
    }

    /// Authenticates by the `Authorization` header: 401; 503 if the JWKS or the API key cannot be fetched.
    pub async fn caller(&self, incoming: &Incoming, db: &Db) -> Result<Caller, Problem> {
        let credential = bearer(incoming).ok_or_else(Problem::unauthenticated)?;
        if credential.starts_with("hf_") {
            self.by_api_key(credential, db).await
        } else {
            self.by_jwt(credential).await
        }
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
        let cached = self.api_keys.lock().await.get(&hash).cloned();
        let key = match cached {
            Some(key) if key.is_recent(SystemTime::now()) => key,
            _ => {
                let found = find_api_key(db, &hash).await?;
                let mut cache = self.api_keys.lock().await;
                let Some(found) = found else {
                    cache.remove(&hash);
                    return Err(Problem::unauthenticated());
                };
                if cache.len() >= API_KEY_CACHE_MAX {
                    cache.clear();
                }
                cache.insert(hash, found.clone());
                found
            }
        };
        match key.expires_at {
            Some(expires_at) if expires_at <= Timestamp::now() => Err(Problem::unauthenticated()),
            _ => Ok(key.caller),
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

async fn find_api_key(db: &Db, hash: &[u8; 32]) -> Result<Option<CachedKey>, DbError> {
    let statement = Statement::new("holdfast.find_api_key", json!({"hash": hex::encode(hash)}));
    let rows = db.call(&statement).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let id = |column: &str| -> Result<Uuid, sqlx::Error> {
        row.try_get::<String, _>(column)?.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))
    };
    let scopes: String = row.try_get("scopes")?;
    let expires_at_secs: Option<i64> = row.try_get("expires_at_secs")?;
    Ok(Some(CachedKey {
        caller: Caller {
            tenant_id: id("tenant_id")?,
            user_id: id("app_user_id")?,
            actor: format!("api_key:{}", id("id")?),
            scopes: scopes.split(' ').map(str::to_owned).collect(),
        },
        expires_at: expires_at_secs.and_then(|secs| Timestamp::from_second(secs).ok()),
        looked_up_at: SystemTime::now(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_cached_for_a_limited_wall_clock_time() {
        let id = Uuid::nil();
        let caller = Caller { tenant_id: id, user_id: id, actor: String::new(), scopes: Vec::new() };
        let looked_up_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let key = CachedKey { caller, expires_at: None, looked_up_at };
        assert!(key.is_recent(looked_up_at + Duration::from_secs(API_KEY_CACHE_SECS - 1)));
        assert!(!key.is_recent(looked_up_at + Duration::from_secs(API_KEY_CACHE_SECS)));
        assert!(!key.is_recent(looked_up_at - Duration::from_secs(1)), "the clock was set back");
    }
}
