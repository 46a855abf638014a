//! Wiring: configuration, connection, run.

use lambda_http::{Error, Request, service_fn};
use shopify_webhook::Webhook;

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let webhook = Webhook::cold_start().await?;
    lambda_http::run(service_fn(async |request: Request| {
        Ok::<_, Error>(shopify_webhook::handle(&webhook, request).await)
    }))
    .await
}
