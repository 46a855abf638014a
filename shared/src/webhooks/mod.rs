//! What Stripe, Shopify and a 3PL tell us: proof of the sender, reading of the body, one receipt per event.
//!
//! Promises: nothing is parsed before its signature holds; an event takes effect at most once; what cannot be processed is
//! kept whole for a person.
//! May touch: `inbox` sends one message to `holdfast.receive`. `signature` and the readers (`reading`, `stripe`, `shopify`,
//! `threepl`) touch nothing.

pub mod inbox;
pub mod reading;
pub mod shopify;
pub mod signature;
pub mod stripe;
pub mod threepl;
