//! Who sent a webhook: signatures over the raw bytes, before anything is parsed or stored.
//!
//! Promises: constant-time comparison of every signature with every live secret, so that a secret can be rolled without
//! losing a delivery; a signed timestamp must lie within [`TOLERANCE_SECS`] of now, either way.
//! Relies on: a clock that the caller passes in; `Incoming`, which has undone the gateway's base64.
//! Does not promise freshness for Shopify, which signs no timestamp: there the inbox alone stops a replay.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use jiff::Timestamp;
use sha2::Sha256;

use crate::runtime::config::{ConfigError, required};

/// How far a signed timestamp may lie from now, either way, in seconds: what Stripe and Standard Webhooks recommend.
/// A far future one would be a signature that can be replayed until then.
pub const TOLERANCE_SECS: i64 = 300;

/// The secrets that a sender may sign with just now; several while one is rolled.
#[derive(Clone)]
pub struct Secrets(Vec<Vec<u8>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// One or more secrets, separated by commas or white space, each used as the bytes it is written with.
    pub fn plain(text: &str) -> Self {
        Self(each(text).map(|secret| secret.as_bytes().to_vec()).collect())
    }

    /// One or more Standard Webhooks secrets: base64, usually after `whsec_`. What is none is left out, so that it can
    /// never be signed with.
    pub fn base64(text: &str) -> Self {
        let keys = each(text).filter_map(|secret| {
            let encoded = secret.strip_prefix("whsec_").unwrap_or(secret);
            STANDARD.decode(encoded).ok().filter(|key| !key.is_empty())
        });
        Self(keys.collect())
    }

    /// [`Secrets::plain`] of an environment variable.
    ///
    /// # Errors
    /// When it is missing or holds no secret.
    pub fn from_env(name: &'static str) -> Result<Self, ConfigError> {
        let secrets = Self::plain(&required(name)?);
        if secrets.0.is_empty() { Err(ConfigError::new(name, "holds no secret")) } else { Ok(secrets) }
    }

    /// Whether any secret gives any of these MACs over the parts. Every pair is tried, whatever came of the others.
    fn sign_any(&self, parts: &[&[u8]], claimed: &[Vec<u8>]) -> bool {
        let mut found = false;
        for secret in &self.0 {
            let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { continue };
            parts.iter().for_each(|part| mac.update(part));
            for signature in claimed {
                found |= mac.clone().verify_slice(signature).is_ok();
            }
        }
        found
    }
}

fn each(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c == ',' || c.is_whitespace()).filter(|secret| !secret.is_empty())
}

/// `Stripe-Signature: t=<seconds>,v1=<hex>[,v1=<hex>…]` over `<t>.<body>`. Other schemes are passed over.
pub fn stripe(secrets: &Secrets, headers: &HeaderMap, body: &[u8], now: Timestamp) -> bool {
    let Some(header) = header(headers, "stripe-signature") else { return false };
    let mut timestamp = None;
    let mut claimed = Vec::new();
    for (scheme, value) in header.split(',').filter_map(|pair| pair.split_once('=')) {
        match scheme.trim() {
            "t" => timestamp = timestamp.or(Some(value)),
            "v1" => claimed.extend(hex::decode(value.trim())),
            _ => {}
        }
    }
    let Some(timestamp) = timestamp.filter(|timestamp| is_fresh(timestamp, now)) else { return false };
    secrets.sign_any(&[timestamp.as_bytes(), b".", body], &claimed)
}

/// `X-Shopify-Hmac-Sha256: <base64>` over the body.
pub fn shopify(secrets: &Secrets, headers: &HeaderMap, body: &[u8]) -> bool {
    let claimed =
        header(headers, "x-shopify-hmac-sha256").and_then(|value| STANDARD.decode(value.trim()).ok());
    claimed.is_some_and(|claimed| secrets.sign_any(&[body], &[claimed]))
}

/// Standard Webhooks: `webhook-signature: v1,<base64>[ v1,<base64>…]` over `<webhook-id>.<webhook-timestamp>.<body>`.
/// Gives the id, which is signed with the rest.
pub fn standard_webhooks<'h>(
    secrets: &Secrets,
    headers: &'h HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Option<&'h str> {
    let [id, timestamp, signatures] =
        ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| header(headers, name));
    let (id, timestamp, signatures) = (id?, timestamp?, signatures?);
    // With a dot in it, where the id ends and the timestamp begins would be anybody's guess.
    if id.is_empty() || id.contains('.') || !is_fresh(timestamp, now) {
        return None;
    }
    let claimed: Vec<Vec<u8>> = signatures
        .split_whitespace()
        .filter_map(|signature| signature.split_once(','))
        .filter(|(version, _)| *version == "v1")
        .filter_map(|(_, encoded)| STANDARD.decode(encoded).ok())
        .collect();
    let parts = [id.as_bytes(), b".", timestamp.as_bytes(), b".", body];
    secrets.sign_any(&parts, &claimed).then_some(id)
}

/// The one value of a header. (Sent twice, the gateway has joined it with a comma.)
fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn is_fresh(timestamp: &str, now: Timestamp) -> bool {
    let digits = !timestamp.is_empty() && timestamp.bytes().all(|b| b.is_ascii_digit());
    let seconds = digits.then(|| timestamp.parse::<i64>().ok()).flatten();
    seconds.is_some_and(|seconds| now.as_second().abs_diff(seconds) <= TOLERANCE_SECS.unsigned_abs())
}
