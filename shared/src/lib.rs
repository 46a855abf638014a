//! What every function stands on, in wings by responsibility. A wing may use those below it and never one above:
//!
//! ```text
//! operations   what an operator changes: destinations, dead letters, exceptions
//! domain       what is promised and sold: orders, stock, styles, invoices, reads
//! webhooks     what senders tell: signature, reading, inbox        delivery   what goes out: claim, send, settle
//! idempotency  a repeat is harmless: key, claim, endpoint
//! http         from an event to a request, from an answer to a response; who is calling
//! db           the connection, and the one way to call SQL
//! runtime      environment variables, logs, metrics
//! ```
//!
//! `xtask/tests/tidy/wings.rs` holds the direction; ARCHITECTURE.md has the picture.

pub mod db;
pub mod delivery;
pub mod domain;
pub mod http;
pub mod idempotency;
pub mod operations;
pub mod runtime;
pub mod webhooks;
