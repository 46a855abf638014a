//! Wiring: configuration, connection, run.

use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let config = reconcile::Config::from_env()?;
    let reconciler = reconcile::Reconciler::new(&config).await?;
    lambda_runtime::run(service_fn(async |event: LambdaEvent<serde_json::Value>| {
        Ok::<_, Error>(reconcile::handle(&reconciler, &config, event).await?)
    }))
    .await
}
