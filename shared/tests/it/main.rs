//! What the shared crate and the schema promise on their own.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod canonical_json;
mod gateway_events;
mod jwks;
mod key_vectors;
mod ledgers;
mod migrations;
mod row_security;
mod statements;

use testing::case;

/// A file of the published test vectors, as JSON.
pub fn case_json(path: &str) -> Option<serde_json::Value> {
    case(path).map(|bytes| serde_json::from_slice(&bytes).unwrap())
}
