//! `POST /webhooks/shopify`: channel orders and their refunds, and what Shopify asks of every app.
//!
//! What an event says is `shared::webhooks::shopify`; what it comes to is `holdfast.apply_shopify`: each line once, in whatever
//! order.

use std::time::Duration;

use lambda_http::{Body, Request, Response};
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::runtime::config::ConfigError;
use shared::webhooks::inbox::{Delivery, Receiver};
use shared::webhooks::reading::Reading;
use shared::webhooks::shopify;
use shared::webhooks::signature::{self, Secrets};

/// Shopify waits 5 s, its connecting included.
const DEADLINE: Duration = Duration::from_millis(4_500);

/// A sandbox's state.
pub struct Webhook {
    /// Database and clock.
    pub receiver: Receiver,
    /// `SHOPIFY_WEBHOOK_SECRET`: the app's client secret; the old one too for an hour after a rotation.
    pub secrets: Secrets,
}

impl Webhook {
    /// From the environment, with the connection opened.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let secrets = Secrets::from_env("SHOPIFY_WEBHOOK_SECRET")?;
        let receiver = Receiver { deadline: DEADLINE, ..Receiver::cold_start().await? };
        Ok(Self { receiver, secrets })
    }
}

/// Its routes.
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
    if !signature::shopify(&webhook.secrets, &incoming.headers, &incoming.body) {
        return Err(Problem::bad_signature());
    }
    // Shopify always says who, what and which delivery: without these it was not Shopify who sent it.
    let header = |name: &str| {
        let value = incoming.headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
        value.filter(|value| (1..=255).contains(&value.len())).ok_or_else(Problem::bad_signature)
    };
    let topic = header("x-shopify-topic")?;
    let provider = format!("shopify:{}", header("x-shopify-shop-domain")?.to_lowercase());
    // The event id of the same name names the merchant's action, which several topics tell of.
    let webhook_id = header("x-shopify-webhook-id")?;
    let delivery = Delivery {
        provider: &provider,
        event_id: Some(webhook_id),
        reading: Reading { topic: topic.to_owned(), meaning: shopify::read(topic, &incoming.body) },
        body: &incoming.body,
    };
    webhook.receiver.receive(&delivery).await
}
