//! Wiring: configuration, connection, run.

use lambda_http::{Error, Request, service_fn};
use shared::idempotency::endpoint::Endpoint;

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let endpoint = Endpoint::cold_start().await?;
    lambda_http::run(service_fn(async |request: Request| {
        Ok::<_, Error>(customer_save::handle(&endpoint, request).await)
    }))
    .await
}
