//! `POST /webhooks/3pl/{accountId}`: goods that a 3PL (third-party logistics provider) expects, has received or has shipped.
//!
//! `shared::webhooks::threepl` reads an event; `holdfast.apply_threepl` applies its effect: each line once, in any order of
//! arrival.

use lambda_http::{Body, Request, Response};
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::runtime::config::ConfigError;
use shared::runtime::sealed::{self, Sealer};
use shared::webhooks::inbox::{Delivery, Receiver};
use shared::webhooks::{signature, threepl};

/// The state of one sandbox. The secrets of each account are in the database.
pub struct Webhook {
    /// Database, clock and time limit.
    pub receiver: Receiver,
    /// Opens the accounts' secrets.
    pub sealer: Sealer,
}

impl Webhook {
    /// From the environment, with the connection opened. The error names the variable that is missing or wrong.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let sealer = sealed::from_env().await?;
        Ok(Self { receiver: Receiver::cold_start().await?, sealer })
    }
}

/// Method, path and handler.
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
    // An unknown account has no secret, so no signature is valid.
    let account = request.text("accountId");
    let secrets = webhook.receiver.threepl_secrets(&webhook.sealer, account).await?;
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
