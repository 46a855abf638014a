//! Credentials for tests: JWTs and API keys.

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::TestDb;
use shared::runtime::config::{AuthConfig, JwtKeys};
use shared::runtime::sealed::Sealer;

/// The HS256 key.
pub const JWT_SECRET: &str = "a secret for tests only, 32 bytes or more";
/// Claim `iss`.
pub const ISSUER: &str = "https://issuer.test";
/// Claim `aud`.
pub const AUDIENCE: &str = "holdfast-test";
/// Name of the claim with the tenant id.
pub const TENANT_CLAIM: &str = "tenant_id";
/// Name of the claim with the scopes.
pub const SCOPE_CLAIM: &str = "scope";
const VALID_SECONDS: i64 = 3600;

/// Keys of stored secrets, in the form of `SECRETS_KEYS`.
pub const SECRETS_KEYS: &str = "test:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Seals and opens with [`SECRETS_KEYS`].
pub fn sealer() -> Sealer {
    Sealer::read(SECRETS_KEYS).unwrap()
}

/// The configuration that accepts [`token`].
pub fn auth_config() -> AuthConfig {
    AuthConfig {
        keys: JwtKeys::Secret(JWT_SECRET.into()),
        issuer: ISSUER.into(),
        audience: AUDIENCE.into(),
        tenant_claim: TENANT_CLAIM.into(),
        scope_claim: SCOPE_CLAIM.into(),
    }
}

/// A token for an hour; `scopes` are separated by spaces.
pub fn token(tenant: Uuid, user: Uuid, scopes: &str) -> String {
    token_with(tenant, user, json!({ SCOPE_CLAIM: scopes }))
}

/// A token for an hour with all scopes. `claims` overrides or adds claims; null removes one.
pub fn token_with(tenant: Uuid, user: Uuid, claims: Value) -> String {
    let now = jiff::Timestamp::now().as_second();
    let mut all = json!({"iss": ISSUER, "aud": AUDIENCE, "sub": user, TENANT_CLAIM: tenant, "iat": now, "exp": now + VALID_SECONDS,
        SCOPE_CLAIM: "orders:write orders:read credit:write outbox:admin events:read"});
    for (name, value) in claims.as_object().unwrap() {
        all[name] = value.clone();
    }
    all.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    encode(&Header::default(), &all, &EncodingKey::from_secret(JWT_SECRET.as_bytes()).unwrap()).unwrap()
}

/// Inserts a valid API key of a user and returns it.
pub async fn issue_api_key(db: &TestDb, tenant: Uuid, user: Uuid, scopes: &[&str]) -> String {
    let key = format!("hf_{}", Uuid::new_v4().simple());
    let hash = hex::encode(Sha256::digest(key.as_bytes()));
    let scopes = scopes.join(",");
    db.execute(format!(
        "insert into api_key (tenant_id, app_user_id, label, key_hash, scopes)
         values ('{tenant}', '{user}', 'test', '\\x{hash}', string_to_array('{scopes}', ','))"
    ))
    .await;
    key
}
