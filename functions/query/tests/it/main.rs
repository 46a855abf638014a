//! The promises of the reads, tested with the deployed handler against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod access;
mod documents;
mod grown;
mod lists;
mod odd_events;
mod reader;
