//! The relay's promises, each against a real database and partners that are real HTTP servers.
#![expect(clippy::unwrap_used, reason = "tests")]

mod crash;
mod deliver;
mod fail;
mod runtime;
mod share;
mod support;
mod vectors;
