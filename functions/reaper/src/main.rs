//! Wiring: configuration, connection, run.

use aws::mailer::aws_config;
use aws::scheduler::Scheduler;
use lambda_runtime::{Error, LambdaEvent, service_fn};
use shared::db::connection::Db;

#[tokio::main]
async fn main() -> Result<(), Error> {
    shared::runtime::telemetry::init();
    let config = reaper::Config::from_env()?;
    let db = Db::new(&config.database)?;
    // `AWS_REGION` is set on Lambda; elsewhere there is nobody to ask for another run.
    let scheduler = match std::env::var_os("AWS_REGION") {
        Some(_) => Scheduler::from_env(&aws_config().await)?,
        None => None,
    };
    lambda_runtime::run(service_fn(async |event: LambdaEvent<serde_json::Value>| {
        Ok::<_, Error>(reaper::handle(&db, &config, scheduler.as_ref(), event).await?)
    }))
    .await
}
