//! Environment variables, secrets, logs and metrics.
//!
//! Promises: a missing or wrong variable stops the cold start with an error that names it; no value is ever logged.
//! May touch: the environment, standard output, and the network for secrets alone; no database.

pub mod aws;
pub mod config;
pub mod environment;
pub mod metrics;
pub mod request_log;
pub mod sealed;
pub mod secret;
pub mod telemetry;
