//! What goes out: the relay's side of the outbox, and the attempt at each kind of destination.
//!
//! Promises: at least once under a stable id; no transaction is open while a partner is called; no call to an address that
//! is not public.
//! May touch: `outbox` and `settlement` move rows of the outbox through `holdfast.relay_…`, `shopify_items` keeps
//! what a push has learned. `attempt` and `shopify_push`
//! call partners and touch no database. `address` and `email` judge and render.

pub mod address;
pub mod attempt;
pub mod email;
pub mod outbox;
pub mod settlement;
pub mod shopify_items;
pub mod shopify_push;
