//! Wiring: configuration, run.

use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let config = migrate::Config::from_env()?;
    lambda_runtime::run(service_fn(async |event: LambdaEvent<migrate::Request>| {
        Ok::<_, Error>(migrate::handle(&config, event.payload).await?)
    }))
    .await
}
