//! Outgoing events: the relay's access to the outbox, and one delivery attempt for each kind of destination. And what a
//! partner is asked for (`fetch`), since the same addresses may be called and no others.
//!
//! Promises: at-least-once delivery under a stable message id; no transaction is open during a call to a partner.
//! May touch: the database, in `outbox`, `settlement` and `shopify_items`; the network: `attempt`, `fetch` and `shopify_push` send
//! requests, `address` looks names up. `email` only renders.

pub mod address;
pub mod attempt;
pub mod email;
pub mod fetch;
pub mod outbox;
pub mod settlement;
mod shopify_api;
pub mod shopify_items;
pub mod shopify_push;
pub mod shopify_questions;
