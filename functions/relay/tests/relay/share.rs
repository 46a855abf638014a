//! Several relays, several destinations.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use relay::Limits;
use testing::{Seed, TestDb};
use tokio::sync::Barrier;
use tokio::time::Instant;

use crate::support::{PATIENCE, Partner, ToStatus, drain, relay, relay_with, rows};

async fn share_300_events(relays: usize) {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::start(|_| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        200.to_status()
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 300).await;
    let start = Arc::new(Barrier::new(relays));
    let running: Vec<_> = (0..relays)
        .map(|_| {
            let (relay, start) = (relay(&db), Arc::clone(&start));
            tokio::spawn(async move {
                start.wait().await;
                drain(&relay).await
            })
        })
        .collect();
    let mut delivered = Vec::new();
    for run in running {
        let summary = run.await.unwrap();
        assert_eq!(summary.claimed, summary.delivered);
        delivered.push(summary.delivered);
    }
    assert_eq!(delivered.iter().sum::<u64>(), 300, "{delivered:?}");
    assert!(delivered.iter().all(|share| *share > 0), "{delivered:?}");
    let mut ids = partner.ids();
    ids.dedup();
    assert_eq!((ids.len(), partner.received().len()), (300, 300), "an event was delivered twice");
    assert!(rows(&db).await.iter().all(|row| row.processed && row.attempts == 1));
}

#[tokio::test]
async fn two_relays_at_once_share_300_events_and_deliver_none_twice() {
    share_300_events(2).await;
}

#[tokio::test]
async fn three_relays_at_once_share_300_events_and_deliver_none_twice() {
    share_300_events(3).await;
}

#[tokio::test]
async fn while_one_destination_hangs_another_gets_all_its_events() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let hanging = Partner::start(|_| std::future::pending::<Response>()).await;
    let content = Partner::content().await;
    for partner in [&hanging, &content, &hanging] {
        db.destination(&tenant, &partner.url, &["*"]).await;
    }
    db.emit(&tenant, 200).await;
    let relay = relay(&db);
    let drain = tokio::spawn(async move {
        relay.run_once(Duration::ZERO, Instant::now() + Duration::from_secs(60)).await
    });
    let begun = Instant::now();
    while content.received().len() < 200 {
        assert!(begun.elapsed() < PATIENCE, "{} of 200", content.received().len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Before the first attempt at a hanging destination timed out. Those got no more than their limit.
    assert!(begun.elapsed() < Limits::default().attempt, "{:?}", begun.elapsed());
    assert_eq!(hanging.received().len(), 40);
    drain.abort();
}

#[tokio::test]
async fn many_destinations_that_begin_to_hang_in_the_same_instant_leave_room_for_others() {
    let db = TestDb::create().await;
    let (unlucky, other) = (db.seed(Seed::default()).await, db.seed(Seed::default()).await);
    let hanging = Partner::start(|_| std::future::pending::<Response>()).await;
    let content = Partner::content().await;
    for _ in 0..25 {
        db.destination(&unlucky, &hanging.url, &["*"]).await;
    }
    db.destination(&other, &content.url, &["*"]).await;
    db.emit(&unlucky, 30).await;
    // No attempt ends during the test.
    let relay = relay_with(&db, Limits { attempt: PATIENCE * 2, lease: PATIENCE * 3, ..Limits::default() });
    let drain = tokio::spawn(async move { relay.run_once(PATIENCE, Instant::now() + PATIENCE * 4).await });
    // Wait until they hold all slots that they may: 750 events would fill the 512 slots.
    let mut before = 0;
    while before == 0 || hanging.received().len() > before {
        before = hanging.received().len();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    db.emit(&other, 100).await;
    let begun = Instant::now();
    while content.received().len() < 100 {
        assert!(begun.elapsed() < PATIENCE, "{} of 100", content.received().len());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drain.abort();
}

#[tokio::test]
async fn while_one_partner_is_down_anothers_events_flow() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let content = Partner::content().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    db.destination(&tenant, &format!("http://{closed}/"), &["*"]).await;
    db.destination(&tenant, &content.url, &["inbox.exception"]).await;
    db.emit(&tenant, 50).await;
    let summary = drain(&relay(&db)).await;
    assert_eq!((summary.delivered, content.received().len(), summary.dead_lettered), (50, 50, 0));
    // Its breaker opened after one or two batches.
    assert!((20..=40).contains(&summary.failed), "{summary:?}");
    let rows = rows(&db).await;
    let refused =
        rows.iter().filter(|row| row.last_error.as_ref().is_some_and(|e| e.contains("onnection refused")));
    assert_eq!(refused.count() as u64, summary.failed);
}

#[tokio::test]
async fn the_backlogs_of_many_do_not_hold_up_others() {
    let db = TestDb::create().await;
    let (backlogged, others) = (db.seed(Seed::default()).await, db.seed(Seed::default()).await);
    let (busy, small) = (Partner::content().await, Partner::content().await);
    for _ in 0..30 {
        db.destination(&backlogged, &busy.url, &["*"]).await;
        db.destination(&others, &small.url, &["*"]).await;
    }
    db.emit(&backlogged, 30).await; // older than those of the others
    db.emit(&others, 2).await;
    // One batch in flight at a time: 60 destinations compete for 20 slots.
    let limits = Limits { in_flight: 20, ..Limits::default() };
    drain(&relay_with(&db, limits)).await;
    let (busy, small) = (busy.received(), small.received());
    assert_eq!((busy.len(), small.len()), (900, 60));
    let before = busy.iter().filter(|received| received.at < small[59].at).count();
    assert!(before <= 120, "{before} of the backlog went before the last of the others");
}

#[tokio::test]
async fn within_a_destination_the_oldest_due_goes_first() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 10).await;
    db.execute("update outbox set next_attempt_at = now() - make_interval(secs => id)").await;
    let limits = Limits { in_flight_each: 1, in_flight_proven: 1, ..Limits::default() };
    drain(&relay_with(&db, limits)).await;
    let order: Vec<i64> = partner.received().iter().map(|received| received.n()).collect();
    assert_eq!(order, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
}
