//! Harness for integration tests: a database per test, API Gateway events, credentials, a proxy that breaks connections,
//! Lambda's side of a function. For tests and the bench only.
//! Panics where it cannot do its job: it is test code.
#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot be set up has failed"
)]

mod caller;
mod cases;
mod database;
pub mod emulator;
mod event;
mod proxy;
mod seed;
mod story;
mod wire;

pub use caller::{
    AUDIENCE, ISSUER, JWT_SECRET, SCOPE_CLAIM, TENANT_CLAIM, auth_config, issue_api_key, token, token_with,
};
pub use cases::{case, case_dir};
pub use database::TestDb;
pub use event::{Event, Reply};
pub use holdfast::migrate::migrate;
pub use proxy::Proxy;
pub use seed::{Destination, Seed, Tenant};
pub use story::{Hold, Shop, fresh_key, lines};
pub use wire::{Action, Counts, Toward, Wire};
