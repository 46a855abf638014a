//! What the functions promise together: real handlers, real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod all_hands;
mod all_writers;
mod any_history;
mod billed_once;
mod billing;
mod books;
mod connections;
mod counted;
mod credit;
mod desk;
mod history;
mod life;
mod lock_order;
mod methods;
mod outcome;
mod partial;
mod partial_model;
mod preconditions;
mod promise_model;
mod tenant_row;
mod warehouse;
mod wire;

use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply};

/// Sends an event to allocate or release, as its path says.
pub async fn send(sandbox: &Endpoint, event: &Event) -> Reply {
    let request = event.request();
    let allocates = event.to_json()["rawPath"].as_str().unwrap().ends_with("/allocate");
    Reply::from(if allocates {
        allocate::handle(sandbox, request).await
    } else {
        release::handle(sandbox, request).await
    })
}
