//! `cargo xtask send stripe|shopify|3pl FILE`: signs a webhook payload as its sender would and posts it to the running
//! stack.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;

use xtask::dev_env::DevEnv;
use xtask::signing;
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
            let signature = signing::stripe(env.get("STRIPE_WEBHOOK_SECRET")?, now, &body)?;
            ("/webhooks/stripe".into(), body, vec![("stripe-signature", signature)])
        }
        Command::Shopify { file, topic, webhook_id } => {
            let body = read(&file)?;
            let signature = signing::shopify(env.get("SHOPIFY_WEBHOOK_SECRET")?, &body)?;
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
            let signature = signing::standard_webhooks(env.get("THREEPL_SECRET")?, &id, now, &body)?;
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
