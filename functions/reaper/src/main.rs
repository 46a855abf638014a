//! Wiring: configuration, connection, run.

use lambda_runtime::{Error, LambdaEvent, service_fn};
use shared::db::connection::Db;

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let config = reaper::Config::from_env()?;
    let db = Db::new(&config.database)?;
    lambda_runtime::run(service_fn(async |event: LambdaEvent<serde_json::Value>| {
        Ok::<_, Error>(reaper::handle(&db, &config, event).await?)
    }))
    .await
}
