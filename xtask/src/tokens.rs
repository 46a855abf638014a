//! Tokens for users of the local stack and of the bench.

use anyhow::Result;
use jsonwebtoken::{EncodingKey, Header};
use uuid::Uuid;

/// All scopes of a tenant's users, in the format of the scope claim.
pub const ALL_SCOPES: &str = "orders:write orders:read credit:write outbox:admin events:read";
/// The scope of who operates the platform, for what belongs to no tenant.
pub const PLATFORM_SCOPE: &str = "platform:admin";
const VALID_SECONDS: i64 = 30 * 24 * 3600;

/// Signs tokens with HS256.
#[derive(Clone)]
pub struct TokenIssuer {
    /// The key, as text.
    pub secret: String,
    /// Claim `iss`.
    pub issuer: String,
    /// Claim `aud`.
    pub audience: String,
    /// Name of the claim with the tenant id.
    pub tenant_claim: String,
    /// Name of the claim with the scopes.
    pub scope_claim: String,
}

impl TokenIssuer {
    /// A token with all scopes of a user, valid for 30 days.
    pub fn token(&self, tenant: Uuid, user: Uuid) -> Result<String> {
        self.token_for(tenant, user, ALL_SCOPES)
    }

    /// A token with these scopes, valid for 30 days.
    pub fn token_for(&self, tenant: Uuid, user: Uuid, scopes: &str) -> Result<String> {
        let now = jiff::Timestamp::now().as_second();
        let mut claims = serde_json::Map::new();
        claims.insert("iss".into(), self.issuer.clone().into());
        claims.insert("aud".into(), self.audience.clone().into());
        claims.insert("sub".into(), user.to_string().into());
        claims.insert("iat".into(), now.into());
        claims.insert("exp".into(), (now + VALID_SECONDS).into());
        claims.insert(self.tenant_claim.clone(), tenant.to_string().into());
        claims.insert(self.scope_claim.clone(), scopes.into());
        let key = EncodingKey::from_secret(self.secret.as_bytes())?;
        Ok(jsonwebtoken::encode(&Header::default(), &claims, &key)?)
    }
}
