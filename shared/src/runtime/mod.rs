//! Environment variables, logs and metrics.
//!
//! Promises: a missing or wrong variable stops the cold start with an error that names it; no value is ever logged.
//! May touch: the environment and standard output; no database and no network.

pub mod config;
pub mod metrics;
pub mod request_log;
pub mod telemetry;
