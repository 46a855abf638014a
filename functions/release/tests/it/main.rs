//! The promises of release, alone and together with allocate, tested with the real handlers against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod frozen;
mod give_back;
mod key_table;

use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply};

/// Sends one event to the function that its path names.
pub async fn send(sandbox: &Endpoint, event: &Event) -> Reply {
    let request = event.request();
    let allocates = event.to_json()["rawPath"].as_str().unwrap().ends_with("/allocate");
    Reply::from(if allocates {
        allocate::handle(sandbox, request).await
    } else {
        release::handle(sandbox, request).await
    })
}
