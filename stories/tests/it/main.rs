//! What the functions promise together: real handlers, real Postgres.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod all_writers;
mod any_history;
mod connections;
mod lock_order;
mod wire;

use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply};

/// One event to allocate or release, whichever its path names.
pub async fn send(sandbox: &Endpoint, event: &Event) -> Reply {
    let request = event.request();
    let allocates = event.to_json()["rawPath"].as_str().unwrap().ends_with("/allocate");
    Reply::from(if allocates {
        allocate::handle(sandbox, request).await
    } else {
        release::handle(sandbox, request).await
    })
}
