//! `POST /webhooks/3pl/{accountId}`: goods that a 3PL expects, has received and has shipped.
//!
//! What an event says is `shared::threepl`; what it comes to is `holdfast.apply_threepl`: each line once, in whatever
//! order.

use http::Method;
use lambda_http::{Body, Request, Response};
use shared::config::ConfigError;
use shared::error::Problem;
use shared::http::{Answer, Incoming};
use shared::inbox::{Delivery, Receiver};
use shared::{signature, threepl};

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

/// Serves one delivery.
pub async fn handle(webhook: &Webhook, request: Request) -> Response<Body> {
    let incoming = Incoming::read(request);
    webhook.receiver.respond(&incoming, receive(webhook, &incoming)).await
}

async fn receive(webhook: &Webhook, incoming: &Incoming) -> Result<Answer, Problem> {
    let ["webhooks", "3pl", account] = incoming.route()[..] else { return Err(Problem::not_found()) };
    if incoming.method != Method::POST {
        return Err(Problem::method_not_allowed("POST"));
    }
    // An account that is not there has no secret, and so no signature that holds.
    let secrets = threepl::secrets(&webhook.receiver.db, account).await?;
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
