//! Too few database connections, and a connection that the network has dropped silently.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use testing::{Action, Seed, Shop, Toward, Wire, fresh_key};

use crate::send;

#[tokio::test]
async fn cold_sandboxes_beyond_the_servers_connections_get_503_and_all_succeed_on_retry() {
    let shop = Shop::open(Seed { on_hand: 1_000, orders: 110, ..Seed::default() }).await;
    // Like max_connections, but for this database only.
    shop.db.execute(format!("alter database {} connection limit 100", shop.db.name())).await;
    let cold: Vec<_> = (0..110)
        .map(|order| {
            (Arc::new(shop.db.endpoint()), shop.allocate(order).key(&fresh_key()).json(&shop.one(0, 1)))
        })
        .collect();
    let replies = join_all(cold.iter().map(|(sandbox, event)| send(sandbox, event))).await;
    let refused = replies.iter().filter(|reply| reply.status == 503).count();
    // Behind a pooler they share its connections.
    assert!(refused > 0 || shop.db.is_pooled(), "all 110 found a connection");
    for reply in &replies {
        match reply.status {
            200 => {}
            503 => {
                assert_eq!(reply.error().as_deref(), Some("unavailable"));
                assert!(reply.header("retry-after").is_some());
            }
            other => panic!("{other}: {}", reply.json()),
        }
    }
    // Sandboxes that succeeded end and free their connections; the others repeat their requests.
    let mut still_refused: Vec<_> =
        cold.iter().zip(&replies).filter(|(_, r)| r.status == 503).map(|(c, _)| c.clone()).collect();
    drop((cold, replies));
    let begun = Instant::now();
    while !still_refused.is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{} still refused", still_refused.len());
        let again = join_all(still_refused.iter().map(|(sandbox, event)| send(sandbox, event))).await;
        let mut statuses = again.iter().map(|reply| reply.status);
        still_refused.retain(|_| statuses.next() == Some(503));
    }
    assert_eq!(shop.db.count("allocation_ledger").await, 110);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn an_idle_connection_that_the_network_dropped_silently_costs_one_reconnect_and_no_5xx() {
    let shop = Shop::open(Seed::default()).await;
    let wire = Wire::before(&shop.db).await;
    // With a limit of 0 s every request checks its connection first.
    let sandbox = wire.endpoint_with(&shop.db, 0);
    assert_eq!(send(&sandbox, &shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1))).await.status, 200);
    wire.take_counts();
    wire.strike(Toward::Server, 'Q', 1, Action::Withhold);
    let begun = Instant::now();
    let reply = send(&sandbox, &shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1))).await;
    assert!(wire.has_struck());
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None), "{}", reply.json());
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(wire.take_counts().asked, 2, "the liveness check without an answer, and the request");
    assert_eq!(shop.db.count("allocation_ledger").await, 2);
}
