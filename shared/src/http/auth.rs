//! Who is calling: a JWT of a UI user, or a partner's API key.
//!
//! Promises: a credential gives a tenant, a user and scopes, or 401. A JWT costs no round trip; an API key costs one
//! when it was not seen for [`API_KEY_CACHE_SECS`], so a revocation is felt within that time. That the user still
//! exists is checked inside the claim or the read, not here.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::Row;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::{Db, DbError};
use crate::http::event::Incoming;
use crate::http::fields::uuid;
use crate::http::jwt::JwtVerifier;
use crate::http::problem::Problem;
use crate::runtime::config::{AuthConfig, ConfigError};

/// How long a key's lookup is trusted; a revocation must be felt within 60 s.
pub const API_KEY_CACHE_SECS: u64 = 30;
/// More distinct keys than a sandbox meets in [`API_KEY_CACHE_SECS`]; bounds its memory.
const API_KEY_CACHE_MAX: usize = 10_000;

/// What a credential may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Change orders, styles and stock promises.
    OrdersWrite,
    /// Read.
    OrdersRead,
    /// Operate outbox and destinations.
    OutboxAdmin,
}

impl Scope {
    /// As it stands in tokens and keys.
    pub fn name(self) -> &'static str {
        match self {
            Self::OrdersWrite => "orders:write",
            Self::OrdersRead => "orders:read",
            Self::OutboxAdmin => "outbox:admin",
        }
    }
}

/// An authenticated caller.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The tenant whose rows it may see.
    pub tenant_id: Uuid,
    /// The app_user it acts as.
    pub user_id: Uuid,
    /// Whom the ledgers name: `user:<id>`, or `api_key:<id>`.
    pub actor: String,
    scopes: Vec<String>,
}

impl Caller {
    /// The statement with the members that say who is calling: `tenantId`, `userId`, `actor`.
    pub fn named_in(&self, statement: Statement) -> Statement {
        statement.with("tenantId", self.tenant_id).with("userId", self.user_id).with("actor", &self.actor)
    }

    /// Whether the credential carries the scope.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|s| s == scope.name())
    }
}

/// An API key's row, as it was found.
#[derive(Clone)]
struct KnownKey {
    caller: Caller,
    expires_at: Option<Timestamp>,
    /// Wall-clock time: in a sandbox that was frozen, other clocks may stand still, and a revocation is felt all the same.
    seen_at: SystemTime,
}

impl KnownKey {
    /// Whether it need not be looked up again; a clock that was set back trusts nothing.
    fn is_recent(&self, now: SystemTime) -> bool {
        now.duration_since(self.seen_at).is_ok_and(|age| age < Duration::from_secs(API_KEY_CACHE_SECS))
    }
}

/// Verifies credentials.
pub struct Auth {
    jwt: JwtVerifier,
    tenant_claim: String,
    scope_claim: String,
    api_keys: Mutex<HashMap<[u8; 32], KnownKey>>,
}

impl Auth {
    /// From configuration; no call goes out before the first token.
    ///
    /// # Errors
    /// A secret that HS256 cannot use.
    pub fn new(config: &AuthConfig) -> Result<Self, ConfigError> {
        Ok(Self {
            jwt: JwtVerifier::new(config)?,
            tenant_claim: config.tenant_claim.clone(),
            scope_claim: config.scope_claim.clone(),
            api_keys: Mutex::new(HashMap::new()),
        })
    }

    /// The caller behind the `Authorization` header.
    ///
    /// # Errors
    /// 401 where it proves nothing; 503 where the keys to check it with cannot be had.
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

    async fn by_api_key(&self, key: &str, db: &Db) -> Result<Caller, Problem> {
        let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
        let cached = self.api_keys.lock().await.get(&hash).cloned();
        let known = match cached {
            Some(known) if known.is_recent(SystemTime::now()) => known,
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
        match known.expires_at {
            Some(expires_at) if expires_at <= Timestamp::now() => Err(Problem::unauthenticated()),
            _ => Ok(known.caller),
        }
    }
}

/// The token of `Authorization: Bearer …`, the scheme in any case; none where the header was sent twice.
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

/// A key that is there and not revoked.
async fn find_api_key(db: &Db, hash: &[u8; 32]) -> Result<Option<KnownKey>, DbError> {
    let statement = Statement::new("holdfast.find_api_key", json!({"hash": hex::encode(hash)}));
    let rows = db.call(&statement).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let id = |column: &str| -> Result<Uuid, sqlx::Error> {
        row.try_get::<String, _>(column)?.parse().map_err(|e| sqlx::Error::Decode(Box::new(e)))
    };
    let scopes: String = row.try_get("scopes")?;
    let expires_at_secs: Option<i64> = row.try_get("expires_at_secs")?;
    Ok(Some(KnownKey {
        caller: Caller {
            tenant_id: id("tenant_id")?,
            user_id: id("app_user_id")?,
            actor: format!("api_key:{}", id("id")?),
            scopes: scopes.split(' ').map(str::to_owned).collect(),
        },
        expires_at: expires_at_secs.and_then(|secs| Timestamp::from_second(secs).ok()),
        seen_at: SystemTime::now(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_trusted_for_a_while_by_the_clock_on_the_wall() {
        let nobody = Uuid::nil();
        let caller = Caller { tenant_id: nobody, user_id: nobody, actor: String::new(), scopes: Vec::new() };
        let seen_at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let known = KnownKey { caller, expires_at: None, seen_at };
        assert!(known.is_recent(seen_at + Duration::from_secs(API_KEY_CACHE_SECS - 1)));
        assert!(!known.is_recent(seen_at + Duration::from_secs(API_KEY_CACHE_SECS)));
        assert!(!known.is_recent(seen_at - Duration::from_secs(1)), "the clock was set back");
    }
}
