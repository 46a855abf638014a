//! Tokens of the local stack's users.

use anyhow::Result;
use jsonwebtoken::{EncodingKey, Header};
use uuid::Uuid;

/// Every scope there is, as the scope claim holds them.
pub const ALL_SCOPES: &str = "orders:write orders:read outbox:admin";

/// How user tokens of a stack are made: HS256, and the claims' names.
#[derive(Clone)]
pub struct TokenIssuer {
    /// The HS256 secret.
    pub secret: String,
    /// `iss`.
    pub issuer: String,
    /// `aud`.
    pub audience: String,
    /// The claim that holds the tenant id.
    pub tenant_claim: String,
    /// The claim that holds the scopes.
    pub scope_claim: String,
}

impl TokenIssuer {
    /// A token of one user with all scopes, valid for 30 days.
    ///
    /// # Errors
    /// When it cannot be signed.
    pub fn token(&self, tenant: Uuid, user: Uuid) -> Result<String> {
        let now = jiff::Timestamp::now().as_second();
        let mut claims = serde_json::Map::new();
        claims.insert("iss".into(), self.issuer.clone().into());
        claims.insert("aud".into(), self.audience.clone().into());
        claims.insert("sub".into(), user.to_string().into());
        claims.insert("iat".into(), now.into());
        claims.insert("exp".into(), (now + 30 * 24 * 3600).into());
        claims.insert(self.tenant_claim.clone(), tenant.to_string().into());
        claims.insert(self.scope_claim.clone(), ALL_SCOPES.into());
        let key = EncodingKey::from_secret(self.secret.as_bytes())?;
        Ok(jsonwebtoken::encode(&Header::default(), &claims, &key)?)
    }
}
