//! Webhooks of Stripe, Shopify and 3PLs: signature, reading of the body, inbox.
//!
//! Promises: nothing is parsed before its signature is verified; an event takes effect at most once; an event that cannot be
//! processed is stored with its whole body as an exception for an operator.
//! May touch: only `inbox` touches the database, by `holdfast.receive` and the lookup of a 3PL's secret.

pub mod inbox;
mod members;
mod minor_units;
pub mod reading;
pub mod shopify;
mod shopify_members;
pub mod signature;
pub mod signing_secret;
pub mod stripe;
pub mod threepl;
