//! The promises of allocate, tested with the deployed handler against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod answers;
mod bodies;
mod costs;
mod credit;
mod events;
mod faults;
mod frozen;
mod grown;
mod hostile_json;
mod key_forms;
mod key_races;
mod key_table;
mod log;
mod odd_events;
mod refusals;
mod stock_race;
mod two_variants;
mod under_the_lock;
mod who_is_calling;

use std::sync::Arc;

use futures_util::future::join_all;
use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply, Shop};
use tokio::sync::{Barrier, Semaphore, SemaphorePermit};

/// Sends one event to one sandbox.
pub async fn send(sandbox: &Endpoint, event: &Event) -> Reply {
    Reply::from(allocate::handle(sandbox, event.request()).await)
}

/// Warm sandboxes: their connections are open.
pub async fn warm(shop: &Shop, count: usize) -> Vec<Arc<Endpoint>> {
    join_all((0..count).map(|_| async {
        let sandbox = Arc::new(shop.db.endpoint());
        sandbox.db.warm().await;
        sandbox
    }))
    .await
}

/// Sends each event on a sandbox of its own, all at the same moment.
pub async fn at_once(sandboxes: &[Arc<Endpoint>], events: Vec<Event>) -> Vec<Reply> {
    assert!(events.len() <= sandboxes.len(), "a sandbox serves one request at a time");
    let start = Arc::new(Barrier::new(events.len()));
    let tasks = events.into_iter().zip(sandboxes).map(|(event, sandbox)| {
        let (start, sandbox) = (start.clone(), sandbox.clone());
        tokio::spawn(async move {
            start.wait().await;
            send(&sandbox, &event).await
        })
    });
    join_all(tasks).await.into_iter().map(Result::unwrap).collect()
}

/// Tests with dozens of connections take turns: the server has a limit.
pub async fn crowd() -> SemaphorePermit<'static> {
    static CROWD: Semaphore = Semaphore::const_new(1);
    CROWD.acquire().await.unwrap()
}

/// Lower-case hex for a bytea literal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
