//! Connections that end, lost answers, a database that is unavailable: never two executions, never half of one.

use std::time::{Duration, Instant};

use testing::{Event, Proxy, Reply, Seed, Shop, fresh_key, issue_api_key};

use crate::{send, warm};

fn seed() -> Seed {
    Seed { skus: 2, on_hand: 1_000, orders: 2, order_qty: 1_000, ..Seed::default() }
}

/// The contract's bound on an answer that says "too busy".
const BUSY_SECS: Duration = Duration::from_secs(7);

fn assert_unavailable(reply: &Reply) {
    assert_503(reply, "unavailable");
}

fn assert_503(reply: &Reply, code: &str) {
    assert_eq!((reply.status, reply.error().as_deref()), (503, Some(code)), "{reply:?}");
    let after: u32 = reply.header("retry-after").unwrap().parse().unwrap();
    assert!(after >= 1);
}

/// The work of a key was done once: a retry is a replay.
async fn assert_done_once(shop: &Shop, done_before: i64) {
    assert_eq!(shop.db.count("allocation_ledger").await, done_before + 1);
    assert_eq!(shop.db.count("idempotency_key").await, done_before + 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_session_ended_between_two_requests_is_not_noticed_by_the_second() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    for n in 0..5 {
        let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1));
        let reply = send(&sandbox, &event).await;
        assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None), "{reply:?}");
        assert_done_once(&shop, n).await;
        shop.db.execute(TERMINATE).await;
    }
}

const TERMINATE: &str = "select pg_terminate_backend(pid, 5000) from pg_stat_activity
    where datname = current_database() and usename = 'holdfast_app'";

#[tokio::test]
async fn a_session_ended_in_mid_work_leaves_one_execution() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    for n in 0..5 {
        let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1));
        let hold = shop.hold(0).await;
        let (reply, ()) = tokio::join!(send(&sandbox, &event), async {
            shop.db.until_blocked(1).await;
            shop.db.execute(TERMINATE).await;
            hold.let_go().await;
        });
        assert!(reply.status == 200 || reply.status >= 500, "{reply:?}");
        let again = send(&sandbox, &event).await;
        assert_eq!(again.status, 200);
        if reply.status == 200 {
            assert_eq!(
                (again.body, again.headers.iter().any(|(n, _)| n == "idempotent-replayed")),
                (reply.body, true)
            );
        }
        assert_done_once(&shop, n).await;
    }
}

#[tokio::test]
async fn a_session_ended_over_and_over_gives_up_in_time_and_the_retry_runs() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let event = shop.allocate(0).key("k").json(&shop.one(0, 1));
    let hold = shop.hold(0).await;
    let started = Instant::now();
    let work = send(&sandbox, &event);
    tokio::pin!(work);
    let reply = loop {
        tokio::select! {
            reply = &mut work => break reply,
            () = shop.db.until_blocked(1) => shop.db.execute(TERMINATE).await,
        }
    };
    // A session that is ended says nothing of its commit.
    assert_503(&reply, "outcome_unknown");
    assert!(started.elapsed() < BUSY_SECS);
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    hold.let_go().await;
    assert_eq!(send(&sandbox, &event).await.status, 200);
    assert_done_once(&shop, 0).await;
}

#[tokio::test]
async fn an_answer_lost_after_commit_is_replayed_by_the_reconnect_or_the_retry() {
    let shop = Shop::open(seed()).await;
    let proxy = Proxy::before(&shop.db).await;
    let sandbox = proxy.endpoint(&shop.db);
    sandbox.db.warm().await;
    for n in 0..5 {
        let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1));
        proxy.lose_answer(1);
        let reply = send(&sandbox, &event).await;
        assert!(proxy.lost_it());
        assert!(reply.status == 200 || reply.status >= 500, "{reply:?}");
        assert_done_once(&shop, n).await;
        let again = send(&sandbox, &event).await;
        assert_eq!((again.status, again.header("idempotent-replayed")), (200, Some("true")));
        assert!(reply.status != 200 || reply.body == again.body);
        assert_done_once(&shop, n).await;
    }
}

#[tokio::test]
async fn a_connection_cut_in_mid_work_never_runs_the_work_twice() {
    let shop = Shop::open(seed()).await;
    let proxy = Proxy::before(&shop.db).await;
    let (sandbox, direct) = (proxy.endpoint(&shop.db), shop.db.endpoint());
    for n in 0..3 {
        let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1));
        let hold = shop.hold(0).await;
        // The server does not know yet that its client is gone: the session goes on waiting and holds the claim.
        let (reply, ()) = tokio::join!(send(&sandbox, &event), async {
            shop.db.until_blocked(1).await;
            proxy.cut();
        });
        assert!(matches!(reply.status, 409 | 500..), "{reply:?}");
        hold.let_go().await;
        shop.db.until(IDLE).await;
        assert_eq!(send(&direct, &event).await.status, 200);
        assert_done_once(&shop, n).await;
    }
}

const IDLE: &str = "not exists (select from pg_stat_activity where datname = current_database()
    and usename = 'holdfast_app' and state <> 'idle')";

#[tokio::test]
async fn a_cancelled_request_does_not_poison_the_next_one_on_its_sandbox() {
    let shop = Shop::open(seed()).await;
    let sandbox = warm(&shop, 1).await.remove(0);
    for round in 0..5 {
        let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1));
        let hold = shop.hold(0).await;
        let cancelled = tokio::spawn({
            let (sandbox, event) = (sandbox.clone(), event.clone());
            async move { send(&sandbox, &event).await }
        });
        shop.db.until_blocked(1).await;
        cancelled.abort();
        assert!(cancelled.await.unwrap_err().is_cancelled());
        // Another SKU and order: this answer must not be that of the first.
        let next = shop.allocate(1).key(&fresh_key()).json(&shop.one(1, 2));
        let reply = send(&sandbox, &next).await;
        assert_eq!(
            (reply.status, reply.header("idempotent-replayed")),
            (200, None),
            "round {round}: {reply:?}"
        );
        let line = &reply.json()["lines"][0];
        assert_eq!(
            (&line["skuId"], &line["atsAfter"]),
            (&shop.tenant.skus[1].to_string().into(), &(998 - 2 * round).into())
        );
        hold.let_go().await;
        shop.db.until(IDLE).await;
        assert_eq!(send(&sandbox, &event).await.status, 200);
        assert_eq!(shop.db.count("allocation_ledger where qty = 1").await, i64::from(round) + 1);
        shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn a_request_cancelled_at_any_moment_leaves_the_sandbox_whole() {
    let shop = Shop::open(seed()).await;
    let sandbox = warm(&shop, 1).await.remove(0);
    let mut keys = Vec::new();
    for n in 0..60_u64 {
        let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1));
        let work = send(&sandbox, &event);
        let _ = tokio::time::timeout(Duration::from_micros(n * 60), work).await;
        keys.push(event);
        let reply = send(&sandbox, &shop.allocate(1).key(&fresh_key()).json(&shop.one(1, 1))).await;
        assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None), "after {n}: {reply:?}");
        assert_eq!(reply.json()["lines"][0]["skuId"], shop.tenant.skus[1].to_string());
    }
    shop.db.until(IDLE).await;
    for event in &keys {
        assert_eq!(send(&sandbox, event).await.status, 200);
    }
    assert_eq!(shop.db.count("allocation_ledger").await, 120);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_database_that_refuses_is_unavailable_and_service_returns_by_itself() {
    let shop = Shop::open(seed()).await;
    let proxy = Proxy::before(&shop.db).await;
    let sandbox = proxy.endpoint(&shop.db);
    let event = |key: &str| shop.allocate(0).key(key).json(&shop.one(0, 1));
    assert_eq!(send(&sandbox, &event("a")).await.status, 200);
    proxy.refuse();
    // The first request still had a connection to be sent on; what became of it there nobody can tell.
    for code in ["outcome_unknown", "unavailable", "unavailable"] {
        let started = Instant::now();
        assert_503(&send(&sandbox, &event("b")).await, code);
        assert!(started.elapsed() < BUSY_SECS);
    }
    // A sandbox that starts in the meantime fares the same.
    let newborn = proxy.endpoint(&shop.db);
    newborn.db.warm().await;
    assert_unavailable(&send(&newborn, &event("b")).await);
    proxy.recover();
    let reply = send(&sandbox, &event("b")).await;
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None), "{reply:?}");
    assert_eq!(send(&newborn, &event("b")).await.body, reply.body);
    assert_eq!(shop.db.count("allocation_ledger").await, 2);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_network_that_went_silent_is_unavailable_in_time_and_service_returns_by_itself() {
    let shop = Shop::open(seed()).await;
    let proxy = Proxy::before(&shop.db).await;
    let (open, newborn) = (proxy.endpoint(&shop.db), proxy.endpoint(&shop.db));
    open.db.warm().await;
    proxy.fall_silent();
    let (a, b) =
        (shop.allocate(0).key("a").json(&shop.one(0, 1)), shop.allocate(0).key("b").json(&shop.one(0, 1)));
    let started = Instant::now();
    let (old, new) = tokio::join!(send(&open, &a), send(&newborn, &b));
    assert!(started.elapsed() < BUSY_SECS, "{:?}", started.elapsed());
    // The one had sent its request, the other had no connection to send it on.
    assert_503(&old, "outcome_unknown");
    assert_unavailable(&new);
    proxy.recover();
    for (sandbox, event) in [(&open, &a), (&newborn, &b)] {
        // What the network held back arrives now, too, and may work on the same key.
        let mut reply = send(sandbox, event).await;
        if reply.status == 409 {
            assert_eq!(reply.error().as_deref(), Some("idempotency_key_in_use"));
            shop.db.until(IDLE).await;
            reply = send(sandbox, event).await;
        }
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    assert_eq!(shop.db.count("allocation_ledger").await, 2);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn too_busy_is_told_in_time_and_changes_nothing() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let before = shop.db.state().await;
    let event = shop.allocate(0).key("k").json(&shop.one(0, 1));
    let hold = shop.hold(0).await;
    let started = Instant::now();
    let reply = send(&sandbox, &event).await;
    assert!(started.elapsed() < BUSY_SECS);
    assert_unavailable(&reply);
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    assert_eq!(shop.db.state().await, before);
    hold.let_go().await;
    let reply = send(&sandbox, &event).await;
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None));
    assert_done_once(&shop, 0).await;
}

#[tokio::test]
async fn a_server_without_a_free_connection_is_unavailable() {
    let shop = Shop::open(seed()).await;
    if shop.db.is_pooled() {
        testing::left_out("behind a pooler, which answers for the server");
        return;
    }
    let name = shop.db.name().to_owned();
    shop.db.execute(format!("alter database {name} connection limit 0")).await;
    let sandbox = shop.db.endpoint();
    let event = shop.allocate(0).key("k").json(&shop.one(0, 1));
    let started = Instant::now();
    assert_unavailable(&send(&sandbox, &event).await);
    assert!(started.elapsed() < BUSY_SECS);
    shop.db.execute(format!("alter database {name} connection limit -1")).await;
    assert_eq!(send(&sandbox, &event).await.status, 200);
}

#[tokio::test]
async fn too_busy_is_told_in_time_also_where_the_credential_must_be_looked_up_first() {
    let shop = Shop::open(seed()).await;
    let key = issue_api_key(&shop.db, shop.tenant.id, shop.tenant.users[0], &["orders:write"]).await;
    // Each step stays within its own limit; together they must stay within the contract's.
    shop.db
        .execute(
            "create function stall() returns trigger language plpgsql as $$ begin perform pg_sleep(30); return new; end $$;
             create trigger stall before insert on outbox for each row execute function stall()",
        )
        .await;
    let event = Event::post(&format!("/orders/{}/allocate", shop.tenant.orders[0]))
        .bearer(&key)
        .key("k")
        .json(&shop.one(0, 1));
    let sandbox = shop.db.endpoint();
    sandbox.db.warm().await;
    let hold = shop.db.hold("lock table api_key in access exclusive mode".into()).await;
    let started = Instant::now();
    let (reply, ()) = tokio::join!(send(&sandbox, &event), async {
        shop.db.until_blocked(1).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        hold.let_go().await;
    });
    assert_unavailable(&reply);
    assert!(started.elapsed() < BUSY_SECS, "{:?}", started.elapsed());
}
