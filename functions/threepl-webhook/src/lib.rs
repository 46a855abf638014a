//! `POST /webhooks/3pl/{accountId}`: goods that a 3PL expects, has received and has shipped.
//!
//! What an event says is `shared::webhooks::threepl`; what it comes to is `holdfast.apply_threepl`: each line once, in whatever
//! order.

use lambda_http::{Body, Request, Response};
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::runtime::config::ConfigError;
use shared::webhooks::inbox::{Delivery, Receiver};
use shared::webhooks::{signature, threepl};

/// A sandbox's state. Each account has secrets of its own, in the database.
pub struct Webhook {
    /// Database and clock.
    pub receiver: Receiver,
}

impl Webhook {
    /// From the environment, with the connection opened.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        Ok(Self { receiver: Receiver::cold_start().await? })
    }
}

/// Its routes.
pub const ROUTES: &[Route<Webhook>] =
    &[Route::new("POST", "/webhooks/3pl/{accountId}", Access::Signature, |webhook, request| {
        Box::pin(receive(webhook, request))
    })];

/// Serves one delivery.
pub async fn handle(webhook: &Webhook, request: Request) -> Response<Body> {
    webhook.receiver.serve(webhook, ROUTES, request).await
}

async fn receive(webhook: &Webhook, request: &Matched<'_>) -> Result<Answer, Problem> {
    let incoming = request.incoming;
    // An account that is not there has no secret, and so no signature that holds.
    let account = request.text("accountId");
    let secrets = webhook.receiver.threepl_secrets(account).await?;
    let now = (webhook.receiver.now)();
    let event_id = signature::standard_webhooks(&secrets, &incoming.headers, &incoming.body, now)
        .ok_or_else(Problem::bad_signature)?;
    let delivery = Delivery {
        provider: &format!("3pl:{account}"),
        event_id: Some(event_id),
        reading: threepl::read(&incoming.body),
        body: &incoming.body,
    };
    webhook.receiver.receive(&delivery).await
}
