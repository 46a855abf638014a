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

use std::path::PathBuf;

/// A file of the published test vectors beside the project; none where they are not there, which is said.
pub fn case(path: &str) -> Option<Vec<u8>> {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases").join(path);
    let read = std::fs::read(&file).ok();
    if read.is_none() {
        eprintln!("left out: test vectors {path} are not here");
    }
    read
}

/// The same, as JSON.
pub fn case_json(path: &str) -> Option<serde_json::Value> {
    case(path).map(|bytes| serde_json::from_slice(&bytes).unwrap())
}
