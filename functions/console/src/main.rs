//! Wiring: configuration, connection, run.

use console::Console;
use lambda_http::{Error, Request, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let console = Console::cold_start().await?;
    lambda_http::run(service_fn(async |request: Request| {
        Ok::<_, Error>(console::handle(&console, request).await)
    }))
    .await
}
