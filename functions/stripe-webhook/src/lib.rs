//! `POST /webhooks/stripe`: payments, refunds and disputes of our invoices.
//!
//! What an event says is `shared::webhooks::stripe`; what it comes to is `holdfast.apply_stripe`: each fact once, in whatever order.

use std::str::FromStr;

use lambda_http::{Body, Request, Response};
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::runtime::config::{ConfigError, optional};
use shared::webhooks::inbox::{Delivery, Receiver, received};
use shared::webhooks::signature::{self, Secrets};
use shared::webhooks::stripe;

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

/// Its routes.
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
