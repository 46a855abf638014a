//! JWT verification: HS256 with a shared secret, or asymmetric with a JWKS.
//!
//! Promises: the configuration decides between the two, not the token, so a public key is never used as an HMAC secret.
//! A token that no known key signed makes the secret be read again, as seldom as `runtime::secret` says.
//! Relies on: the issuer's JWKS. Once there is a set, it is fetched at most once a minute, and stays in use if that fails. An
//! issuer that fails is asked more and more seldom; meanwhile no token waits for it.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{Jwk, JwkSet, KeyAlgorithm};
use jsonwebtoken::{Algorithm, DecodingKey, TokenData, Validation, decode, decode_header};
use serde_json::{Map, Value};
use tokio::sync::Mutex;

use crate::http::problem::Problem;
use crate::runtime::config::{AuthConfig, ConfigError, JwtKeys, MIN_SECRET_BYTES};
use crate::runtime::secret::Secret;

const CLOCK_LEEWAY_SECS: u64 = 5;
/// An unknown key id may be a new key, but a flood of them must not cause more fetches than this.
const JWKS_MIN_REFRESH: Duration = Duration::from_secs(60);
/// Pause after the first failed fetch; doubles with each further one, up to [`JWKS_MIN_REFRESH`]. Without it every token would
/// wait for an issuer that does not answer.
const JWKS_FIRST_PAUSE: Duration = Duration::from_secs(1);
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
    Secret(Secret),
    Jwks { url: String, jwks: Mutex<Jwks> },
}

/// What is known of an issuer's keys. Times are wall-clock times: a monotonic clock may stop while the sandbox is frozen.
#[derive(Default)]
struct Jwks {
    set: Option<JwkSet>,
    fetched_at: Option<SystemTime>,
    /// The end of the last fetch, successful or not.
    asked_at: Option<SystemTime>,
    /// Failed fetches since the last success.
    failures: u32,
}

impl Jwks {
    fn find(&self, kid: &str) -> Option<&Jwk> {
        self.set.as_ref()?.find(kid)
    }

    /// Whether a token with this key id is a reason to ask the issuer.
    fn is_due(&self, kid: &str, now: SystemTime) -> bool {
        // If the clock was set back, that was long ago too; else it would block until the old time is reached again.
        let is_past = |since: Option<SystemTime>, pause: Duration| {
            since.is_none_or(|since| now.duration_since(since).map_or(true, |age| age >= pause))
        };
        let is_wanted = is_past(self.fetched_at, JWKS_MAX_AGE) || self.find(kid).is_none();
        is_wanted && is_past(self.asked_at, self.pause())
    }

    fn pause(&self) -> Duration {
        match self.failures {
            0 => JWKS_MIN_REFRESH,
            failures => {
                let doubled = 2_u32.saturating_pow(failures - 1);
                JWKS_FIRST_PAUSE.saturating_mul(doubled).min(JWKS_MIN_REFRESH)
            }
        }
    }

    async fn refresh(&mut self, url: &str) {
        // Counted before its end: the request's own time limit may cut the fetch off.
        self.failures = self.failures.saturating_add(1);
        self.asked_at = Some(SystemTime::now());
        let fetched = fetch(url).await;
        let now = Some(SystemTime::now());
        match fetched {
            Ok(set) => *self = Self { set: Some(set), fetched_at: now, asked_at: now, failures: 0 },
            Err(error) => {
                self.asked_at = now;
                tracing::warn!(%error, failures = self.failures, "JWKS not fetched");
            }
        }
    }
}

impl JwtVerifier {
    /// Makes no call yet. Fails if HS256 cannot use the configured secret.
    pub fn new(config: &AuthConfig) -> Result<Self, ConfigError> {
        let mut validation = Validation::new(Algorithm::HS256);
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.audience]);
        validation.required_spec_claims = HashSet::from(["exp", "iss", "aud", "sub"].map(String::from));
        validation.validate_nbf = true;
        validation.leeway = CLOCK_LEEWAY_SECS;
        let keys = match &config.keys {
            JwtKeys::Secret(secret) => {
                if secret.given().is_some_and(|given| shared_keys(given).is_empty()) {
                    return Err(ConfigError::new("JWT_SECRET", "is wrong: HS256 needs 32 bytes or more"));
                }
                Keys::Secret(secret.clone())
            }
            JwtKeys::JwksUrl(url) => Keys::Jwks { url: url.clone(), jwks: Mutex::default() },
        };
        Ok(Self { keys, validation })
    }

    /// Fetches the shared secret, if it is kept elsewhere, so that the first token does not wait for it.
    pub async fn warm(&self) {
        if let Keys::Secret(secret) = &self.keys
            && let Err(error) = secret.current().await
        {
            tracing::warn!(%error, "no key at cold start");
        }
    }

    /// Returns the claims of a valid token: 401; 503 if there is no JWKS or no secret.
    pub async fn verify(&self, token: &str) -> Result<Map<String, Value>, Problem> {
        match &self.keys {
            Keys::Secret(secret) => self.verify_shared(token, secret).await,
            Keys::Jwks { url, jwks } => {
                let header = decode_header(token).map_err(|_| Problem::unauthenticated())?;
                if !ASYMMETRIC.contains(&header.alg) {
                    return Err(Problem::unauthenticated());
                }
                let kid = header.kid.ok_or_else(Problem::unauthenticated)?;
                let key = jwks_key(url, jwks, &kid, header.alg).await?;
                let validation = Validation { algorithms: vec![header.alg], ..self.validation.clone() };
                claims(token, &key, &validation).unwrap_or_else(|| Err(Problem::unauthenticated()))
            }
        }
    }

    /// Tries all keys; then once more with those of a newer value of the secret, if there is one.
    async fn verify_shared(&self, token: &str, secret: &Secret) -> Result<Map<String, Value>, Problem> {
        let value = secret.current().await.map_err(|error| {
            tracing::warn!(%error, "no key to verify tokens with");
            Problem::unavailable()
        })?;
        let keys = shared_keys(&value);
        if keys.is_empty() {
            tracing::error!("the secret of JWT_SECRET has no key of 32 bytes or more");
            return Err(Problem::unavailable());
        }
        if let Some(judged) = self.judged_by_any(token, &keys) {
            return judged;
        }
        let newer = secret.newer_than(&value).await;
        let judged = newer.and_then(|newer| self.judged_by_any(token, &shared_keys(&newer)));
        judged.unwrap_or_else(|| Err(Problem::unauthenticated()))
    }

    fn judged_by_any(
        &self,
        token: &str,
        keys: &[DecodingKey],
    ) -> Option<Result<Map<String, Value>, Problem>> {
        keys.iter().find_map(|key| claims(token, key, &self.validation))
    }
}

/// The keys of a secret: the text itself, or a JSON array of texts, the new one and those that tokens may still be signed with.
/// Such as HS256 cannot use are left out (RFC 7518 section 3.2 wants 256 bits).
fn shared_keys(secret: &str) -> Vec<DecodingKey> {
    let all = serde_json::from_str(secret).unwrap_or_else(|_| vec![secret.to_owned()]);
    let usable = all.iter().filter(|text| text.len() >= MIN_SECRET_BYTES);
    usable.filter_map(|text| DecodingKey::from_secret(text.as_bytes()).ok()).collect()
}

/// The claims of a valid token, or what is wrong with it; `None` if this key did not sign it.
fn claims(
    token: &str,
    key: &DecodingKey,
    validation: &Validation,
) -> Option<Result<Map<String, Value>, Problem>> {
    match decode(token, key, validation) {
        Ok(TokenData { claims, .. }) => Some(Ok(claims)),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidSignature) => None,
        Err(error) => Some(Err(refusal(&error, token, key, validation))),
    }
}

fn refusal(error: &Error, token: &str, key: &DecodingKey, validation: &Validation) -> Problem {
    let (claim, told): (&str, fn(f64) -> String) = match error.kind() {
        ErrorKind::ExpiredSignature => ("exp", expired),
        ErrorKind::ImmatureSignature => ("nbf", not_yet_valid),
        _ => return Problem::unauthenticated(),
    };
    // Told only of a token that is good but for its time: about any other flaw an attacker learns nothing.
    let timeless = Validation { validate_exp: false, validate_nbf: false, ..validation.clone() };
    let good: Option<TokenData<Map<String, Value>>> = decode(token, key, &timeless).ok();
    let at = good.and_then(|token| token.claims.get(claim)?.as_f64());
    at.map_or_else(Problem::unauthenticated, |at| Problem::outside_its_time(told(at)))
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64().floor()
}

fn expired(at: f64) -> String {
    format!("The token expired {:.0} s ago by this server's clock.", now() - at)
}

fn not_yet_valid(at: f64) -> String {
    let wait = at - now();
    format!(
        "The token is not valid for another {wait:.0} s by this server's clock; check the issuer's clock."
    )
}

async fn jwks_key(url: &str, jwks: &Mutex<Jwks>, kid: &str, alg: Algorithm) -> Result<DecodingKey, Problem> {
    // Locked during the fetch: a sandbox serves one request at a time anyway.
    let mut jwks = jwks.lock().await;
    if jwks.is_due(kid, SystemTime::now()) {
        jwks.refresh(url).await;
    }
    if jwks.set.is_none() {
        return Err(Problem::unavailable());
    }
    let jwk = jwks.find(kid).ok_or_else(Problem::unauthenticated)?;
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

    const START: SystemTime = UNIX_EPOCH;

    fn at(secs: u64) -> SystemTime {
        START + Duration::from_secs(secs)
    }

    fn asked(at_secs: u64, failures: u32) -> Jwks {
        Jwks { asked_at: Some(at(at_secs)), failures, ..Jwks::default() }
    }

    #[test]
    fn a_fetched_set_is_fetched_again_for_an_unknown_key_after_a_minute_and_for_a_known_one_never_sooner_than_its_age()
     {
        let set = JwkSet { keys: Vec::new() };
        let jwks = Jwks { set: Some(set), fetched_at: Some(at(1_000)), ..asked(1_000, 0) };
        assert!(!jwks.is_due("unknown", at(1_059)), "a flood of unknown key ids");
        assert!(jwks.is_due("unknown", at(1_060)));
        assert!(Jwks::default().is_due("any", at(0)), "the first token");
    }

    #[test]
    fn an_issuer_that_fails_is_asked_more_and_more_seldom() {
        for (failures, pause) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (8, 60), (u32::MAX, 60)] {
            let jwks = asked(1_000, failures);
            assert!(!jwks.is_due("any", at(1_000 + pause - 1)), "{failures} failures");
            assert!(jwks.is_due("any", at(1_000 + pause)), "{failures} failures");
        }
    }

    #[test]
    fn a_clock_that_was_set_back_blocks_nothing() {
        assert!(asked(1_000, 7).is_due("any", at(10)));
    }
}
