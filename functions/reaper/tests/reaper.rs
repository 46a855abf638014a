//! The reaper's promises, tested against a real database.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use reaper::{Limits, Retention, Summary, run_once};
use serde_json::json;
use shared::db::call::Statement;
use sqlx::{Connection as _, Row as _};
use testing::{Seed, TestDb};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);

/// Inserts `each` keys, inbox rows and outbox rows of every age; ages are intervals.
async fn fill(db: &TestDb, ages: &[&str], each: usize) {
    let tenant = db.seed(Seed::default()).await.id;
    for (index, age) in ages.iter().enumerate() {
        db.execute(format!(
            "insert into idempotency_key (tenant_id, key, request_method, request_path, request_hash, response_status,
               response_body, response_content_type, created_at)
             select '{tenant}', 'k{index}-' || n, 'POST', '/', sha256(''), 200, '', 'application/json',
               now() - interval '{age}' from generate_series(1, {each}) n;
             insert into webhook_inbox (provider, event_id, received_at)
             select 'stripe', 'e{index}-{tenant}-' || n, now() - interval '{age}' from generate_series(1, {each}) n;
             insert into outbox (tenant_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload,
               processed_at)
             select '{tenant}', gen_random_uuid(), 'sku', '{tenant}', n, 'x', '', now() - interval '{age}'
             from generate_series(1, {each}) n"
        ))
        .await;
    }
}

async fn counts(db: &TestDb) -> (i64, i64, i64) {
    sqlx::query_as(
        "select (select count(*) from idempotency_key), (select count(*) from webhook_inbox), (select count(*) from outbox)",
    )
    .fetch_one(&mut db.owner().await)
    .await
    .unwrap()
}

#[tokio::test]
async fn what_is_older_than_promised_goes_and_the_rest_stays() {
    let db = TestDb::create().await;
    fill(&db, &["23 h 59 min", "24 h 1 min", "29 d 23 h", "30 d 1 h"], 2).await;
    let summary = run_once(&db.worker(), Retention::default(), Limits::default(), Instant::now() + MINUTE)
        .await
        .unwrap();
    assert_eq!(summary, Summary { keys: 6, inbox: 2, outbox: 2, ..Summary::default() });
    assert_eq!(counts(&db).await, (2, 6, 6));
    let again = run_once(&db.worker(), Retention::default(), Limits::default(), Instant::now() + MINUTE)
        .await
        .unwrap();
    assert_eq!(again, Summary::default());
}

#[tokio::test]
async fn a_shorter_retention_than_promised_is_not_taken() {
    let db = TestDb::create().await;
    fill(&db, &["23 h 59 min", "29 d 23 h"], 1).await;
    let hasty = Retention::new(0, 1, 1, 1);
    assert_eq!(hasty, Retention { keys_hours: 24, inbox_days: 30, outbox_days: 1, snapshot_days: 1 });
    let summary = run_once(&db.worker(), hasty, Limits::default(), Instant::now() + MINUTE).await.unwrap();
    assert_eq!(summary, Summary { keys: 1, outbox: 1, ..Summary::default() });
}

#[tokio::test]
async fn a_pending_dead_or_discarded_outbox_row_is_never_touched() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    db.destination(&tenant, "http://127.0.0.1:9/", &["*"]).await;
    db.emit(&tenant, 4).await;
    db.execute(
        "update outbox set created_at = now() - interval '5 years', next_attempt_at = now() - interval '5 years';
         update outbox set dead_lettered_at = created_at where id = 2;
         update outbox set discarded_at = created_at where id = 3;
         update outbox set processed_at = created_at where id = 4",
    )
    .await;
    let summary =
        run_once(&db.worker(), Retention::new(24, 30, 0, 400), Limits::default(), Instant::now() + MINUTE)
            .await
            .unwrap();
    assert_eq!(summary.outbox, 1);
    let left: Vec<i64> = sqlx::query_scalar("select id from outbox order by id")
        .fetch_all(&mut db.owner().await)
        .await
        .unwrap();
    assert_eq!(left, [1, 2, 3]);
}

#[tokio::test]
async fn a_snapshot_is_kept_for_its_days_and_then_goes() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    db.execute(format!(
        "insert into inventory_snapshot (tenant_id, sku_id, snapshot_date, on_hand)
         select '{}', '{}', current_date - age, 6 from unnest(array[0, 90, 91, 92]) age",
        tenant.id, tenant.skus[0]
    ))
    .await;
    let (limits, soon) = (Limits { batch: 1, ..Limits::default() }, Instant::now() + MINUTE);
    let summary = run_once(&db.worker(), Retention::new(24, 30, 30, 90), limits, soon).await.unwrap();
    assert_eq!(summary, Summary { snapshots: 2, ..Summary::default() });
    assert_eq!(db.count("inventory_snapshot where snapshot_date >= current_date - 90").await, 2);
}

#[tokio::test]
async fn it_works_in_batches_and_ends_in_its_time_with_more_to_do() {
    let db = TestDb::create().await;
    fill(&db, &["40 d"], 250).await;
    let worker = db.worker();
    let limits = Limits { batch: 100, margin: Duration::from_secs(8) };
    // No time: no statement starts.
    let nothing = run_once(&worker, Retention::default(), limits, Instant::now() + Duration::from_secs(7))
        .await
        .unwrap();
    assert_eq!(nothing, Summary { more: true, ..Summary::default() });
    assert_eq!(counts(&db).await, (250, 250, 250));

    // The inbox is locked: the role's time-out cancels the statement, and the run fails in bounded time.
    let mut owner = db.owner().await;
    let mut lock = owner.begin().await.unwrap();
    sqlx::query("lock table webhook_inbox in access exclusive mode").execute(&mut *lock).await.unwrap();
    let begun = Instant::now();
    run_once(&worker, Retention::default(), limits, Instant::now() + MINUTE).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    assert_eq!(counts_without_inbox(&db).await, (150, 250));
    lock.rollback().await.unwrap();

    let summary = run_once(&worker, Retention::default(), limits, Instant::now() + MINUTE).await.unwrap();
    assert_eq!(summary, Summary { keys: 150, inbox: 250, outbox: 250, ..Summary::default() });
    assert_eq!(counts(&db).await, (0, 0, 0));
}

async fn counts_without_inbox(db: &TestDb) -> (i64, i64) {
    sqlx::query_as("select (select count(*) from idempotency_key), (select count(*) from outbox)")
        .fetch_one(&mut db.owner().await)
        .await
        .unwrap()
}

#[tokio::test]
async fn two_at_once_share_the_work_and_rows_in_use_are_passed_over() {
    let db = TestDb::create().await;
    fill(&db, &["40 d"], 500).await;
    let mut owner = db.owner().await;
    let mut held = owner.begin().await.unwrap();
    sqlx::query("select from idempotency_key where key = 'k0-1' for key share")
        .execute(&mut *held)
        .await
        .unwrap();
    let (one, two) = (db.worker(), db.worker());
    let limits = Limits { batch: 50, ..Limits::default() };
    let deadline = Instant::now() + MINUTE;
    let (one, two) = tokio::join!(
        run_once(&one, Retention::default(), limits, deadline),
        run_once(&two, Retention::default(), limits, deadline)
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!((one.keys + two.keys, one.inbox + two.inbox, one.outbox + two.outbox), (499, 500, 500));
}

#[tokio::test]
async fn every_table_can_be_reaped_by_the_worker() {
    let db = TestDb::create().await;
    let worker = db.worker();
    for table in ["idempotency_key", "webhook_inbox", "outbox", "inventory_snapshot"] {
        let reap = Statement::new("holdfast.reap", json!({"table": table, "age": 400, "limit": 10}));
        let row = worker.call_one(&reap).await.unwrap_or_else(|error| panic!("{table}: {error}"));
        assert_eq!(row.get::<i64, _>("reap"), 0, "{table}");
    }
}
