//! `POST /webhooks/shopify`: channel orders, their refunds, and the privacy topics that Shopify requires of every app.
//!
//! `shared::webhooks::shopify` reads an event; `holdfast.apply_shopify` applies its effect: each line once, in any order of
//! arrival.

use std::time::Duration;

use lambda_http::{Body, Request, Response};
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::runtime::config::ConfigError;
use shared::runtime::sealed::{self, Sealer};
use shared::webhooks::inbox::{Delivery, Receiver};
use shared::webhooks::reading::Reading;
use shared::webhooks::shopify;
use shared::webhooks::signature::{self, Secrets};
use shared::webhooks::signing_secret::SigningSecret;

/// Shopify waits 5 s, connecting included.
const DEADLINE: Duration = Duration::from_millis(4_500);
/// As for texts in a body (`webhooks::reading`).
const HEADER_MAX_BYTES: usize = 255;

/// The state of one sandbox.
pub struct Webhook {
    /// Database, clock and time limit.
    pub receiver: Receiver,
    /// `SHOPIFY_WEBHOOK_SECRET`: the app's client secret; after a rotation the old one, too, for an hour.
    pub secrets: SigningSecret,
    /// Opens the secrets of shops that have their own.
    pub sealer: Sealer,
}

impl Webhook {
    /// From the environment, with the connection opened. The error names the variable that is missing or wrong.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let secrets = SigningSecret::from_env("SHOPIFY_WEBHOOK_SECRET")?;
        let receiver = Receiver { deadline: DEADLINE, ..Receiver::cold_start().await? };
        secrets.warm().await;
        Ok(Self { receiver, secrets, sealer: sealed::from_env().await? })
    }
}

/// Method, path and handler.
pub const ROUTES: &[Route<Webhook>] =
    &[Route::new("POST", "/webhooks/shopify", Access::Signature, |webhook, request| {
        Box::pin(receive(webhook, request))
    })];

/// Serves one delivery.
pub async fn handle(webhook: &Webhook, request: Request) -> Response<Body> {
    webhook.receiver.serve(webhook, ROUTES, request).await
}

async fn receive(webhook: &Webhook, request: &Matched<'_>) -> Result<Answer, Problem> {
    let incoming = request.incoming;
    // Shopify always sends topic, shop and webhook id: a delivery without them is not from Shopify.
    let header = |name: &str| {
        let value = incoming.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        value.filter(|value| (1..=HEADER_MAX_BYTES).contains(&value.len())).ok_or_else(Problem::bad_signature)
    };
    let domain = header("x-shopify-shop-domain")?.to_lowercase();
    // Whoever knows the app's secret must not speak for a shop that has its own.
    let own = webhook.receiver.shop_secrets(&webhook.sealer, &domain).await?;
    let signed = |secrets: &Secrets| signature::shopify(secrets, &incoming.headers, &incoming.body);
    match own {
        Some(own) if !signed(&own) => return Err(Problem::bad_signature()),
        Some(_) => {}
        None => webhook.secrets.check(signed).await?,
    }
    let topic = header("x-shopify-topic")?;
    let provider = format!("shopify:{domain}");
    // Not `x-shopify-event-id`: that is the id of the merchant's action, which several topics share.
    let webhook_id = header("x-shopify-webhook-id")?;
    let triggered_at = incoming.headers.get("x-shopify-triggered-at").and_then(|value| value.to_str().ok());
    let delivery = Delivery {
        provider: &provider,
        event_id: Some(webhook_id),
        reading: Reading {
            topic: topic.to_owned(),
            meaning: shopify::read(topic, triggered_at, &incoming.body),
        },
        body: &incoming.body,
    };
    webhook.receiver.receive(&delivery).await
}
