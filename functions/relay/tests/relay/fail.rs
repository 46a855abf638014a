//! Partners that misbehave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures_util::stream;
use testing::{Destination, Seed, Tenant, TestDb};
use tokio::time::Instant;

use crate::support::{Partner, ToStatus, drain, hasty, relay, relay_with, rows};

/// A drain with one attempt of `hasty` length, on a busy machine; the deployed attempt alone takes twice as long.
const HASTY_DRAIN: Duration = Duration::from_secs(5);

async fn one_due_event(partner: &Partner) -> (TestDb, Tenant, Destination) {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let destination = db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 1).await;
    (db, tenant, destination)
}

/// Asserts that one attempt failed and the row is pending with this error.
async fn assert_failed(db: &TestDb, error: &str) {
    let rows = rows(db).await;
    let row = &rows[0];
    assert!(!row.processed && !row.dead && !row.leased && row.attempts == 1, "{row:?}");
    assert!(row.last_error.as_ref().is_some_and(|text| text.contains(error)), "{row:?}");
}

#[tokio::test]
async fn a_partner_that_hangs_costs_one_attempt_of_limited_time() {
    let partner = Partner::start(|_| std::future::pending::<Response>()).await;
    let (db, ..) = one_due_event(&partner).await;
    let begun = Instant::now();
    assert_eq!(drain(&relay_with(&db, hasty())).await.failed, 1);
    assert!(begun.elapsed() < HASTY_DRAIN, "{:?}", begun.elapsed());
    assert_failed(&db, "no whole answer within 300ms").await;
}

/// A body that comes drop by drop and never ends.
fn dripping() -> Response {
    let drops = stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        Some((Ok::<_, std::io::Error>(Bytes::from_static(b".")), ()))
    });
    Response::new(Body::from_stream(drops))
}

#[tokio::test]
async fn a_partner_that_drips_is_over_in_the_same_time() {
    let partner = Partner::start(|_| async { (500.to_status(), dripping()) }).await;
    let (db, ..) = one_due_event(&partner).await;
    let begun = Instant::now();
    assert_eq!(drain(&relay_with(&db, hasty())).await.failed, 1);
    assert!(begun.elapsed() < HASTY_DRAIN, "{:?}", begun.elapsed());
    assert_failed(&db, "HTTP 500 Internal Server Error, then no whole answer within 300ms").await;

    partner.answer(|_| async { dripping() });
    db.execute("update outbox set next_attempt_at = now()").await;
    let begun = Instant::now();
    assert_eq!(drain(&relay_with(&db, hasty())).await.delivered, 1, "a 2xx, whatever follows");
    assert!(begun.elapsed() < HASTY_DRAIN, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_redirect_is_a_failure_and_is_not_followed() {
    let elsewhere = Partner::content().await;
    for status in [301, 302, 303, 307, 308] {
        let location = elsewhere.url.clone();
        let partner = Partner::start(move |_| {
            let location = location.clone();
            async move { (u16::to_status(status), [("location", location)]) }
        })
        .await;
        let (db, ..) = one_due_event(&partner).await;
        assert_eq!(drain(&relay(&db)).await.failed, 1);
        assert_failed(&db, &format!("HTTP {status}")).await;
    }
    assert!(elsewhere.received().is_empty());
}

#[tokio::test]
async fn no_more_than_64_kib_of_an_endless_answer_is_read() {
    const MIB: usize = 1024 * 1024;
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let partner = Partner::start(move |_| {
        let counter = Arc::clone(&counter);
        async move {
            let flood = stream::unfold(0, move |mib| {
                let counter = Arc::clone(&counter);
                async move {
                    counter.fetch_add(1, Ordering::Relaxed);
                    (mib < 500).then(|| (Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; MIB])), mib + 1))
                }
            });
            let mut response = Response::new(Body::from_stream(flood));
            *response.status_mut() = 500.to_status();
            response
        }
    })
    .await;
    let (db, ..) = one_due_event(&partner).await;
    assert_eq!(drain(&relay(&db)).await.failed, 1);
    // The sockets of both sides have buffered more than was read.
    assert!(sent.load(Ordering::Relaxed) < 32, "the partner could send {sent:?} MiB");
    assert_failed(&db, "HTTP 500 Internal Server Error: xxx").await;
    assert!(rows(&db).await[0].last_error.as_ref().unwrap().len() <= 2000);
}

#[tokio::test]
async fn an_answer_with_nul_and_bad_utf8_is_kept_as_far_as_it_can_be() {
    let partner = Partner::start(|_| async { (500.to_status(), &b"a\0b\xffc"[..]) }).await;
    let (db, ..) = one_due_event(&partner).await;
    assert_eq!(drain(&relay(&db)).await.failed, 1);
    assert_failed(&db, "a\u{fffd}b\u{fffd}c").await;
}

#[tokio::test]
async fn an_address_or_a_secret_that_cannot_be_used_is_a_failure_like_any_other() {
    let partner = Partner::content().await;
    let (db, ..) = one_due_event(&partner).await;
    db.execute("update destination set url = 'not an address'").await;
    assert_eq!(drain(&relay(&db)).await.failed, 1);
    assert_failed(&db, "must be an absolute https address").await;
    db.execute("delete from destination_secret; update outbox set attempts = 0, next_attempt_at = now()")
        .await;
    assert_eq!(drain(&relay(&db)).await.failed, 1);
    assert_failed(&db, "no live secret").await;
}

#[tokio::test]
async fn gone_disables_the_destination_and_its_events_wait() {
    // The second answer is settled after the first.
    let partner = Partner::start(|received| async move {
        tokio::time::sleep(Duration::from_millis(if received.id() == 1 { 0 } else { 200 })).await;
        (410.to_status(), "closed down")
    })
    .await;
    let (db, tenant, destination) = one_due_event(&partner).await;
    db.emit(&tenant, 1).await;
    let elsewhere = Partner::content().await;
    let other = db.destination(&tenant, &elsewhere.url, &["destination.disabled"]).await;
    let summary = drain(&relay(&db)).await;
    assert_eq!((summary.failed, summary.dead_lettered), (2, 0));
    let state: String = db.scalar("select string_agg(state, ' ' order by created_at) from destination").await;
    assert_eq!(state, "disabled active");
    assert_failed(&db, "HTTP 410 Gone: closed down").await;
    assert_eq!(summary.delivered, 1, "what is told of it does not wait for the next drain");
    // The tenant's other destination gets one event.
    let told: Vec<(i64, String)> = sqlx::query_as(
        "select sequence, payload from outbox where event_type = 'destination.disabled' and destination_id = $1",
    )
    .bind(other.id)
    .fetch_all(&mut db.owner().await)
    .await
    .unwrap();
    assert_eq!((told.len(), told[0].0, elsewhere.received().len()), (1, 1, 1), "its first event");
    assert!(told[0].1.contains(&destination.id.to_string()), "{}", told[0].1);
    db.assert_consistent().await;
    db.emit(&tenant, 1).await;
    assert_eq!(drain(&relay(&db)).await.claimed, 0);

    partner.answer(|_| async { 200.to_status() });
    db.execute("update destination set state = 'active'").await;
    assert_eq!(drain(&relay(&db)).await.delivered, 3);
}

#[tokio::test]
async fn a_destination_that_is_gone_is_told_of_once_however_many_events_found_it_so() {
    let partner = Partner::start(|_| async { 410.to_status() }).await;
    let (db, tenant, _) = one_due_event(&partner).await;
    db.emit(&tenant, 39).await;
    let elsewhere = Partner::content().await;
    db.destination(&tenant, &elsewhere.url, &["destination.disabled"]).await;
    let summary = drain(&relay(&db)).await;
    assert_eq!((summary.disabled, summary.recovered), (1, 0));
    assert!(summary.failed >= 20, "{summary:?}");
    let told = elsewhere.received();
    let event: serde_json::Value = serde_json::from_slice(&told[0].body).unwrap();
    assert_eq!(
        (told.len(), &event["data"]["state"], &event["data"]["cause"]),
        (1, &"disabled".into(), &"gone".into())
    );
    assert_eq!(db.count("destination_health where open_until is not null or probing").await, 0);
}

#[tokio::test]
async fn twelve_failures_lead_to_the_dead_letter_with_the_partners_words() {
    let partner =
        Partner::start(|_| async { (503.to_status(), format!("sorry {}", "o".repeat(5000))) }).await;
    let (db, ..) = one_due_event(&partner).await;
    let relay = relay(&db);
    for attempt in 1..=12 {
        let row = &rows(&db).await[0];
        assert!(!row.dead && row.attempts == attempt - 1, "{row:?}");
        let summary = drain(&relay).await;
        assert_eq!((summary.failed, summary.dead_lettered), (1, u64::from(attempt == 12)));
        let row = &rows(&db).await[0];
        let backoff = 2_f64.powi(attempt).min(3600.0);
        assert!(row.due_in_secs > backoff - 5.0 && row.due_in_secs <= (backoff * 1.5).min(3600.0), "{row:?}");
        db.execute("update outbox set next_attempt_at = now()").await;
    }
    let row = &rows(&db).await[0];
    assert!(row.dead && !row.processed && !row.leased && row.attempts == 12, "{row:?}");
    assert!(
        row.last_error.as_ref().unwrap().starts_with("HTTP 503 Service Unavailable: sorry ooo"),
        "{row:?}"
    );
    assert_eq!(drain(&relay).await.claimed, 0);
    assert_eq!(partner.received().len(), 12);
}

#[tokio::test]
async fn retry_after_puts_the_next_try_off_but_never_beyond_an_hour() {
    for (header, due_in_secs) in [
        ("120", 119.0..=120.0),
        ("120.1", 120.0..=121.0),
        ("86400", 3599.0..=3600.0),
        // Ten minutes after the relay's clock.
        ("Tue, 14 Nov 2023 22:23:20 GMT", 599.0..=600.0),
        ("Tuesday, 14-Nov-23 22:23:20 GMT", 599.0..=600.0),
        ("Tue Nov 14 22:23:20 2023", 599.0..=600.0),
        // In the past, unreadable, or shorter than the backoff: the backoff counts.
        ("Wed, 21 Oct 2015 07:28:00 GMT", 1.0..=3.0),
        ("invalid", 1.0..=3.0),
        ("0", 1.0..=3.0),
    ] {
        let partner =
            Partner::start(move |_| async move { (500.to_status(), [("retry-after", header)]) }).await;
        let (db, ..) = one_due_event(&partner).await;
        let mut relay = relay(&db);
        relay.ambient.now = || jiff::Timestamp::from_second(1_700_000_000).unwrap();
        assert_eq!(drain(&relay).await.failed, 1);
        let put_off_secs: f64 = db
            .scalar(
                "select extract(epoch from o.next_attempt_at - h.last_failure_at)::float8
                 from outbox o, destination_health h",
            )
            .await;
        assert!(due_in_secs.contains(&put_off_secs), "{header}: {put_off_secs}");
    }
}

#[tokio::test]
async fn attempts_are_counted_by_minute_and_hour_in_slots_that_are_written_anew() {
    let answered = Arc::new(AtomicUsize::new(0));
    let partner = Partner::start(move |_| {
        let first = answered.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { 500.to_status() } else { 200.to_status() } }
    })
    .await;
    let (db, ..) = one_due_event(&partner).await;
    assert_eq!(drain(&relay(&db)).await.failed, 1);
    // As if that had been an hour ago, in what is now the same slot of the minutes.
    db.execute("update delivery_tally set at = at - interval '60 min' where span = 'minute'").await;
    db.execute("update outbox set next_attempt_at = now()").await;
    assert_eq!(drain(&relay(&db)).await.delivered, 1);
    let counted = |span: &'static str, hours: u32| {
        let db = &db;
        async move {
            let sql = "select coalesce(sum(delivered), 0)::bigint, coalesce(sum(failed), 0)::bigint from delivery_tally
                       where span = $1 and at > now() - make_interval(hours => $2)";
            let sums: (i64, i64) = sqlx::query_as(sql)
                .bind(span)
                .bind(i32::try_from(hours).unwrap())
                .fetch_one(&mut db.owner().await)
                .await
                .unwrap();
            sums
        }
    };
    assert_eq!(counted("minute", 1).await, (1, 0));
    assert_eq!(counted("hour", 24).await, (1, 1));
}
