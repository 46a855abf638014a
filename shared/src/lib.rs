//! What every function stands on, in wings by responsibility, from the top down. A wing uses no other than these:
//!
//! ```text
//! operations   what an operator changes: destinations, dead letters, exceptions      all below but domain
//! domain       what is promised and sold: orders, stock, styles, customers, invoices idempotency, http, db, runtime
//! webhooks     what senders tell: signature, reading, inbox                          http, db, runtime
//! idempotency  a repeat is harmless: key, claim, endpoint                            http, db, runtime
//! delivery     what goes out: claim, send, settle                                    db, runtime
//! http         from an event to a request, from an answer to a response              db, runtime
//! db           the connection, and the one way to call SQL                           runtime
//! runtime      environment variables, logs, metrics                                  none
//! ```
//!
//! `xtask/tests/tidy/wings.rs` holds that; ARCHITECTURE.md has the picture.

pub mod db;
pub mod delivery;
pub mod domain;
pub mod http;
pub mod idempotency;
pub mod operations;
pub mod runtime;
pub mod webhooks;
