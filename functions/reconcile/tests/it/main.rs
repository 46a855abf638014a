//! The promises of the reconciliation, tested against a real PostgreSQL and a warehouse that reports by HTTP.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod booking;
mod held;
mod open;
mod pages;
mod resume;
mod runtime;
mod support;
mod wrong;
