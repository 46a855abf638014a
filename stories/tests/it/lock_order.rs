//! All functions lock rows in the same order, so there is no deadlock.

use std::sync::Arc;

use futures_util::future::join_all;
use testing::{Event, Seed, Shop, Tenant, fresh_key, lines};

use crate::send;

const ROUNDS: usize = 120;

/// A worker with its own sandbox; returns the numbers of 200 and 422, and accepts no other status.
async fn work(shop: Arc<Shop>, tenant: Tenant, worker: usize) -> [u32; 2] {
    let sandbox = shop.db.endpoint();
    let mut counts = [0, 0];
    for round in 0..ROUNDS {
        let order = tenant.orders[(worker + round / 2) % tenant.orders.len()];
        let verb = if round % 2 == 1 { "release" } else { "allocate" };
        let mut wanted: Vec<_> =
            tenant.skus.iter().map(|sku| (*sku, 1 + i64::try_from(round / 2 % 8).unwrap())).collect();
        match worker % 3 {
            0 => {}
            1 => wanted.reverse(),
            _ => wanted.rotate_left(round % tenant.skus.len()),
        }
        let event = Event::post(&format!("/orders/{order}/{verb}")).bearer(&tenant.token()).key(&fresh_key());
        let reply = send(&sandbox, &event.json(&lines(&wanted))).await;
        match reply.status {
            200 => counts[0] += 1,
            422 => counts[1] += 1,
            _ => panic!("{reply:?}"),
        }
    }
    counts
}

async fn workers_contend(credit_limit_minor: Option<i64>) {
    let seed =
        Seed { skus: 4, on_hand: 20, orders: 3, order_qty: 100, unit_price_minor: 1, credit_limit_minor };
    let shop = Arc::new(Shop::open(seed).await);
    let tasks = (0..6).map(|worker| tokio::spawn(work(shop.clone(), shop.tenant.clone(), worker)));
    let counts: Vec<_> = join_all(tasks).await.into_iter().map(Result::unwrap).collect();
    let [done, refused] = [0, 1].map(|n| counts.iter().map(|count| count[n]).sum::<u32>());
    assert!(done > 200 && refused > 20, "too little contention: {done} done, {refused} refused");
    shop.db.assert_no_deadlock().await;
    shop.db.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_in_any_order_never_deadlock() {
    workers_contend(None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_in_any_order_never_deadlock_under_a_credit_limit() {
    workers_contend(Some(60)).await;
}
