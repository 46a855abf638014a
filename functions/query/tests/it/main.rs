//! What the reads promise, told against a real Postgres with the handler that is deployed.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod access;
mod documents;
mod lists;
mod reader;
