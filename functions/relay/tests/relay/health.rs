//! Circuit breaker, rate limit and recovery of destinations.

use std::time::Duration;

use relay::Limits;
use testing::{Seed, TestDb};
use tokio::time::Instant;

use crate::support::{Partner, ToStatus, drain, eager, relay, relay_with, rows};

/// Ends the breaker's pause.
async fn time_for_a_probe(db: &TestDb) {
    db.execute(
        "update destination_health set open_until = now() - interval '1 ms' where open_until is not null",
    )
    .await;
}

async fn all_due(db: &TestDb) {
    db.execute("update outbox set next_attempt_at = now() where processed_at is null").await;
}

#[tokio::test]
async fn while_its_breaker_is_open_a_destinations_events_wait_without_using_attempts_and_a_probe_goes_through()
 {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let (failing, watching) = (Partner::start(|_| async { 503.to_status() }).await, Partner::content().await);
    let destination = db.destination(&tenant, &failing.url, &["inbox.exception"]).await;
    db.destination(&tenant, &watching.url, &["destination.disabled", "destination.recovered"]).await;
    db.emit(&tenant, 200).await;
    let relay = relay(&db);
    let summary = drain(&relay).await;
    assert_eq!(summary.disabled, 1);
    assert!((20..=40).contains(&summary.failed), "{summary:?}");
    all_due(&db).await;
    let before = failing.received().len();
    drain(&relay).await;
    assert_eq!(failing.received().len(), before);
    let untouched = rows(&db).await.iter().filter(|row| row.attempts == 0 && !row.processed).count();
    assert!(untouched >= 160, "{untouched}");

    let pause = "select extract(epoch from max(open_until) - now())::float8 from destination_health where open_until is not null";
    let first: f64 = db.scalar(pause).await;
    assert!(first <= 10.0, "{first}");
    time_for_a_probe(&db).await;
    assert_eq!(drain(&relay).await.claimed, 1, "one probe");
    let second: f64 = db.scalar(pause).await;
    assert!(second > 15.0 && second <= 20.0, "{second}");

    failing.answer(|_| async { 200.to_status() });
    assert_eq!(drain(&relay).await.claimed, 0);
    time_for_a_probe(&db).await;
    all_due(&db).await;
    drain(&relay).await;
    drain(&relay).await;
    assert!(rows(&db).await.iter().all(|row| row.processed));
    let told: Vec<_> = watching
        .received()
        .iter()
        .map(|received| {
            let event: serde_json::Value = serde_json::from_slice(&received.body).unwrap();
            let data = &event["data"];
            assert_eq!(data["destinationId"], destination.id.to_string());
            // No person has to act: its state stays active.
            [&event["type"], &data["state"], &data["cause"]].map(|value| value.as_str().unwrap().to_owned())
        })
        .collect();
    assert_eq!(
        told,
        [["destination.disabled", "active", "failing"], ["destination.recovered", "active", "answering"]]
    );
    assert_eq!(db.count("destination where state = 'active'").await, 2);
    db.assert_consistent().await;
}

#[tokio::test]
async fn several_relays_send_one_probe() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let failing = Partner::start(|_| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        500.to_status()
    })
    .await;
    db.destination(&tenant, &failing.url, &["inbox.exception"]).await;
    db.emit(&tenant, 50).await;
    drain(&relay(&db)).await;
    time_for_a_probe(&db).await;
    all_due(&db).await;
    let before = failing.received().len();
    let relays: Vec<_> = (0..4).map(|_| relay(&db)).collect();
    futures_util::future::join_all(relays.iter().map(drain)).await;
    assert_eq!(failing.received().len(), before + 1);
}

#[tokio::test]
async fn one_poisoned_event_stops_no_other() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner =
        Partner::start(|received| async move { if received.id() == 1 { 422 } else { 200 }.to_status() })
            .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.execute("update destination set max_attempts = 40").await;
    db.emit(&tenant, 1).await;
    let relay = relay(&db);
    for _ in 0..30 {
        assert_eq!(drain(&relay).await.failed, 1);
        all_due(&db).await;
    }
    db.emit(&tenant, 30).await;
    let summary = drain(&relay).await;
    assert_eq!((summary.delivered, summary.failed, summary.disabled), (30, 1, 0));
}

#[tokio::test]
async fn a_destination_gets_no_more_in_a_second_than_it_takes() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.execute("update destination set max_per_second = 5").await;
    db.emit(&tenant, 30).await;
    let (one, other) = (relay_with(&db, eager()), relay_with(&db, eager()));
    let begun = Instant::now();
    let (watch, deadline) = (Duration::from_millis(2_500), begun + Duration::from_secs(60));
    let (first, second) = tokio::join!(one.run_once(watch, deadline), other.run_once(watch, deadline));
    let delivered = first.unwrap().delivered + second.unwrap().delivered;
    assert!(delivered >= 10, "{delivered}");
    for (index, event) in partner.received().iter().enumerate() {
        // The rows of one second may go at once.
        let at_secs = (event.at - begun).as_secs_f64();
        assert!(index as f64 <= 5.0 * (1.0 + at_secs), "number {index} came after {at_secs} s");
    }
}

#[tokio::test]
async fn a_thousand_failing_events_spread_their_next_tries() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::start(|_| async { 500.to_status() }).await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 1000).await;
    // A long backoff: none is due again before the drain ends.
    let mut limits = Limits { retry_unit: Duration::from_secs(100), ..Limits::default() };
    limits.breaker.after = i32::MAX;
    assert_eq!(drain(&relay_with(&db, limits)).await.failed, 1000);
    let settled_to_next: Vec<f64> = sqlx::query_scalar(
        "select extract(epoch from next_attempt_at - (select max(last_failure_at) from destination_health))::float8 from outbox",
    )
    .fetch_all(&mut db.owner().await)
    .await
    .unwrap();
    // They are spread over a whole unit.
    let mut hundredths: Vec<i64> = settled_to_next.iter().map(|secs| secs.floor() as i64).collect();
    hundredths.sort_unstable();
    let most = hundredths.chunk_by(|a, b| a == b).map(<[i64]>::len).max().unwrap();
    assert!(most < 50, "{most} of 1000 are due in the same hundredth of a unit");
    hundredths.dedup();
    assert!(hundredths.len() > 60, "{} different hundredths", hundredths.len());
}
