//! Wiring: configuration, connection, run.

use console::Console;
use lambda_http::Error;
use shared::http::serve;

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let console = Console::cold_start().await?;
    serve::run(async |request| console::handle(&console, request).await).await
}
