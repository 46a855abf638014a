//! Wiring: configuration, connection, run.

use lambda_runtime::{Error, LambdaEvent, service_fn};

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let function = ses_events::SesEvents::from_env()?;
    lambda_runtime::run(service_fn(async |event: LambdaEvent<serde_json::Value>| {
        Ok::<_, Error>(ses_events::handle(&function, event.payload).await?)
    }))
    .await
}
