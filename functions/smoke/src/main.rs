//! Wiring: configuration, run.

use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let config = smoke::Config::from_env()?;
    lambda_runtime::run(service_fn(async |event: LambdaEvent<smoke::Hook>| {
        Ok::<_, Error>(smoke::handle(&config, &event.payload).await?)
    }))
    .await
}
