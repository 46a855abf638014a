//! Tests of the shared crate and of the database schema, without a function around them.
#![expect(clippy::unwrap_used, reason = "in a test, a missing value is a failure")]

mod canonical_json;
mod gateway_events;
mod jwks;
mod key_vectors;
mod ledgers;
mod migrations;
mod row_security;
mod server_log;
mod silence;
mod statements;
mod webhook_faults;

use testing::case;

/// A file of published test vectors, as JSON; `None` if the vectors are not installed.
pub fn case_json(path: &str) -> Option<serde_json::Value> {
    case(path).map(|bytes| serde_json::from_slice(&bytes).unwrap())
}
