//! Harness for integration tests and the bench: a database per test, API Gateway events, credentials, proxies that break
//! connections, a Lambda emulator. Panics when it cannot do its work, since it is test code.
#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a test that cannot be set up has failed"
)]

mod arrival;
mod blocks;
mod caller;
mod cases;
mod database;
pub mod emulator;
mod event;
mod left_out;
mod moto;
mod proxy;
mod seed;
mod story;
mod temp_file;
mod warehouse;
mod wire;

pub use arrival::orders_of_arrival;
pub use blocks::blocks;
pub use caller::{
    AUDIENCE, ISSUER, JWT_SECRET, SCOPE_CLAIM, SECRETS_KEYS, TENANT_CLAIM, auth_config, issue_api_key,
    sealer, token, token_with,
};
pub use cases::{case, case_dir};
pub use database::TestDb;
pub use event::{Event, Reply};
pub use holdfast::migrate::{all_files, migrate};
pub use left_out::{left_out, python};
pub use moto::Moto;
pub use proxy::Proxy;
pub use seed::{Destination, Seed, Tenant};
pub use story::{Hold, Shop, fresh_key, lines};
pub use temp_file::TempFile;
pub use warehouse::{Asked, Warehouse};
pub use wire::{Action, Counts, Toward, Wire};
