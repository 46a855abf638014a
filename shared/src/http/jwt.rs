//! JWT verification: HS256 with a shared secret, or asymmetric with a JWKS.
//!
//! Promises: the configuration decides between the two, not the token, so a public key is never used as an HMAC secret.
//! Relies on: the issuer's JWKS. Once there is a set, it is fetched at most once a minute, and stays in use if that fails.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use jsonwebtoken::jwk::{JwkSet, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey, TokenData, Validation, decode, decode_header};
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::http::problem::Problem;
use crate::runtime::config::{AuthConfig, ConfigError, JwtKeys};

const CLOCK_LEEWAY_SECS: u64 = 5;
/// An unknown key id may be a new key, but a flood of them, or an issuer that fails, must not cause more fetches than this:
/// each one may delay its request by [`JWKS_TIMEOUT`].
const JWKS_MIN_REFRESH: Duration = Duration::from_secs(60);
/// Lifetime of a fetched set, after which a withdrawn key is refused.
const JWKS_MAX_AGE: Duration = Duration::from_secs(600);
/// Limit for one fetch; a request has 7 s in all.
const JWKS_TIMEOUT: Duration = Duration::from_secs(3);
const ASYMMETRIC: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// Verifies the tokens of one issuer; caches its JWKS.
pub struct JwtVerifier {
    keys: Keys,
    validation: Validation,
}

enum Keys {
    Secret(DecodingKey),
    Jwks { url: String, cache: Mutex<Option<CachedSet>> },
}

/// A cached key set. Times are wall-clock times: a monotonic clock may stop while the sandbox is frozen.
struct CachedSet {
    set: JwkSet,
    fetched_at: SystemTime,
    /// The last attempt to fetch, successful or not.
    attempted_at: SystemTime,
}

impl CachedSet {
    fn is_stale(&self, kid: &str, now: SystemTime) -> bool {
        // It is also stale if the clock was set back.
        let older =
            |since: SystemTime, than: Duration| now.duration_since(since).map_or(true, |age| age > than);
        older(self.attempted_at, JWKS_MIN_REFRESH)
            && (older(self.fetched_at, JWKS_MAX_AGE) || self.set.find(kid).is_none())
    }
}

impl JwtVerifier {
    /// Fails if HS256 cannot use the configured secret.
    pub fn new(config: &AuthConfig) -> Result<Self, ConfigError> {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.audience]);
        validation.required_spec_claims = HashSet::from(["exp", "iss", "aud", "sub"].map(String::from));
        validation.validate_nbf = true;
        validation.leeway = CLOCK_LEEWAY_SECS;
        let keys = match &config.keys {
            JwtKeys::Secret(secret) => Keys::Secret(
                DecodingKey::from_secret(secret.as_bytes())
                    .map_err(|error| ConfigError::new("JWT_SECRET", format!("is wrong: {error}")))?,
            ),
            JwtKeys::JwksUrl(url) => Keys::Jwks { url: url.clone(), cache: Mutex::new(None) },
        };
        Ok(Self { keys, validation })
    }

    /// Returns the claims of a valid token: 401; 503 if there is no JWKS.
    pub async fn verify(&self, token: &str) -> Result<Map<String, Value>, Problem> {
        let verified = match &self.keys {
            Keys::Secret(key) => decode(token, key, &self.validation),
            Keys::Jwks { url, cache } => {
                let header = decode_header(token).map_err(|_| Problem::unauthenticated())?;
                if !ASYMMETRIC.contains(&header.alg) {
                    return Err(Problem::unauthenticated());
                }
                let kid = header.kid.ok_or_else(Problem::unauthenticated)?;
                let key = jwks_key(url, cache, &kid, header.alg).await?;
                let mut validation = self.validation.clone();
                validation.algorithms = vec![header.alg];
                decode(token, &key, &validation)
            }
        };
        verified.map(|TokenData { claims, .. }| claims).map_err(|_| Problem::unauthenticated())
    }
}

async fn jwks_key(
    url: &str,
    cache: &Mutex<Option<CachedSet>>,
    kid: &str,
    alg: Algorithm,
) -> Result<DecodingKey, Problem> {
    // Locked during the fetch: a sandbox serves one request at a time anyway.
    let mut cache = cache.lock().await;
    let now = SystemTime::now();
    if cache.as_ref().is_none_or(|cached| cached.is_stale(kid, now)) {
        match (fetch(url).await, cache.as_mut()) {
            (Ok(set), _) => *cache = Some(CachedSet { set, fetched_at: now, attempted_at: now }),
            // While the issuer does not answer, the keys known so far stay in use.
            (Err(error), Some(cached)) => {
                tracing::warn!(%error, "JWKS not refreshed");
                cached.attempted_at = now;
            }
            (Err(error), None) => {
                tracing::error!(%error, "no JWKS");
                return Err(Problem::unavailable());
            }
        }
    }
    let jwk = cache.as_ref().and_then(|cached| cached.set.find(kid)).ok_or_else(Problem::unauthenticated)?;
    // A key that names its algorithm must not be used with another.
    let named: Option<KeyAlgorithm> = jwk.common.key_algorithm;
    if named.is_some_and(|named| named.to_string() != format!("{alg:?}")) {
        return Err(Problem::unauthenticated());
    }
    DecodingKey::from_jwk(jwk).map_err(|_| Problem::unauthenticated())
}

async fn fetch(url: &str) -> Result<JwkSet, reqwest::Error> {
    let client = reqwest::Client::builder().timeout(JWKS_TIMEOUT).build()?;
    client.get(url).send().await?.error_for_status()?.json().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_issuer_is_asked_once_a_minute_and_not_by_every_request() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000);
        let later = |secs: u64| at + Duration::from_secs(secs);
        let mut cached = CachedSet { set: JwkSet { keys: Vec::new() }, fetched_at: at, attempted_at: at };
        assert!(!cached.is_stale("unknown", later(60)), "a flood of unknown key ids");
        assert!(cached.is_stale("unknown", later(61)));
        cached.attempted_at = later(601);
        assert!(!cached.is_stale("unknown", later(661)), "fetched without success a minute ago");
        assert!(cached.is_stale("unknown", later(662)));
        assert!(cached.is_stale("unknown", at - Duration::from_secs(1)), "the clock was set back");
    }
}
