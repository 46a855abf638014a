//! The contract's idempotency table, with the multi-statement variant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Proxy, Reply, Seed, Shop, fresh_key, token};
use tokio::sync::Barrier;
use uuid::Uuid;

use crate::send;

/// A shop whose orders are fully allocated.
async fn holding() -> Shop {
    let shop = Shop::open(Seed { on_hand: 2_000_000, order_qty: 1_000_000, ..Seed::default() }).await;
    for order in 0..2 {
        let key = format!("held {order}");
        let reply = send(
            &shop.db.endpoint(),
            &shop.allocate(order).key(&format!("{key:?}")).json(&shop.one(0, 1_000_000)),
        )
        .await;
        assert_eq!(reply.status, 200);
    }
    shop
}

async fn releases(shop: &Shop) -> i64 {
    shop.db.count("allocation_ledger where entry_type = 'release'").await
}

fn assert_replays(first: &Reply, again: &Reply) {
    assert_eq!((again.status, &again.body), (first.status, &first.body));
    assert_eq!(again.header("content-type"), first.header("content-type"));
    assert_eq!(
        (first.header("idempotent-replayed"), again.header("idempotent-replayed")),
        (None, Some("true"))
    );
}

async fn at_once(sandboxes: &[Arc<Endpoint>], events: &[Event]) -> Vec<Reply> {
    let start = Arc::new(Barrier::new(sandboxes.len()));
    join_all(sandboxes.iter().enumerate().map(|(n, sandbox)| {
        let (sandbox, event, start) = (sandbox.clone(), events[n % events.len()].clone(), start.clone());
        tokio::spawn(async move {
            start.wait().await;
            send(&sandbox, &event).await
        })
    }))
    .await
    .into_iter()
    .map(Result::unwrap)
    .collect()
}

async fn warm(shop: &Shop, count: usize) -> Vec<Arc<Endpoint>> {
    join_all((0..count).map(|_| async {
        let sandbox = Arc::new(shop.db.endpoint());
        sandbox.db.warm().await;
        sandbox
    }))
    .await
}

#[tokio::test]
async fn answers_and_refusals_replay_and_a_key_belongs_to_one_request() {
    let shop = holding().await;
    let sandbox = shop.db.endpoint();
    let event = shop.release(0).key("k").json(&shop.one(0, 5));
    let first = send(&sandbox, &event).await;
    assert_eq!(first.status, 200);
    assert_replays(&first, &send(&sandbox, &event).await);
    let sku = shop.tenant.skus[0];
    let respelt = format!("{{ \"qty\" : 5.0e0,\n\"sku\\u0049d\":\"{sku}\" }}");
    assert_replays(&first, &send(&sandbox, &shop.release(0).key("\"k\"").body(respelt.as_bytes())).await);
    // Another body, another order, another operation of the same body.
    for other in [
        shop.release(0).key("k").json(&shop.one(0, 6)),
        shop.release(1).key("k").json(&shop.one(0, 5)),
        shop.allocate(0).key("k").json(&shop.one(0, 5)),
    ] {
        let reply = send(&sandbox, &other).await;
        assert_eq!((reply.status, reply.error().as_deref()), (422, Some("idempotency_key_reused")));
    }
    let event = shop.release(0).key("too much").header("idempotency-key", "").json(&shop.one(0, 5));
    assert_eq!(send(&sandbox, &event).await.error().as_deref(), Some("idempotency_key_invalid"));
    let event = shop.release(0).key("beyond").json(&shop.one(0, 1_000_000));
    let refused = send(&sandbox, &event).await;
    assert_eq!(refused.error().as_deref(), Some("exceeds_allocated"));
    assert_eq!(send(&sandbox, &shop.allocate(0).key("back").json(&shop.one(0, 5))).await.status, 200);
    assert_replays(&refused, &send(&sandbox, &event).await);
    assert_eq!(releases(&shop).await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn bad_requests_leave_the_key_unused() {
    let shop = holding().await;
    let sandbox = shop.db.endpoint();
    let keys = shop.db.count("idempotency_key").await;
    let (tenant, path) = (&shop.tenant, format!("/orders/{}/release", shop.tenant.orders[0]));
    let post = || Event::post(&path).key("k");
    let good = json!({"skuId": tenant.skus[0], "qty": 1});
    for (status, event) in [
        (401, post().json(&good)),
        (401, post().bearer(&token(tenant.id, Uuid::new_v4(), "orders:write")).json(&good)),
        (403, post().bearer(&token(tenant.id, tenant.users[0], "orders:read")).json(&good)),
        (404, Event::post("/orders/7/release").key("k").bearer(&tenant.token()).json(&good)),
        (413, shop.release(0).key("k").body(&vec![b' '; 1024 * 1024 + 1])),
        (400, shop.release(0).json(&good)),
        (400, shop.release(0).key("k").json(&json!({"skuId": tenant.skus[0], "qty": -1}))),
        (400, shop.release(0).key("k").json(&json!([good]))),
    ] {
        let reply = send(&sandbox, &event).await;
        assert_eq!(reply.status, status, "{event:?} {reply:?}");
    }
    assert_eq!(shop.db.count("idempotency_key").await, keys);
    assert_eq!(send(&sandbox, &shop.release(0).key("k").json(&good)).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_equal_requests_at_once_one_runs() {
    let shop = holding().await;
    let sandboxes = warm(&shop, 24).await;
    for round in 1..=15 {
        let event = shop.release(0).key(&fresh_key()).json(&shop.one(0, 3));
        let replies = at_once(&sandboxes, std::slice::from_ref(&event)).await;
        let executed =
            replies.iter().filter(|r| r.status == 200 && r.header("idempotent-replayed").is_none()).count();
        assert_eq!(executed, 1);
        for reply in &replies {
            let error = reply.error();
            assert!(reply.status == 200 || error.as_deref() == Some("idempotency_key_in_use"), "{reply:?}");
        }
        assert_eq!(releases(&shop).await, round);
    }
    shop.db.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_requests_with_another_body_equal_retries_always_replay() {
    let shop = holding().await;
    let sandboxes = warm(&shop, 24).await;
    for _ in 0..25 {
        let key = fresh_key();
        let events = [3, 4].map(|qty| shop.release(0).key(&key).json(&shop.one(0, qty)));
        let first = send(&sandboxes[0], &events[0]).await;
        for (n, reply) in at_once(&sandboxes, &events).await.iter().enumerate() {
            match n % 2 {
                0 => assert_replays(&first, reply),
                _ => assert_eq!(reply.error().as_deref(), Some("idempotency_key_reused")),
            }
        }
    }
    assert_eq!(releases(&shop).await, 25);
}

#[tokio::test]
async fn while_the_first_runs_others_are_answered_at_once() {
    let shop = holding().await;
    let sandboxes = warm(&shop, 2).await;
    let event = shop.release(0).key("k").json(&shop.one(0, 3));
    let hold = shop.hold(0).await;
    let (first, ()) = tokio::join!(send(&sandboxes[0], &event), async {
        shop.db.until_blocked(1).await;
        let started = Instant::now();
        let equal = send(&sandboxes[1], &event).await;
        let other = send(&sandboxes[1], &shop.release(0).key("k").json(&shop.one(0, 4))).await;
        assert!(started.elapsed() < Duration::from_secs(2));
        assert_eq!((equal.status, equal.header("retry-after")), (409, Some("5")));
        assert_eq!(other.error().as_deref(), Some("idempotency_key_reused"));
        hold.let_go().await;
    });
    assert_replays(&first, &send(&sandboxes[1], &event).await);
    assert_eq!(releases(&shop).await, 1);
}

#[tokio::test]
async fn a_failure_records_nothing_and_the_key_runs_again() {
    let shop = holding().await;
    let sandbox = shop.db.endpoint();
    let (before, keys) = (shop.db.state().await, shop.db.count("idempotency_key").await);
    shop.db
        .execute(
            "create function break_it() returns trigger language plpgsql as $$ begin raise 'disk on fire'; end $$;
             create trigger break_it before insert on idempotency_key for each row execute function break_it()",
        )
        .await;
    let event = shop.release(0).key("k").json(&shop.one(0, 3));
    assert_eq!(send(&sandbox, &event).await.status, 500);
    assert_eq!((shop.db.state().await, shop.db.count("idempotency_key").await), (before, keys));
    shop.db.execute("drop trigger break_it on idempotency_key").await;
    let reply = send(&sandbox, &event).await;
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None));
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn whichever_answer_of_the_database_is_lost_there_is_one_release() {
    let shop = holding().await;
    let proxy = Proxy::before(&shop.db).await;
    let sandbox = proxy.endpoint(&shop.db);
    let mut lost = 0;
    // Loses the answer of the claim, the work, the record and the commit; later also those of connecting.
    for n in 1..=6_u32 {
        let event = shop.release(0).key(&fresh_key()).json(&shop.one(0, 3));
        sandbox.db.warm().await;
        proxy.lose_answer(n);
        let reply = send(&sandbox, &event).await;
        lost += u32::from(proxy.lost_it());
        proxy.lose_answer(0);
        assert!(matches!(reply.status, 200 | 409 | 500..), "{reply:?}");
        shop.db.until(IDLE).await;
        let again = send(&sandbox, &event).await;
        assert_eq!(again.status, 200, "{again:?}");
        assert!(reply.status != 200 || reply.body == again.body);
        assert_eq!(releases(&shop).await, i64::from(n));
    }
    assert!(lost >= 3, "only {lost} answers were there to lose");
    shop.db.assert_consistent().await;
}

const IDLE: &str = "not exists (select from pg_stat_activity where datname = current_database()
    and usename = 'holdfast_app' and state <> 'idle')";

#[tokio::test]
async fn a_cancelled_request_does_not_poison_the_next_one_on_its_sandbox() {
    let shop = holding().await;
    let sandbox = warm(&shop, 1).await.remove(0);
    for n in 0..40_u64 {
        let event = shop.release(0).key(&fresh_key()).json(&shop.one(0, 1));
        let _ = tokio::time::timeout(Duration::from_micros(n * 120), send(&sandbox, &event)).await;
        let next = send(&sandbox, &shop.release(1).key(&fresh_key()).json(&shop.one(0, 2))).await;
        assert_eq!((next.status, next.header("idempotent-replayed")), (200, None), "after {n}: {next:?}");
        assert_eq!(next.json()["orderId"], shop.tenant.orders[1].to_string());
        let status = send(&sandbox, &event).await.status;
        assert!(matches!(status, 200 | 409), "{status}");
    }
    assert_eq!(shop.db.count("allocation_ledger where entry_type = 'release' and qty = -2").await, 40);
    shop.db.assert_consistent().await;
}

/// The contract's bound on how long a dead attempt can keep its key.
const DEAD_SECS: Duration = Duration::from_secs(15);

/// Retries until no other attempt holds the key.
async fn once_free(sandbox: &Endpoint, event: &Event) -> Reply {
    let started = Instant::now();
    loop {
        let reply = send(sandbox, event).await;
        if reply.status != 409 {
            return reply;
        }
        assert!(started.elapsed() < DEAD_SECS);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_client_that_vanished_between_two_messages_frees_its_key_and_a_retry_runs() {
    let shop = holding().await;
    let proxy = Proxy::before(&shop.db).await;
    let (dead, sandbox) = (proxy.endpoint(&shop.db), shop.db.endpoint());
    dead.db.warm().await;
    let event = shop.release(0).key("k").json(&shop.one(0, 3));
    // The claim is answered; then no byte passes in either direction, and no connection ends.
    proxy.fall_silent_after(1);
    let (lost, retried) = tokio::join!(send(&dead, &event), async {
        shop.db.until("exists (select from pg_stat_activity where state = 'idle in transaction' and datname = current_database())").await;
        let busy = send(&sandbox, &event).await;
        assert_eq!((busy.status, busy.error().as_deref()), (409, Some("idempotency_key_in_use")));
        once_free(&sandbox, &event).await
    });
    assert_eq!((retried.status, retried.header("idempotent-replayed")), (200, None), "{retried:?}");
    assert_eq!((lost.status, lost.error().as_deref()), (503, Some("unavailable")));
    assert_eq!(releases(&shop).await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn an_attempt_that_froze_and_wakes_after_another_one_ran_commits_nothing() {
    let shop = holding().await;
    let proxy = Proxy::before(&shop.db).await;
    let (frozen, sandbox) = (proxy.endpoint(&shop.db), shop.db.endpoint());
    frozen.db.warm().await;
    let event = shop.release(0).key("k").json(&shop.one(0, 3));
    proxy.fall_silent_after(2);
    let (woken, retried) = tokio::join!(send(&frozen, &event), async {
        shop.db.until("exists (select from pg_stat_activity where state = 'idle in transaction' and datname = current_database())").await;
        let reply = once_free(&sandbox, &event).await;
        // Its next message, the record with the commit, arrives now.
        proxy.recover();
        reply
    });
    assert_eq!((retried.status, retried.header("idempotent-replayed")), (200, None), "{retried:?}");
    match woken.status {
        200 => assert_replays(&retried, &woken),
        _ => assert_eq!(woken.status, 503, "{woken:?}"),
    }
    assert_eq!(releases(&shop).await, 1);
    shop.db.assert_consistent().await;
}
