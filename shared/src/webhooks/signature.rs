//! Verifies the signatures of webhooks over the raw body, before anything is parsed or stored.
//!
//! Promises: compares every signature with every current secret in constant time, so that a secret can be rotated without
//! losing a delivery; a signed timestamp must be within 300 s of now.
//! Relies on: the caller's clock; `Incoming`, which has decoded the gateway's base64.
//! Does not promise freshness for Shopify, which signs no timestamp: there only the inbox stops a replay.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use jiff::Timestamp;
use sha2::Sha256;

/// As Stripe and Standard Webhooks recommend. Applies to the future too, else such a signature could be replayed until then.
const TOLERANCE_SECS: i64 = 300;

/// A sender's current signing secrets; several during a rotation.
#[derive(Clone)]
pub struct Secrets(Vec<Vec<u8>>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}

impl Secrets {
    /// Secrets separated by commas or white space, each used as its UTF-8 bytes.
    pub fn plain(text: &str) -> Self {
        Self(split(text).map(|secret| secret.as_bytes().to_vec()).collect())
    }

    /// Standard Webhooks secrets: base64, usually after `whsec_`. Invalid and empty ones are dropped: they verify nothing.
    pub fn base64(text: &str) -> Self {
        let keys = split(text).filter_map(|secret| {
            let encoded = secret.strip_prefix("whsec_").unwrap_or(secret);
            STANDARD.decode(encoded).ok().filter(|key| !key.is_empty())
        });
        Self(keys.collect())
    }

    /// Whether there is none: then nothing is verified.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether any secret verifies any of the claimed MACs over `parts`. Tries every pair, so that the duration reveals nothing.
    fn verify_any(&self, parts: &[&[u8]], claimed: &[Vec<u8>]) -> bool {
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

fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c == ',' || c.is_whitespace()).filter(|secret| !secret.is_empty())
}

/// `Stripe-Signature: t=<seconds>,v1=<hex>[,v1=<hex>…]` over `<t>.<body>`; other schemes are ignored.
pub fn stripe(secrets: &Secrets, headers: &HeaderMap, body: &[u8], now: Timestamp) -> bool {
    let Some(header) = single_header(headers, "stripe-signature") else { return false };
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
    secrets.verify_any(&[timestamp.as_bytes(), b".", body], &claimed)
}

/// `X-Shopify-Hmac-Sha256: <base64>` over the body.
pub fn shopify(secrets: &Secrets, headers: &HeaderMap, body: &[u8]) -> bool {
    let claimed =
        single_header(headers, "x-shopify-hmac-sha256").and_then(|value| STANDARD.decode(value.trim()).ok());
    claimed.is_some_and(|claimed| secrets.verify_any(&[body], &[claimed]))
}

/// Standard Webhooks: `webhook-signature: v1,<base64>[ v1,<base64>…]` over `<webhook-id>.<webhook-timestamp>.<body>`.
/// Returns the id, which is signed too.
pub fn standard_webhooks<'h>(
    secrets: &Secrets,
    headers: &'h HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Option<&'h str> {
    let [id, timestamp, signatures] =
        ["webhook-id", "webhook-timestamp", "webhook-signature"].map(|name| single_header(headers, name));
    let (id, timestamp, signatures) = (id?, timestamp?, signatures?);
    // An id with a dot would make the signed text ambiguous.
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
    secrets.verify_any(&parts, &claimed).then_some(id)
}

/// The value of a header that was sent once. (The gateway joins repeated ones with a comma.)
fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

fn is_fresh(timestamp: &str, now: Timestamp) -> bool {
    let digits = !timestamp.is_empty() && timestamp.bytes().all(|b| b.is_ascii_digit());
    let seconds = digits.then(|| timestamp.parse::<i64>().ok()).flatten();
    seconds.is_some_and(|seconds| now.as_second().abs_diff(seconds) <= TOLERANCE_SECS.unsigned_abs())
}
