//! `POST /webhooks/stripe`: payments, refunds and disputes of our invoices.
//!
//! What an event says is `shared::stripe`; what it comes to is `holdfast.apply_stripe`: each fact once, in whatever order.

use std::str::FromStr;

use http::Method;
use lambda_http::{Body, Request, Response};
use shared::config::{ConfigError, optional};
use shared::error::Problem;
use shared::http::{Answer, Incoming};
use shared::inbox::{Delivery, Receiver, received};
use shared::signature::{self, Secrets};
use shared::stripe;

/// A sandbox's state.
pub struct Webhook {
    /// Database and clock.
    pub receiver: Receiver,
    /// `STRIPE_WEBHOOK_SECRET`: one per endpoint, several while one is rolled.
    pub secrets: Secrets,
    /// `STRIPE_LIVEMODE`.
    pub livemode: Livemode,
}

/// Which of Stripe's two worlds this stack belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Livemode {
    /// Real money: test events touch nothing.
    Live,
    /// Test events only.
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
    /// From the environment, with the connection opened. Where `STRIPE_LIVEMODE` is not given, only real money counts.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let secrets = Secrets::from_env("STRIPE_WEBHOOK_SECRET")?;
        let livemode = optional("STRIPE_LIVEMODE", Livemode::Live)?;
        Ok(Self { receiver: Receiver::cold_start().await?, secrets, livemode })
    }
}

/// Serves one delivery.
pub async fn handle(webhook: &Webhook, request: Request) -> Response<Body> {
    let incoming = Incoming::read(request);
    webhook.receiver.respond(&incoming, receive(webhook, &incoming)).await
}

async fn receive(webhook: &Webhook, incoming: &Incoming) -> Result<Answer, Problem> {
    let ["webhooks", "stripe"] = incoming.route()[..] else { return Err(Problem::not_found()) };
    if incoming.method != Method::POST {
        return Err(Problem::method_not_allowed("POST"));
    }
    let now = (webhook.receiver.now)();
    if !signature::stripe(&webhook.secrets, &incoming.headers, &incoming.body, now) {
        return Err(Problem::bad_signature());
    }
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
