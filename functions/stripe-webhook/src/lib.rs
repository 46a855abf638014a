//! `POST /webhooks/stripe`: payments, refunds and disputes of our invoices.
//!
//! `shared::webhooks::stripe` reads an event; `holdfast.apply_stripe` applies its effect: each fact once, in any order of
//! arrival.

use std::str::FromStr;

use lambda_http::{Body, Request, Response};
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::runtime::config::{ConfigError, optional};
use shared::webhooks::inbox::{Delivery, Receiver, received};
use shared::webhooks::signature;
use shared::webhooks::signing_secret::SigningSecret;
use shared::webhooks::stripe;

/// The state of one sandbox.
pub struct Webhook {
    /// Database, clock and time limit.
    pub receiver: Receiver,
    /// `STRIPE_WEBHOOK_SECRET`: one per endpoint, several during a rotation.
    pub secrets: SigningSecret,
    /// `STRIPE_LIVEMODE`.
    pub livemode: Livemode,
}

/// Which of Stripe's events this stack processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Livemode {
    /// Real money; test events change nothing.
    Live,
    /// Test events; real money changes nothing.
    Test,
    /// Both, for development.
    Any,
}

impl FromStr for Livemode {
    type Err = &'static str;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "live" => Ok(Self::Live),
            "test" => Ok(Self::Test),
            "any" => Ok(Self::Any),
            _ => Err("it is `live`, `test` or `any`"),
        }
    }
}

impl Livemode {
    fn takes(self, livemode: Option<bool>) -> bool {
        match self {
            Self::Live => livemode == Some(true),
            Self::Test => livemode == Some(false),
            Self::Any => true,
        }
    }
}

impl Webhook {
    /// From the environment, with the connection opened; without `STRIPE_LIVEMODE` only real money counts. The error names the
    /// variable that is missing or wrong.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let secrets = SigningSecret::from_env("STRIPE_WEBHOOK_SECRET")?;
        let livemode = optional("STRIPE_LIVEMODE", Livemode::Live)?;
        let receiver = Receiver::cold_start().await?;
        secrets.warm().await;
        Ok(Self { receiver, secrets, livemode })
    }
}

/// Method, path and handler.
pub const ROUTES: &[Route<Webhook>] =
    &[Route::new("POST", "/webhooks/stripe", Access::Signature, |webhook, request| {
        Box::pin(receive(webhook, request))
    })];

/// Serves one delivery.
pub async fn handle(webhook: &Webhook, request: Request) -> Response<Body> {
    webhook.receiver.serve(webhook, ROUTES, request).await
}

async fn receive(webhook: &Webhook, request: &Matched<'_>) -> Result<Answer, Problem> {
    let incoming = request.incoming;
    let now = (webhook.receiver.now)();
    webhook
        .secrets
        .check(|secrets| signature::stripe(secrets, &incoming.headers, &incoming.body, now))
        .await?;
    let event = stripe::read(&incoming.body);
    if event.id.is_some() && !webhook.livemode.takes(event.livemode) {
        return Ok(received(false));
    }
    let delivery = Delivery {
        provider: "stripe",
        event_id: event.id.as_deref(),
        reading: event.reading,
        body: &incoming.body,
    };
    webhook.receiver.receive(&delivery).await
}
