//! Wiring: configuration, connection, run.

use lambda_http::Error;
use shared::http::serve;
use stripe_webhook::Webhook;

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let webhook = Webhook::cold_start().await?;
    serve::run(async |request| stripe_webhook::handle(&webhook, request).await).await
}
