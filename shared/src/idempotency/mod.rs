//! A repeat is harmless: the key, the claim, the transaction around the work, and what an endpoint does before it.
//!
//! Promises: for one tenant and key the work commits at most once, with its recorded answer or not at all.
//! May touch: `idempotency_key` through `holdfast.claim` and `holdfast.record`. `once` is the only place that commits keyed
//! work; `key` and `precondition` read headers and touch nothing.

pub mod endpoint;
pub mod key;
pub mod once;
pub mod precondition;
