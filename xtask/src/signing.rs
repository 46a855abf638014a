//! Signatures of webhooks, as their senders make them.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::Sha256;

/// The header `X-Shopify-Hmac-Sha256`.
pub fn shopify(secret: &str, body: &[u8]) -> Result<String> {
    Ok(STANDARD.encode(hmac(secret.as_bytes(), &[body])?))
}

/// The header `webhook-signature` of Standard Webhooks; the secret is `whsec_…`.
pub fn standard_webhooks(secret: &str, id: &str, now: Timestamp, body: &[u8]) -> Result<String> {
    Ok(standardwebhooks::Webhook::new(secret)?.sign(id, now.as_second(), body)?)
}

/// The header `Stripe-Signature`: `t=…,v1=hex(HMAC-SHA256(secret, "t.body"))`, with the whole secret as the key, `whsec_` included.
pub fn stripe(secret: &str, now: Timestamp, body: &[u8]) -> Result<String> {
    let t = now.as_second().to_string();
    let signature = hmac(secret.as_bytes(), &[t.as_bytes(), b".", body])?;
    Ok(format!("t={t},v1={}", hex::encode(signature)))
}

fn hmac(secret: &[u8], parts: &[&[u8]]) -> Result<Vec<u8>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret)?;
    parts.iter().for_each(|part| mac.update(part));
    Ok(mac.finalize().into_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_signature_is_the_hex_hmac_of_timestamp_and_body() {
        // python3 -c 'import hmac; print(hmac.new(b"whsec_x", b"1700000000.{}", "sha256").hexdigest())'
        let now = Timestamp::from_second(1_700_000_000).expect("a time");
        let signature = stripe("whsec_x", now, b"{}").expect("signed");
        assert_eq!(
            signature,
            "t=1700000000,v1=be8cb8325f2202445260a855532f967e30ad2a9394ce28da66ee02880ddcb661"
        );
    }
}
