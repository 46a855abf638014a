//! The cases of the contract's idempotency table in which requests run at the same time.

use std::time::{Duration, Instant};

use testing::{Seed, Shop, fresh_key};

use crate::{at_once, crowd, send, warm};

fn seed() -> Seed {
    Seed { skus: 1, on_hand: 1_000_000, orders: 4, order_qty: 1_000_000, ..Seed::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_equal_requests_at_once_one_runs() {
    let _turn = crowd().await;
    let shop = Shop::open(seed()).await;
    let sandboxes = warm(&shop, 50).await;
    for round in 1..=12 {
        let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 7));
        let replies = at_once(&sandboxes, vec![event.clone(); 50]).await;
        let answers: Vec<_> = replies.iter().filter(|reply| reply.status == 200).collect();
        let executed = answers.iter().filter(|reply| reply.header("idempotent-replayed").is_none()).count();
        assert_eq!(executed, 1, "round {round}");
        assert!(answers.iter().all(|reply| reply.body == answers[0].body));
        for reply in replies.iter().filter(|reply| reply.status != 200) {
            assert_eq!(
                (reply.status, reply.error().as_deref()),
                (409, Some("idempotency_key_in_use")),
                "{reply:?}"
            );
            assert_eq!(reply.header("retry-after"), Some("5"));
        }
        assert_eq!(shop.db.count("allocation_ledger").await, round);
        assert_eq!(shop.db.count("idempotency_key").await, round);
        let late = send(&sandboxes[0], &event).await;
        assert_eq!((&late.body, late.header("idempotent-replayed")), (&answers[0].body, Some("true")));
    }
    shop.db.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_requests_with_another_body_equal_retries_always_replay() {
    let _turn = crowd().await;
    let shop = Shop::open(seed()).await;
    let sandboxes = warm(&shop, 24).await;
    for _ in 0..25 {
        let key = fresh_key();
        let event = shop.allocate(0).key(&key).json(&shop.one(0, 3));
        let first = send(&sandboxes[0], &event).await;
        assert_eq!(first.status, 200);
        let other = shop.allocate(0).key(&key).json(&shop.one(0, 4));
        let events = (0..24).map(|n| if n % 2 == 0 { event.clone() } else { other.clone() }).collect();
        for (n, reply) in at_once(&sandboxes, events).await.into_iter().enumerate() {
            if n % 2 == 0 {
                assert_eq!((reply.status, &reply.body), (200, &first.body), "an equal retry");
                assert_eq!(reply.header("idempotent-replayed"), Some("true"));
            } else {
                let error = reply.error();
                assert_eq!(
                    (reply.status, error.as_deref()),
                    (422, Some("idempotency_key_reused")),
                    "another body"
                );
            }
        }
    }
    assert_eq!(shop.db.count("allocation_ledger").await, 25);
    shop.db.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_equal_and_other_requests_race_for_a_new_key_one_body_wins_whole() {
    let _turn = crowd().await;
    let shop = Shop::open(seed()).await;
    let sandboxes = warm(&shop, 24).await;
    for round in 1..=25 {
        let key = fresh_key();
        let events = [3, 4].map(|qty| shop.allocate(0).key(&key).json(&shop.one(0, qty)));
        let replies = at_once(&sandboxes, (0..24).map(|n| events[n % 2].clone()).collect()).await;
        let won = replies.iter().position(|reply| reply.status == 200).map(|n| n % 2);
        let won = won.expect("a request that meets only others must not leave all refused");
        let executed =
            replies.iter().filter(|r| r.status == 200 && r.header("idempotent-replayed").is_none()).count();
        assert_eq!(executed, 1);
        for (n, reply) in replies.iter().enumerate() {
            let allowed: &[u16] = if n % 2 == won { &[200, 409] } else { &[422, 409] };
            assert!(allowed.contains(&reply.status), "round {round}, {}: {reply:?}", n % 2 == won);
        }
        assert_eq!(shop.db.count("allocation_ledger").await, round);
        assert_eq!(send(&sandboxes[0], &events[won]).await.header("idempotent-replayed"), Some("true"));
        assert_eq!(send(&sandboxes[0], &events[1 - won]).await.status, 422);
    }
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn while_the_first_runs_an_equal_request_is_told_so_at_once_and_another_is_refused() {
    let shop = Shop::open(seed()).await;
    let sandboxes = warm(&shop, 2).await;
    let event = shop.allocate(0).key("k").json(&shop.one(0, 3));
    let hold = shop.hold(0).await;
    let first = tokio::spawn({
        let (sandbox, event) = (sandboxes[0].clone(), event.clone());
        async move { send(&sandbox, &event).await }
    });
    shop.db.until_blocked(1).await;

    let started = Instant::now();
    let equal = send(&sandboxes[1], &event).await;
    let other = send(&sandboxes[1], &shop.allocate(0).key("k").json(&shop.one(0, 4))).await;
    let elsewhere = send(&sandboxes[1], &shop.allocate(1).key("k").json(&shop.one(0, 3))).await;
    assert!(started.elapsed() < Duration::from_secs(2), "answered at once, not after the first");
    assert_eq!((equal.status, equal.error().as_deref()), (409, Some("idempotency_key_in_use")));
    assert_eq!(equal.header("retry-after"), Some("5"));
    for reply in [&other, &elsewhere] {
        assert_eq!((reply.status, reply.error().as_deref()), (422, Some("idempotency_key_reused")));
    }
    let held = "pg_stat_activity where datname = current_database() and usename = 'holdfast_app' and state <> 'idle'";
    assert_eq!(shop.db.count(held).await, 1, "only the first holds a connection busy");

    hold.let_go().await;
    let first = first.await.unwrap();
    assert_eq!(first.status, 200);
    assert_eq!(send(&sandboxes[1], &event).await.body, first.body);
    assert_eq!(shop.db.count("allocation_ledger").await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn two_keys_on_one_sku_wait_for_each_other_and_both_run() {
    let shop = Shop::open(seed()).await;
    let sandboxes = warm(&shop, 2).await;
    let hold = shop.hold(0).await;
    let events = vec![
        shop.allocate(0).key("a").json(&shop.one(0, 3)),
        shop.allocate(1).key("b").json(&shop.one(0, 3)),
    ];
    let (replies, ()) = tokio::join!(at_once(&sandboxes, events), async {
        shop.db.until_blocked(2).await;
        hold.let_go().await;
    });
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    shop.db.assert_consistent().await;
}
