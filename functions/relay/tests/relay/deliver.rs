//! What a partner receives, and when.

use std::time::Duration;

use relay::Limits;
use shared::runtime::sealed::{Sealer, destination_place};
use sqlx::Connection;
use standardwebhooks::Webhook;
use testing::{Seed, TestDb};
use tokio::time::Instant;

use crate::support::{PATIENCE, Partner, ToStatus, drain, eager, relay, relay_with, rows, until};

#[tokio::test]
async fn an_event_arrives_signed_with_every_live_secret_and_with_the_bytes_of_its_payload() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    let destination = db.destination(&tenant, &partner.url, &["*"]).await;
    let (newer, retired) =
        ("whsec_bmV3ZXIgbmV3ZXIgbmV3ZXIgbmV3ZXI=", "whsec_cmV0aXJlZCByZXRpcmVkIHJldGlyZWQ=");
    for (secret, retires_at) in [(newer, "null"), (retired, "now()")] {
        db.execute(format!(
            "insert into destination_secret (tenant_id, destination_id, secret, retires_at)
             values ('{}', '{}', '{secret}', {retires_at})",
            tenant.id, destination.id
        ))
        .await;
    }
    db.emit(&tenant, 1).await;

    let summary = drain(&relay(&db)).await;

    assert_eq!((summary.claimed, summary.delivered, summary.failed, summary.dead_lettered), (1, 1, 0, 0));
    let received = partner.received();
    assert_eq!(received.len(), 1);
    let (id, payload): (i64, String) =
        sqlx::query_as("select id, payload from outbox").fetch_one(&mut db.owner().await).await.unwrap();
    assert_eq!(received[0].body, payload.as_bytes());
    assert_eq!(received[0].header("webhook-id"), format!("outbox-{id}"));
    assert_eq!(received[0].header("idempotency-key"), format!("outbox-{id}"));
    assert_eq!(received[0].header("content-type"), "application/json");
    assert_eq!(received[0].header("webhook-signature").split(' ').count(), 2);
    let verified =
        |secret: &str| Webhook::new(secret).unwrap().verify(&received[0].body, &received[0].headers);
    verified(&destination.secret).unwrap();
    verified(newer).unwrap();
    verified(retired).unwrap_err();
}

#[tokio::test]
async fn each_attempt_is_signed_anew_under_the_same_id() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::start(|_| async { 500.to_status() }).await;
    let destination = db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 1).await;
    let mut relay = relay(&db);
    relay.ambient.now = || jiff::Timestamp::from_second(1_700_000_000).unwrap();
    drain(&relay).await;
    db.execute("update outbox set next_attempt_at = now()").await;
    partner.answer(|_| async { 204.to_status() });
    relay.ambient.now = jiff::Timestamp::now;
    drain(&relay).await;

    let received = partner.received();
    assert_eq!(received.len(), 2);
    assert_eq!(received[0].header("webhook-id"), received[1].header("webhook-id"));
    assert_eq!(received[0].body, received[1].body);
    assert_eq!(received[0].header("webhook-timestamp"), "1700000000");
    let webhook = Webhook::new(&destination.secret).unwrap();
    webhook.verify(&received[0].body, &received[0].headers).unwrap_err();
    webhook.verify(&received[1].body, &received[1].headers).unwrap();
    assert!(rows(&db).await[0].processed);
}

#[tokio::test]
async fn an_event_that_commits_late_behind_a_higher_id_is_still_delivered() {
    let db = TestDb::create().await;
    let (early, late) = (db.seed(Seed::default()).await, db.seed(Seed::default()).await);
    let partner = Partner::content().await;
    db.destination(&early, &partner.url, &["*"]).await;
    db.destination(&late, &partner.url, &["*"]).await;
    let mut owner = db.owner().await;
    let mut open = owner.begin().await.unwrap();
    sqlx::query(
        "select holdfast.emit($1, array[row('inbox.exception', 'tenant', $1, 1, null, '{\"n\":1}')::holdfast.event])",
    )
    .bind(late.id)
    .execute(&mut *open)
    .await
    .unwrap();
    db.emit(&early, 1).await;
    let relay = relay(&db);
    drain(&relay).await;
    assert_eq!(partner.ids(), [2]);
    open.commit().await.unwrap();
    drain(&relay).await;
    assert_eq!(partner.ids(), [1, 2]);
}

#[tokio::test]
async fn no_transaction_is_open_during_a_call() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let owner_url = db.owner_url.clone();
    // Finds a transaction of the relay that began before the request and is still open while it is handled.
    let partner = Partner::start(move |_| {
        let owner_url = owner_url.clone();
        async move {
            let mut owner = sqlx::PgConnection::connect(&owner_url).await.unwrap();
            let came_at: f64 = sqlx::query_scalar("select extract(epoch from clock_timestamp())::float8")
                .fetch_one(&mut owner)
                .await
                .unwrap();
            for _ in 0..100 {
                let open: i64 = sqlx::query_scalar(
                    "select count(*) from pg_stat_activity where datname = current_database()
                     and usename = 'holdfast_worker' and extract(epoch from xact_start)::float8 <= $1",
                )
                .bind(came_at)
                .fetch_one(&mut owner)
                .await
                .unwrap();
                if open == 0 {
                    return 200.to_status();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            500.to_status()
        }
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 3).await;
    assert_eq!(drain(&relay(&db)).await.delivered, 3);
}

#[tokio::test]
async fn paused_and_disabled_destinations_are_left_alone_until_they_are_active() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    for change in ["state = 'paused'", "state = 'disabled'", "state = 'active'"] {
        let destination = db.destination(&tenant, &partner.url, &["*"]).await;
        db.execute(format!("update destination set {change} where id = '{}'", destination.id)).await;
    }
    db.emit(&tenant, 5).await;
    assert_eq!(drain(&relay(&db)).await.claimed, 5);
    db.execute("update destination set state = 'active'").await;
    assert_eq!(drain(&relay(&db)).await.claimed, 10);
}

#[tokio::test]
async fn while_it_watches_a_new_event_waits_for_the_next_look() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    let relay = relay_with(&db, eager());
    let watching =
        tokio::spawn(async move { relay.run_once(PATIENCE, Instant::now() + PATIENCE * 2).await.unwrap() });
    until(&db, "select exists (select from pg_stat_activity where datname = current_database() and usename = 'holdfast_worker')").await;
    let begun = Instant::now();
    db.emit(&tenant, 1).await;
    until(&db, "select bool_and(processed_at is not null) from outbox").await;
    // Not only at the next scheduled start, a minute later.
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert_eq!(partner.received().len(), 1);
    watching.abort();
}

#[tokio::test]
async fn near_its_deadline_it_claims_nothing_that_it_could_not_settle() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::start(|_| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        200.to_status()
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 100).await;
    let (attempt, settle) = (Duration::from_secs(3), Duration::from_millis(500));
    let limits = Limits { in_flight_each: 1, attempt, settle, ..eager() };
    let relay = relay_with(&db, limits);
    let deadline = Instant::now() + limits.attempt + limits.settle + Duration::from_millis(1500);
    let summary = relay.run_once(Duration::from_secs(50), deadline).await.unwrap();
    assert!(Instant::now() < deadline);
    assert!(summary.claimed > 0 && summary.claimed == summary.delivered, "{summary:?}");
    let last = partner.received().last().unwrap().at;
    assert!(last < deadline - limits.attempt, "claimed {:?} before the deadline", deadline - last);
    assert!(rows(&db).await.iter().all(|row| !row.leased));
    let nothing = relay.run_once(Duration::ZERO, Instant::now() + limits.attempt).await.unwrap();
    assert_eq!(nothing.claimed, 0);
}

#[tokio::test]
async fn a_sealed_secret_signs_where_the_relay_has_its_key_and_nothing_goes_out_unsigned_elsewhere() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    let destination = db.destination(&tenant, &partner.url, &["*"]).await;
    let sealed = testing::sealer().seal(&destination_place(destination.id), &destination.secret).unwrap();
    db.execute(format!("update destination_secret set secret = '{sealed}'")).await;
    db.emit(&tenant, 1).await;
    let mut relay = relay(&db);
    let other_key = "other:HxAdHBsaGRgXFhUUExIREA8ODQwLCgkIBwYFBAMCAQA=";
    for sealer in [None, Some(Sealer::read(other_key).unwrap())] {
        relay.sealer = sealer;
        assert_eq!(drain(&relay).await.failed, 1);
        assert!(partner.received().is_empty());
        let told: String = sqlx::query_scalar("select last_error from outbox")
            .fetch_one(&mut db.owner().await)
            .await
            .unwrap();
        assert!(told.contains("secret") && !told.contains("sealed:"), "{told}");
        db.execute("update outbox set next_attempt_at = now()").await;
    }
    relay.sealer = Some(testing::sealer());
    assert_eq!(drain(&relay).await.delivered, 1);
    let received = &partner.received()[0];
    Webhook::new(&destination.secret).unwrap().verify(&received.body, &received.headers).unwrap();
}
