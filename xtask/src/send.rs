//! `cargo xtask send stripe|shopify|3pl FILE`: signs a webhook payload as its sender would and posts it to the running
//! stack.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::Sha256;

use xtask::dev_env::DevEnv;
use xtask::workspace::Workspace;

#[derive(clap::Subcommand)]
pub enum Command {
    /// A Stripe event, signed in the header Stripe-Signature.
    Stripe {
        /// A file with the event's JSON, which is sent byte for byte.
        file: PathBuf,
    },
    /// A Shopify webhook, signed in the header X-Shopify-Hmac-Sha256.
    Shopify {
        /// A file with the order's or refund's JSON, which is sent byte for byte.
        file: PathBuf,
        /// The header X-Shopify-Topic.
        #[arg(long, default_value = "orders/create")]
        topic: String,
        /// The header X-Shopify-Webhook-Id: the same id again is a repeat of the same delivery [default: a new id].
        #[arg(long)]
        webhook_id: Option<String>,
    },
    /// A 3PL's message, signed according to Standard Webhooks.
    #[command(name = "3pl")]
    Threepl {
        /// A file with the message's JSON, which is sent byte for byte.
        file: PathBuf,
        /// The header webhook-id: the same id again is a repeat of the same delivery [default: a new id].
        #[arg(long)]
        webhook_id: Option<String>,
    },
}

/// Posts the payload and prints the answer; fails unless its status is 2xx.
pub async fn run(command: Command) -> Result<()> {
    let env = DevEnv::read(&Workspace::open()?)?;
    let fresh = || uuid::Uuid::new_v4().to_string();
    let now = Timestamp::now();
    let (path, body, headers) = match command {
        Command::Stripe { file } => {
            let body = read(&file)?;
            let signature = stripe_signature(env.get("STRIPE_WEBHOOK_SECRET")?, now, &body)?;
            ("/webhooks/stripe".into(), body, vec![("stripe-signature", signature)])
        }
        Command::Shopify { file, topic, webhook_id } => {
            let body = read(&file)?;
            let signature = STANDARD.encode(hmac(env.get("SHOPIFY_WEBHOOK_SECRET")?.as_bytes(), &[&body])?);
            let headers = vec![
                ("x-shopify-hmac-sha256", signature),
                ("x-shopify-topic", topic),
                ("x-shopify-shop-domain", env.get("SHOPIFY_SHOP")?.into()),
                ("x-shopify-webhook-id", webhook_id.unwrap_or_else(fresh)),
                ("x-shopify-triggered-at", now.to_string()),
            ];
            ("/webhooks/shopify".into(), body, headers)
        }
        Command::Threepl { file, webhook_id } => {
            let body = read(&file)?;
            let id = webhook_id.unwrap_or_else(fresh);
            let signer = standardwebhooks::Webhook::new(env.get("THREEPL_SECRET")?)?;
            let signature = signer.sign(&id, now.as_second(), &body)?;
            let headers = vec![
                ("webhook-id", id),
                ("webhook-timestamp", now.as_second().to_string()),
                ("webhook-signature", signature),
            ];
            (format!("/webhooks/3pl/{}", env.get("THREEPL_ACCOUNT")?), body, headers)
        }
    };
    let mut request = reqwest::Client::new()
        .post(format!("{}{path}", env.get("HOLDFAST_URL")?))
        .header("content-type", "application/json")
        .body(body);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let answer =
        request.send().await.context("the stack does not answer: does `cargo xtask dev` still run?")?;
    let status = answer.status();
    println!("{status}\n{}", answer.text().await?);
    if !status.is_success() {
        bail!("the webhook was not accepted");
    }
    Ok(())
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// `t=…,v1=hex(HMAC-SHA256(secret, "t.body"))`, with the whole secret as the key, `whsec_` included.
fn stripe_signature(secret: &str, now: Timestamp, body: &[u8]) -> Result<String> {
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
        let signature = stripe_signature("whsec_x", now, b"{}").expect("signed");
        assert_eq!(
            signature,
            "t=1700000000,v1=be8cb8325f2202445260a855532f967e30ad2a9394ce28da66ee02880ddcb661"
        );
    }
}
