//! The promises of order-save, tested with the deployed handler against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod beside_allocate;
mod conflict;
mod life;
mod preconditions;
mod size_run;

use std::sync::Arc;

use serde_json::Value;
use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply, Shop, fresh_key};

/// Sends one event to one sandbox.
pub async fn send(sandbox: &Endpoint, event: &Event) -> Reply {
    Reply::from(order_save::handle(sandbox, event.request()).await)
}

/// The first user's save of the tenant's order number `order`, under a fresh key.
pub fn patch(shop: &Shop, order: usize, body: &Value) -> Event {
    let path = format!("/orders/{}", shop.tenant.orders[order]);
    Event::new("PATCH", &path).bearer(&shop.tenant.token()).key(&fresh_key()).json(body)
}

/// The first user's POST under a fresh key.
pub fn post(shop: &Shop, path: &str, body: &Value) -> Event {
    Event::post(path).bearer(&shop.tenant.token()).key(&fresh_key()).json(body)
}

/// A sandbox with its connection open.
pub async fn warm(shop: &Shop) -> Arc<Endpoint> {
    let sandbox = Arc::new(shop.db.endpoint());
    sandbox.db.warm().await;
    sandbox
}

/// An order's stored version.
pub async fn version(shop: &Shop, order: usize) -> i64 {
    let sql = format!("select version from wholesale_order where id = '{}'", shop.tenant.orders[order]);
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut shop.db.owner().await).await.unwrap()
}
