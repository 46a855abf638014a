//! Many destinations, and an old snapshot that somebody holds.

use std::time::Duration;

use shared::testing::{Seed, TestDb};
use tokio::time::Instant;

use crate::support::{Partner, drain, relay};

#[tokio::test]
async fn ten_thousand_idle_destinations_cost_nothing() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["inbox.exception"]).await;
    let mut took = Vec::new();
    for idle in [0, 10_000] {
        db.execute(format!(
            "insert into destination (tenant_id, name, kind, url, event_types)
             select '{}', 'idle', 'webhook', 'https://example.com/', '{{order.saved}}' from generate_series(1, {idle});
             analyze destination",
            tenant.id
        ))
        .await;
        db.emit(&tenant, 400).await;
        let begun = Instant::now();
        assert_eq!(drain(&relay(&db)).await.delivered, 400);
        took.push(begun.elapsed());
    }
    println!("400 events beside 0 and 10,000 idle destinations: {took:?}");
    assert!(took[1] < took[0] * 3 + Duration::from_millis(200), "{took:?}");
}

#[tokio::test]
async fn while_an_old_snapshot_is_held_claims_stay_quick_and_are_as_before_when_it_is_gone() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    let relay = relay(&db);
    let round = async || {
        db.emit(&tenant, 2_000).await;
        let begun = Instant::now();
        assert_eq!(drain(&relay).await.delivered, 2_000);
        begun.elapsed()
    };
    round().await;
    let before = round().await;
    let held =
        db.hold("set transaction isolation level repeatable read; select count(*) from outbox".into()).await;
    let mut during = Vec::new();
    for _ in 0..6 {
        during.push(round().await);
    }
    held.let_go().await;
    round().await;
    let after = round().await;
    println!("2,000 events: {before:?} before, {during:?} beside a held snapshot, {after:?} after");
    let last = during.last().unwrap();
    assert!(*last < before * 5, "{before:?} {during:?}");
    assert!(after < before * 2, "{before:?} {after:?}");
}
