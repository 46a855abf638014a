//! Partners that are down for days, ask for pauses, or keep everybody busy; and the watch for new events.

use std::time::Duration;

use relay::{Limits, Watch};
use serde_json::Value;
use shared::delivery::attempt::retry_after;
use shared::delivery::outbox::{self, ClaimRequest, LeaseTerms};
use testing::{Seed, Tenant, TestDb, case};
use tokio::time::Instant;
use uuid::Uuid;

use crate::support::{PATIENCE, Partner, ToStatus, drain, eager, relay, relay_with, rows};

const MINUTE: Duration = Duration::from_secs(60);

async fn events_for(partner: &Partner, count: usize) -> (TestDb, Tenant) {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    db.destination(&tenant, &partner.url, &["inbox.exception"]).await;
    db.emit(&tenant, count).await;
    (db, tenant)
}

async fn pause_secs(db: &TestDb) -> f64 {
    db.scalar("select extract(epoch from throttled_until - last_failure_at)::float8 from destination_health")
        .await
}

async fn the_pause_is_over(db: &TestDb) {
    db.execute("update destination_health set throttled_until = now()").await;
}

#[tokio::test]
async fn slow_down_pauses_the_destination_and_costs_no_attempt_and_no_place() {
    let partner = Partner::start(|_| async { 429.to_status() }).await;
    let (db, _) = events_for(&partner, 60).await;
    let relay = relay(&db);
    for pause in [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0] {
        let summary = drain(&relay).await;
        assert!(summary.failed >= 20 && summary.disabled == 0 && summary.dead_lettered == 0, "{summary:?}");
        assert!((pause_secs(&db).await - pause).abs() < 1.0, "{} for {pause}", pause_secs(&db).await);
        assert_eq!(drain(&relay).await.claimed, 0, "the whole destination waits");
        the_pause_is_over(&db).await;
    }
    assert!(rows(&db).await.iter().all(|row| row.attempts == 0 && !row.dead));
    assert_eq!(db.count("destination_health where open_until is not null or failures > 0").await, 0);
    let before = partner.received().len();
    partner.answer(|_| async { 200.to_status() });
    let limits = Limits { in_flight_each: 1, in_flight_proven: 1, ..Limits::default() };
    assert_eq!(drain(&relay_with(&db, limits)).await.delivered, 60);
    let order: Vec<i64> = partner.received().iter().skip(before).map(|received| received.id()).collect();
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(db.count("destination_health where throttles = 0 and throttled_since is null").await, 1);
}

#[tokio::test]
async fn a_pause_lasts_as_long_as_the_partner_says_in_whatever_form() {
    for (status, header, pause) in [
        (429, Some("120"), Some(120.0)),
        (429, Some("Tuesday, 14-Nov-23 22:23:20 GMT"), Some(600.0)),
        (429, Some("Tue Nov 14 22:23:20 2023"), Some(600.0)),
        (429, Some("86400"), Some(3_600.0)),
        (429, Some("0"), Some(5.0)),
        (429, Some("soon"), Some(5.0)),
        (503, Some("Tue, 14 Nov 2023 22:23:20 GMT"), Some(600.0)),
        (503, Some("Wed, 21 Oct 2015 07:28:00 GMT"), None),
        (503, None, None),
        (500, Some("120"), None),
    ] {
        let partner = Partner::start(move |_| async move {
            let mut response = axum::response::IntoResponse::into_response(u16::to_status(status));
            if let Some(header) = header {
                response.headers_mut().insert("retry-after", header.parse().unwrap());
            }
            response
        })
        .await;
        let (db, _) = events_for(&partner, 1).await;
        let mut relay = relay(&db);
        relay.ambient.now = || jiff::Timestamp::from_second(1_700_000_000).unwrap();
        assert_eq!(drain(&relay).await.failed, 1);
        let attempts = i32::from(pause.is_none());
        assert_eq!(rows(&db).await[0].attempts, attempts, "{status} {header:?}");
        match pause {
            Some(pause) => assert!((pause_secs(&db).await - pause).abs() < 1.0, "{status} {header:?}"),
            None => assert_eq!(db.count("destination_health where throttled_until is not null").await, 0),
        }
    }
}

#[test]
fn retry_after_is_read_as_published_vectors_say() {
    let Some(vectors) = case("backoff/retry-after.json") else { return };
    let now = jiff::Timestamp::from_second(1_700_000_000).unwrap();
    let vectors: Vec<Value> = serde_json::from_slice(&vectors).unwrap();
    for vector in vectors.iter().filter(|vector| vector["header"].is_string()) {
        let read = retry_after(vector["header"].as_str().unwrap(), now);
        match vector["expect_s"].as_u64() {
            Some(secs) => assert_eq!(read, Some(Duration::from_secs(secs)), "{vector}"),
            // Ignored, or in the past: no wait of its own.
            None => assert!(read.is_none_or(|wait| wait.is_zero()), "{vector}"),
        }
    }
}

#[tokio::test]
async fn after_a_quarter_of_an_hour_without_an_answer_events_wait_and_probes_take_turns_and_no_attempts() {
    let partner = Partner::start(|_| async { 502.to_status() }).await;
    let (db, _) = events_for(&partner, 4).await;
    db.execute("update destination set max_attempts = 3").await;
    let relay = relay(&db);
    assert_eq!(drain(&relay).await.failed, 4);
    assert_eq!(db.count("destination_health where open_until is not null").await, 0);
    // A quarter of an hour later.
    db.execute("update destination_health set unreachable_since = now() - interval '15 min'; update outbox set next_attempt_at = now() where id = 1").await;
    let summary = drain(&relay).await;
    assert_eq!((summary.failed, summary.disabled), (1, 1));
    let before = partner.received().len();
    for _ in 0..12 {
        db.execute("update destination_health set open_until = now() - interval '1 ms'; update outbox set next_attempt_at = least(next_attempt_at, now())").await;
        assert_eq!(drain(&relay).await.claimed, 1, "one probe");
    }
    let mut probed: Vec<i64> = partner.received().iter().skip(before).map(|received| received.id()).collect();
    probed.sort_unstable();
    probed.dedup();
    assert_eq!(probed, [1, 2, 3, 4], "every event has its turn");
    // Behind them stands the event about the destination.
    let attempts: Vec<i32> = rows(&db).await.iter().take(4).map(|row| row.attempts).collect();
    assert_eq!(attempts, [2, 1, 1, 1], "an outage of any length makes no dead letters");
    partner.answer(|_| async { 200.to_status() });
    db.execute("update destination_health set open_until = now() - interval '1 ms'; update outbox set next_attempt_at = now()").await;
    drain(&relay).await;
    drain(&relay).await;
    assert!(rows(&db).await.iter().all(|row| row.processed));
    assert_eq!(
        db.count("destination_health where unreachable_since is null and open_until is null").await,
        1
    );
}

#[tokio::test]
async fn a_partner_that_answers_is_reachable_and_one_poisoned_event_ends_as_a_dead_letter_of_its_own() {
    let partner =
        Partner::start(|received| async move { if received.id() == 1 { 500 } else { 200 }.to_status() })
            .await;
    let (db, tenant) = events_for(&partner, 1).await;
    db.execute("update destination set max_attempts = 5").await;
    let relay = relay(&db);
    for attempt in 1..=5 {
        let summary = drain(&relay).await;
        assert_eq!((summary.failed, summary.dead_lettered), (1, u64::from(attempt == 5)));
        db.execute("update destination_health set unreachable_since = unreachable_since - interval '10 min'")
            .await;
        db.emit(&tenant, 1).await;
        assert_eq!(drain(&relay).await.delivered, 1);
        db.execute("update outbox set next_attempt_at = now() where processed_at is null and dead_lettered_at is null").await;
    }
    // A refusal is an answer too.
    partner.answer(|_| async { 422.to_status() });
    db.execute("update destination_health set unreachable_since = now() - interval '1 h'").await;
    db.emit(&tenant, 1).await;
    assert_eq!(drain(&relay).await.disabled, 0);
    assert_eq!(db.count("destination_health where unreachable_since is null").await, 1);
}

#[tokio::test]
async fn twenty_shops_whose_skus_are_all_being_pushed_keep_nobody_waiting() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    for _ in 0..20 {
        db.destination(&tenant, "http://127.0.0.1:9/", &["inbox.exception"]).await;
    }
    db.execute("update destination set kind = 'shopify_inventory'").await;
    // Of each shop one row is under way, and the next of the same SKU is due.
    db.emit(&tenant, 2).await;
    db.execute("update outbox set lease_token = gen_random_uuid(), leased_until = now() + interval '1 h', next_attempt_at = now() + interval '1 h' where sequence = 1").await;
    let partner = Partner::content().await;
    let content = db.destination(&tenant, &partner.url, &["order.saved"]).await;
    db.execute(format!("insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload) values ('{}', '{}', gen_random_uuid(), 'tenant', '{0}', 99, 'order.saved', '{{}}')", tenant.id, content.id)).await;
    let terms = LeaseTerms { lease: MINUTE, retry_unit: MINUTE, jitter: 1.0 };
    let claim = async |after: Uuid| {
        let request = ClaimRequest { slots: 20, after, busy: &[], room_each: 20, watermarks: &[], terms };
        outbox::claim(&db.worker(), &request)
            .await
            .unwrap()
            .0
            .iter()
            .map(|row| row.destination_id)
            .collect::<Vec<_>>()
    };
    // Right behind it in the round, so that all shops come first.
    assert_eq!(claim(content.id).await, [content.id]);
}

#[tokio::test]
async fn the_last_attempts_of_an_event_are_kept() {
    let partner = Partner::start(|_| async { (500.to_status(), "sorry") }).await;
    let (db, _) = events_for(&partner, 1).await;
    db.execute("update destination set max_attempts = 100").await;
    let relay = relay(&db);
    for _ in 0..23 {
        assert_eq!(drain(&relay).await.failed, 1);
        db.execute("update outbox set next_attempt_at = now(); update destination_health set unreachable_since = null").await;
    }
    partner.answer(|_| async { 204.to_status() });
    assert_eq!(drain(&relay).await.delivered, 1);
    let log: String = db.scalar("select attempt_log::text from outbox").await;
    let log: Vec<Value> = serde_json::from_str(&log).unwrap();
    assert_eq!(log.len(), 20);
    assert_eq!(
        (&log[0]["status"], &log[0]["said"]),
        (&500.into(), &"HTTP 500 Internal Server Error: sorry".into())
    );
    let last = &log[19];
    assert_eq!((&last["status"], &last["said"]), (&204.into(), &Value::Null));
    assert!(last["ms"].is_u64() && last["at"].as_str().unwrap().ends_with('Z'), "{last}");
}

#[tokio::test]
async fn a_relay_watches_until_the_next_one_has_begun_however_late_it_is() {
    let partner = Partner::content().await;
    let (db, tenant) = events_for(&partner, 1).await;
    let deadline = Instant::now() + PATIENCE * 2;
    let (first, second) = (relay_with(&db, eager()), relay_with(&db, eager()));
    let watch = Watch::UntilFollowed(Duration::from_millis(50));
    let first = tokio::spawn(async move { first.run_once(watch, deadline).await.unwrap() });
    // The least time is over many times, and still events go out.
    for n in 2..=5 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        db.emit(&tenant, 1).await;
        let begun = Instant::now();
        while partner.received().len() < n {
            assert!(begun.elapsed() < PATIENCE, "event {n}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(!first.is_finished());
    let second = tokio::spawn(async move { second.run_once(watch, deadline).await });
    assert_eq!(first.await.unwrap().delivered, 5);
    assert!(!second.is_finished());
    second.abort();
    // One that finds no time left for an attempt ends, followed or not.
    let hurried = relay_with(&db, eager());
    hurried.run_once(watch, Instant::now() + Duration::from_secs(13)).await.unwrap();
}

/// Each tick comes a minute after the last one, 20 s early or late: at every moment of an hour a relay watches, or one begins
/// within 2 s.
#[test]
fn an_hour_of_jittering_ticks_leaves_no_hole() {
    let (least, timeout) = (Duration::from_secs(relay::WATCH_SECS), Duration::from_secs(relay::TIMEOUT_SECS));
    let (watch, last_look) = (Watch::UntilFollowed(least), timeout - Limits::default().last_attempt());
    let ends_after = |next_begins_after: Duration| {
        let moments = (0..).map(|tenths| Duration::from_millis(tenths * 100));
        let mut over = moments.filter(|at| *at >= last_look || watch.is_over(*at, *at >= next_begins_after));
        over.next().unwrap()
    };
    for seed in 0..100_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        for _ in 0..60 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let next_begins_after = Duration::from_millis(40_000 + (state >> 33) % 40_001);
            let hole = next_begins_after.saturating_sub(ends_after(next_begins_after));
            assert!(hole <= Duration::from_secs(2), "a hole of {hole:?}");
        }
    }
}
