//! What release promises, and what it promises together with allocate: real handlers, real Postgres.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod frozen;
mod give_back;
mod key_table;

use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply};

/// One event to the function that its path names.
pub async fn send(sandbox: &Endpoint, event: &Event) -> Reply {
    let request = event.request();
    let allocates = event.to_json()["rawPath"].as_str().unwrap().ends_with("/allocate");
    Reply::from(if allocates {
        allocate::handle(sandbox, request).await
    } else {
        release::handle(sandbox, request).await
    })
}
