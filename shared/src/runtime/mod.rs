//! What surrounds a function: its environment variables, its logs, its metrics.
//!
//! Promises: a missing or wrong variable stops the cold start by its name; no value of a variable is ever logged.
//! May touch: the environment and standard output. Knows no database, no HTTP and no table.

pub mod config;
pub mod metrics;
pub mod telemetry;
