//! Wiring: configuration, connection, run.

use lambda_http::Error;
use shared::http::serve;
use shared::idempotency::endpoint::Endpoint;

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let endpoint = Endpoint::cold_start().await?;
    serve::run(async |request| style_save::handle(&endpoint, request).await).await
}
