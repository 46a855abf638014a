//! Idempotency: the key, the claim, the transaction around the work, and the checks of an endpoint before it.
//!
//! Promises: for one tenant and key the work commits at most once, together with its recorded answer or not at all.
//! May touch: `idempotency_key` through `holdfast.claim` and `holdfast.record_key`. Only `once` commits keyed work; `key` and
//! `precondition` read headers and touch nothing.

pub mod endpoint;
pub mod key;
pub mod once;
pub mod precondition;
