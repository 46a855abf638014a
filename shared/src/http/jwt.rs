//! JWTs: HS256 by a shared secret, or asymmetric by a JWKS. The algorithm follows from the configuration, never from
//! the token, so a public key can not be taken for a secret.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use jsonwebtoken::jwk::{JwkSet, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey, TokenData, Validation, decode, decode_header};
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::http::problem::Problem;
use crate::runtime::config::{AuthConfig, ConfigError, JwtKeys};

/// Clocks of issuer and Lambda may differ by this much.
const LEEWAY_SECS: u64 = 5;
/// A key id that is not in the set may be a new one, but nobody makes us ask for the set more often than this, also while
/// the issuer is away: each attempt may cost its request [`JWKS_TIMEOUT`].
const JWKS_MIN_REFRESH: Duration = Duration::from_secs(60);
/// A set is fetched again after this, so that a withdrawn key is felt.
const JWKS_MAX_AGE: Duration = Duration::from_secs(600);
/// The whole fetch; a request has 7 s in all.
const JWKS_TIMEOUT: Duration = Duration::from_secs(3);
/// What a JWKS may sign with.
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

/// The verifier of one issuer's tokens.
pub struct JwtVerifier {
    keys: Keys,
    validation: Validation,
}

enum Keys {
    Secret(DecodingKey),
    Jwks { url: String, fetched: Mutex<Option<Fetched>> },
}

/// A key set. Wall-clock times: in a sandbox that was frozen, other clocks may stand still.
struct Fetched {
    set: JwkSet,
    at: SystemTime,
    /// When it was last asked for, with or without success.
    asked_at: SystemTime,
}

impl Fetched {
    /// Whether to ask for it again before a token by this key is judged.
    fn is_stale(&self, kid: &str, now: SystemTime) -> bool {
        // A clock that was set back makes it stale.
        let older =
            |since: SystemTime, than: Duration| now.duration_since(since).map_or(true, |age| age > than);
        older(self.asked_at, JWKS_MIN_REFRESH)
            && (older(self.at, JWKS_MAX_AGE) || self.set.find(kid).is_none())
    }
}

impl JwtVerifier {
    /// From configuration.
    ///
    /// # Errors
    /// A secret that HS256 cannot use.
    pub fn new(config: &AuthConfig) -> Result<Self, ConfigError> {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.audience]);
        validation.required_spec_claims = HashSet::from(["exp", "iss", "aud", "sub"].map(String::from));
        validation.validate_nbf = true;
        validation.leeway = LEEWAY_SECS;
        let keys = match &config.keys {
            JwtKeys::Secret(secret) => Keys::Secret(
                DecodingKey::from_secret(secret.as_bytes())
                    .map_err(|error| ConfigError::new("JWT_SECRET", format!("is wrong: {error}")))?,
            ),
            JwtKeys::JwksUrl(url) => Keys::Jwks { url: url.clone(), fetched: Mutex::new(None) },
        };
        Ok(Self { keys, validation })
    }

    /// The claims of a valid token.
    ///
    /// # Errors
    /// 401 for any flaw of the token; 503 where the JWKS cannot be had.
    pub async fn verify(&self, token: &str) -> Result<Map<String, Value>, Problem> {
        let verified = match &self.keys {
            Keys::Secret(key) => decode(token, key, &self.validation),
            Keys::Jwks { url, fetched } => {
                let header = decode_header(token).map_err(|_| Problem::unauthenticated())?;
                if !ASYMMETRIC.contains(&header.alg) {
                    return Err(Problem::unauthenticated());
                }
                let kid = header.kid.ok_or_else(Problem::unauthenticated)?;
                let key = jwks_key(url, fetched, &kid, header.alg).await?;
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
    fetched: &Mutex<Option<Fetched>>,
    kid: &str,
    alg: Algorithm,
) -> Result<DecodingKey, Problem> {
    // Held over the fetch: a sandbox serves one request at a time anyway.
    let mut fetched = fetched.lock().await;
    let now = SystemTime::now();
    if fetched.as_ref().is_none_or(|known| known.is_stale(kid, now)) {
        match (fetch(url).await, fetched.as_mut()) {
            (Ok(set), _) => *fetched = Some(Fetched { set, at: now, asked_at: now }),
            // Yesterday's keys are better than none while the issuer is away.
            (Err(error), Some(known)) => {
                tracing::warn!(%error, "JWKS not refreshed");
                known.asked_at = now;
            }
            (Err(error), None) => {
                tracing::error!(%error, "no JWKS");
                return Err(Problem::unavailable());
            }
        }
    }
    let jwk = fetched.as_ref().and_then(|known| known.set.find(kid)).ok_or_else(Problem::unauthenticated)?;
    // A key that names its algorithm is for that one only.
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
    fn an_issuer_that_is_away_is_asked_once_a_minute_and_not_by_every_request() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(10_000);
        let later = |secs: u64| at + Duration::from_secs(secs);
        let mut known = Fetched { set: JwkSet { keys: Vec::new() }, at, asked_at: at };
        assert!(!known.is_stale("unknown", later(60)), "a flood of unknown key ids");
        assert!(known.is_stale("unknown", later(61)));
        known.asked_at = later(601);
        assert!(!known.is_stale("unknown", later(661)), "asked in vain a minute ago");
        assert!(known.is_stale("unknown", later(662)));
        assert!(known.is_stale("unknown", at - Duration::from_secs(1)), "the clock was set back");
    }
}
