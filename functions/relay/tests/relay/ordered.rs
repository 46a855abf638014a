//! Ordered destinations: each aggregate's events one after the other.

use std::time::Duration;

use testing::{Seed, TestDb};
use tokio::time::Instant;

use crate::support::{Partner, ToStatus, drain, eager, relay, relay_with, rows, until};

async fn make_ordered(db: &TestDb) {
    db.execute("update destination set ordered = true").await;
}

#[tokio::test]
async fn an_aggregates_events_arrive_in_their_order_though_the_first_fails_at_first() {
    let db = TestDb::create().await;
    let (tenant, other) = (db.seed(Seed::default()).await, db.seed(Seed::default()).await);
    let partner = Partner::start(|_| async { 500.to_status() }).await;
    let content = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.destination(&other, &content.url, &["*"]).await;
    make_ordered(&db).await;
    db.emit(&tenant, 5).await;
    db.emit(&other, 5).await;
    db.emit(&tenant, 5).await;
    let relay = relay(&db);
    let summary = drain(&relay).await;
    assert_eq!((summary.delivered, summary.failed), (5, 1), "another aggregate is not held up");
    let order: Vec<i64> = content.received().iter().map(|received| received.n()).collect();
    assert_eq!(order, [1, 2, 3, 4, 5]);
    partner.answer(|_| async { 200.to_status() });
    assert_eq!(drain(&relay).await.claimed, 0, "the others wait behind the first");
    db.execute("update outbox set next_attempt_at = now() where attempts = 1 and processed_at is null").await;
    assert_eq!(drain(&relay).await.delivered, 10);
    let ids: Vec<i64> = partner.received().iter().skip(1).map(|received| received.id()).collect();
    assert!(ids.is_sorted() && ids.len() == 10, "{ids:?}");
}

#[tokio::test]
async fn a_dead_letter_does_not_hold_up_those_behind_it() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner =
        Partner::start(|received| async move { if received.n() == 1 { 500 } else { 200 }.to_status() }).await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    make_ordered(&db).await;
    db.execute("update destination set max_attempts = 1").await;
    db.emit(&tenant, 3).await;
    let summary = drain(&relay(&db)).await;
    assert_eq!((summary.delivered, summary.dead_lettered), (2, 1));
}

#[tokio::test]
async fn events_written_while_others_are_delivered_arrive_in_order_and_none_is_forgotten() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    make_ordered(&db).await;
    let relays = [relay_with(&db, eager()), relay_with(&db, eager())];
    let deadline = Instant::now() + Duration::from_secs(60);
    let writing = async {
        for _ in 0..100 {
            db.emit(&tenant, 2).await;
        }
    };
    let watch = Duration::from_secs(4);
    let (first, second, ()) =
        tokio::join!(relays[0].run_once(watch, deadline), relays[1].run_once(watch, deadline), writing);
    first.unwrap();
    second.unwrap();
    drain(&relays[0]).await;
    until(&db, "select bool_and(processed_at is not null) from outbox").await;
    let ids: Vec<i64> = partner.received().iter().map(|received| received.id()).collect();
    assert_eq!(ids, (1..=200).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_head_that_nobody_woke_is_found_by_the_sweep() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    make_ordered(&db).await;
    db.emit(&tenant, 3).await;
    db.execute("update outbox set next_attempt_at = 'infinity'").await;
    // One drain without polling is enough: what the sweep woke is due at once.
    assert_eq!(drain(&relay(&db)).await.delivered, 3);
    let order: Vec<i64> = partner.received().iter().map(|received| received.n()).collect();
    assert_eq!(order, [1, 2, 3]);
}

#[tokio::test]
async fn thirty_thousand_waiting_behind_one_failing_head_cost_the_claim_nothing() {
    let db = TestDb::create().await;
    let (tenant, other) = (db.seed(Seed::default()).await, db.seed(Seed::default()).await);
    let (failing, content) = (Partner::start(|_| async { 500.to_status() }).await, Partner::content().await);
    db.destination(&tenant, &failing.url, &["*"]).await;
    make_ordered(&db).await;
    db.destination(&other, &content.url, &["*"]).await;
    let mut took = Vec::new();
    for backlog in [1, 30_000] {
        db.emit(&tenant, backlog).await;
        db.execute("analyze outbox").await;
        // Looks once at each row that waits.
        drain(&relay(&db)).await;
        db.emit(&other, 200).await;
        let begun = Instant::now();
        drain(&relay(&db)).await;
        took.push(begun.elapsed());
        assert_eq!(rows(&db).await.iter().filter(|row| !row.processed && row.attempts > 0).count(), 1);
    }
    println!("200 events beside 1 and beside 30,001 waiting: {took:?}");
    assert!(took[1] < took[0] * 5 + Duration::from_millis(200), "{took:?}");
}
