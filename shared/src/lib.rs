//! Holdfast's shared crate: what every function stands on. Modules carry the name of what they are responsible for;
//! see ARCHITECTURE.md for the map.

pub mod auth;
pub mod config;
pub mod db;
pub mod delivery;
pub mod documents;
pub mod endpoint;
pub mod error;
pub mod fields;
pub mod http;
pub mod idempotency;
pub mod json;
pub mod jwt;
pub mod key;
#[cfg(feature = "migrate")]
pub mod migrate;
pub mod orders;
pub mod outbox;
pub mod reads;
pub mod stock;
pub mod styles;
pub mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
