//! The reaper's promises, tested against a real database.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::time::Duration;

use aws::scheduler::Scheduler;
use reaper::{Config, Limits, Retention, Summary, handle, run_once};
use serde_json::json;
use shared::db::call::Statement;
use sqlx::{Connection as _, Row as _};
use testing::{Seed, TestDb, blocks};
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
    let hasty =
        Retention { keys_hours: 0, inbox_days: 1, outbox_days: 1, ..Retention::default() }.as_promised();
    assert_eq!(hasty, Retention { keys_hours: 24, inbox_days: 30, outbox_days: 1, ..Retention::default() });
    let summary = run_once(&db.worker(), hasty, Limits::default(), Instant::now() + MINUTE).await.unwrap();
    assert_eq!(summary, Summary { keys: 1, outbox: 1, ..Summary::default() });
}

#[tokio::test]
async fn a_pending_outbox_row_is_never_touched_and_each_end_has_its_own_retention() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    db.destination(&tenant, "http://127.0.0.1:9/", &["*"]).await;
    db.emit(&tenant, 7).await;
    db.execute(
        "update outbox set created_at = now() - interval '5 years', next_attempt_at = now() - interval '5 years';
         update outbox set dead_lettered_at = now() - interval '89 d' where id = 2;
         update outbox set dead_lettered_at = now() - interval '91 d' where id = 3;
         update outbox set discarded_at = now() - interval '59 d' where id = 4;
         update outbox set discarded_at = now() - interval '61 d' where id = 5;
         update outbox set processed_at = now() - interval '29 d' where id = 6;
         update outbox set processed_at = now() - interval '31 d' where id = 7",
    )
    .await;
    let retention = Retention { discarded_days: 60, ..Retention::default() };
    let summary =
        run_once(&db.worker(), retention, Limits::default(), Instant::now() + MINUTE).await.unwrap();
    assert_eq!(summary, Summary { outbox: 1, dead: 1, discarded: 1, ..Summary::default() });
    let left: Vec<i64> = sqlx::query_scalar("select id from outbox order by id")
        .fetch_all(&mut db.owner().await)
        .await
        .unwrap();
    assert_eq!(left, [1, 2, 4, 6]);
}

#[tokio::test]
async fn bodies_of_ended_exceptions_and_retired_secrets_go_and_open_ones_stay() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let destination = db.destination(&tenant, "http://127.0.0.1:9/", &["*"]).await.id;
    let id = tenant.id;
    db.execute(format!(
        "insert into inbox_exception (tenant_id, provider, event_id, topic, reason, command, body, received_at, resolved_at)
         select '{id}', 'stripe', e.name, 't', 'r', '{{}}', 'a person', now() - interval '5 years', now() - e.ended
         from (values ('open', null), ('ended', interval '91 d'), ('just ended', interval '89 d')) e(name, ended);
         insert into destination_secret (tenant_id, destination_id, secret, retires_at)
         select '{id}', '{destination}', 'whsec_' || name, now() - retired
         from (values ('signs until tomorrow', interval '-1 d'), ('retired', interval '29 d'), ('long retired', interval '31 d'))
           s(name, retired);
         insert into threepl_account (id, tenant_id, secret, previous_secret, previous_retires_at)
         select 'acct-' || n, '{id}', 'whsec_new', 'whsec_old', now() - n * interval '1 d' from unnest(array[29, 31]) n;
         insert into shopify_shop (domain, tenant_id, secret, previous_secret, previous_retires_at)
         select n || '.myshopify.test', '{id}', 'new', 'old', now() - n * interval '1 d' from unnest(array[29, 31]) n"
    ))
    .await;
    let run = async || {
        run_once(&db.worker(), Retention::default(), Limits::default(), Instant::now() + MINUTE)
            .await
            .unwrap()
    };
    assert_eq!(run().await, Summary { exceptions: 1, secrets: 3, ..Summary::default() });
    assert_eq!(run().await, Summary::default());
    assert_eq!(
        db.count("inbox_exception where body = '' and command is null and event_id = 'ended'").await,
        1
    );
    assert_eq!(db.count("inbox_exception where body = 'a person' and body_deleted_at is null").await, 2);
    assert_eq!(
        db.count("destination_secret").await,
        3,
        "the present one, the next to retire, and one in its time"
    );
    assert_eq!(
        db.count("threepl_account where secret = 'whsec_new' and previous_secret = 'whsec_old'").await,
        1
    );
    assert_eq!(
        db.count(
            "shopify_shop where secret = 'new' and previous_secret is null and previous_retires_at is null"
        )
        .await,
        1
    );
}

#[tokio::test]
async fn a_batch_costs_what_it_deletes_however_much_is_kept() {
    let db = TestDb::create().await;
    let tables = ["idempotency_key", "webhook_inbox", "outbox"];
    db.keep_statistics(&tables).await;
    let mut worker = sqlx::PgConnection::connect(&db.worker_url).await.unwrap();
    let batch =
        |table: &str| format!(r#"select holdfast.reap('{{"table":"{table}","age":48,"limit":100}}')"#);
    fill(&db, &["50 d"], 300).await;
    let mut empty = Vec::new();
    for table in tables {
        empty.push(blocks(&mut worker, &batch(table)).await);
    }
    fill(&db, &["1 h"], 20_000).await;
    for (table, empty) in tables.iter().zip(empty) {
        let grown = blocks(&mut worker, &batch(table)).await;
        assert!(grown <= empty * 2, "{table}: {grown} blocks beside 20,000 rows that stay, {empty} without");
    }
}

/// Answers one request as Scheduler does, and returns its first line and its body.
fn scheduler_stand_in() -> (String, std::thread::JoinHandle<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut request, mut part) = (Vec::new(), [0; 4096]);
        while !request.ends_with(b"}") {
            let read = stream.read(&mut part).unwrap();
            assert!(read > 0, "the request breaks off");
            request.extend_from_slice(&part[..read]);
        }
        let body = r#"{"ScheduleArn":"arn:aws:scheduler:eu-central-1:1:schedule/default/x"}"#;
        write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        String::from_utf8(request).unwrap()
    });
    (url, asked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_stopped_at_its_bound_asks_for_another_in_the_next_minute() {
    let (url, asked) = scheduler_stand_in();
    let credentials = aws_sdk_scheduler::config::Credentials::new("test", "test", None, None, "test");
    let aws = aws_config::SdkConfig::builder()
        .behavior_version(aws_config::BehaviorVersion::latest())
        .region(aws_config::Region::new("eu-central-1"))
        .endpoint_url(url)
        .credentials_provider(aws_sdk_scheduler::config::SharedCredentialsProvider::new(credentials))
        .build();
    let scheduler = Scheduler::new(&aws, "arn:of:reaper".into(), "arn:of:role".into(), None);
    let db = TestDb::create().await;
    fill(&db, &["40 d"], 1).await;
    let config = Config {
        database: shared::runtime::config::DatabaseConfig::direct(db.worker_url.clone()),
        retention: Retention::default(),
        // Less than the margin: no statement starts.
        timeout: Duration::from_secs(1),
    };
    let event = lambda_runtime::LambdaEvent::new(json!({}), lambda_runtime::Context::default());
    let summary = handle(&db.worker(), &config, Some(&scheduler), event).await.unwrap();
    assert!(summary.more);
    let asked = asked.join().unwrap();
    assert!(
        asked.starts_with("POST /schedules/holdfast-reaper-") && asked.contains("arn:of:reaper"),
        "{asked}"
    );
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
    let summary =
        run_once(&db.worker(), Retention { snapshot_days: 90, ..Retention::default() }, limits, soon)
            .await
            .unwrap();
    assert_eq!(summary, Summary { snapshots: 2, ..Summary::default() });
    assert_eq!(db.count("inventory_snapshot where snapshot_date >= current_date - 90").await, 2);
}

#[tokio::test]
async fn it_works_in_batches_and_ends_in_its_time_with_more_to_do() {
    let db = TestDb::create().await;
    fill(&db, &["40 d"], 250).await;
    let worker = db.worker();
    let limits = Limits { batch: 100, ..Limits::default() };
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
    for table in [
        "idempotency_key",
        "webhook_inbox",
        "outbox",
        "outbox_dead",
        "outbox_discarded",
        "inventory_snapshot",
        "inbox_exception",
        "destination_secret",
        "threepl_account",
        "shopify_shop",
    ] {
        let reap = Statement::new("holdfast.reap", json!({"table": table, "age": 400, "limit": 10}));
        let row = worker.call_one(&reap).await.unwrap_or_else(|error| panic!("{table}: {error}"));
        assert_eq!(row.get::<i64, _>("reap"), 0, "{table}");
    }
}
