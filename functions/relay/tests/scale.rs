//! Many destinations, and an old open snapshot. A program of its own, so that nothing else runs during measurements.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "relay/support.rs"]
#[expect(dead_code, reason = "the other tests' too")]
mod support;

use std::time::Duration;

use relay::Limits;
use shared::delivery::outbox::{self, ClaimRequest, LeaseTerms};
use shared::delivery::settlement::{self, Settlement, Transition};
use testing::{Seed, Tenant, TestDb};
use tokio::sync::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use support::{Partner, drain, relay, until};

/// Held by the test that is measuring.
static ALONE: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn ten_thousand_idle_destinations_cost_nothing() {
    let _alone = ALONE.lock().await;
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

/// Claims and settles `count` events of one destination with the relay's statements, `batch` at a time, each claim from the
/// watermark of the one before. Returns the time of each claim.
async fn claim_and_settle(db: &TestDb, count: usize, batch: usize) -> Vec<Duration> {
    let worker = db.worker();
    let terms =
        LeaseTerms { lease: Duration::from_secs(30), retry_unit: Duration::from_secs(1), jitter: 1.0 };
    let breaker = Limits::default().breaker;
    let mut watermarks = Vec::new();
    let (mut took, mut settled) = (Vec::new(), 0);
    while settled < count {
        let request = ClaimRequest {
            slots: batch,
            after: Uuid::nil(),
            busy: &[],
            room_each: batch,
            watermarks: &watermarks,
            terms,
        };
        let begun = Instant::now();
        let (claimed, _) = outbox::claim(&worker, &request).await.unwrap();
        took.push(begun.elapsed());
        let first = claimed.first().expect("an event");
        watermarks = vec![(first.destination_id, first.oldest_due_secs.unwrap() - 0.2)];
        let delivered: Vec<_> =
            claimed.iter().map(|row| Settlement::new(row.id, row.token, Transition::Delivered)).collect();
        settlement::settle(&worker, &delivered, terms.retry_unit, breaker).await.unwrap();
        settled += claimed.len();
    }
    took
}

/// Blocks that a drain of 2,000 events reads, by the server's statistics: unlike time, the same on a busy machine.
async fn blocks_of_a_drain(db: &TestDb, tenant: &Tenant) -> i64 {
    let blocks = async || {
        // A session reports its statistics when it ends.
        until(db, "select not exists (select from pg_stat_activity where datname = current_database() and usename = 'holdfast_worker')").await;
        db.scalar::<i64>(
            "select blks_hit + blks_read from pg_stat_database where datname = current_database()",
        )
        .await
    };
    db.emit(tenant, 2_000).await;
    let before = blocks().await;
    let relay = relay(db);
    assert_eq!(drain(&relay).await.delivered, 2_000);
    drop(relay);
    blocks().await - before
}

/// The open snapshot keeps every version of every delivered row, and so dead entries at the beginning of the index of pending
/// rows. A claim that read them would slow down with every delivery (a hundred times after these 100,000). With watermarks a
/// claim begins behind them. What must read them (the first claim of a drain, polls for lost rows) runs less often the longer
/// it takes. Autovacuum makes no difference: it can remove nothing while the snapshot is open.
#[tokio::test]
async fn while_an_old_snapshot_is_held_claims_stay_quick_and_are_as_before_when_it_is_gone() {
    let _alone = ALONE.lock().await;
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    // The time of a claim of 20: the fifth quickest of a hundred, since other programs use this machine, too.
    let round = async || {
        db.emit(&tenant, 2_000).await;
        let mut claims = claim_and_settle(&db, 2_000, 20).await;
        claims.sort_unstable();
        (claims[4], blocks_of_a_drain(&db, &tenant).await)
    };
    round().await;
    let before = round().await;
    let held =
        db.hold("set transaction isolation level repeatable read; select count(*) from outbox".into()).await;
    for _ in 0..10 {
        db.emit(&tenant, 10_000).await;
        claim_and_settle(&db, 10_000, 2_000).await;
    }
    // A drain reads the dead entries about six times in all; without watermarks it would, twice for each claim.
    let during = round().await;
    held.let_go().await;
    db.execute("vacuum outbox").await;
    let after = round().await;
    println!(
        "a claim, and the blocks of a drain: {before:?} before, {during:?} beside a held snapshot, {after:?} after"
    );
    assert!(during.0 < before.0 * 5 && after.0 < before.0 * 5, "claims: {before:?} {during:?} {after:?}");
    assert!(during.1 < before.1 * 60 && after.1 < before.1 * 2, "drains: {before:?} {during:?} {after:?}");
}
