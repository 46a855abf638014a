//! What a statement of the relay touches, whatever waits and whatever the planner believes: statistics are those of empty tables.

use relay::Limits;
use serde_json::json;
use shared::delivery::outbox::{self, ClaimRequest, LeaseTerms, OrderedQueue};
use shared::delivery::settlement::{self, Settlement, Transition};
use sqlx::{AssertSqlSafe, Row as _};
use testing::{Seed, Tenant, TestDb};
use uuid::Uuid;

use std::time::Duration;

use crate::support::{Partner, drain, relay};

const TERMS: LeaseTerms =
    LeaseTerms { lease: Duration::from_secs(30), retry_unit: Duration::from_secs(1), jitter: 1.0 };

/// Nobody may analyze the outbox any more.
async fn with_stale_statistics(db: &TestDb) {
    db.execute("analyze outbox; alter table outbox set (autovacuum_enabled = off)").await;
}

/// Pages that a call of a relay's function touches, read or found in the cache; the one before it in the same session reads
/// the catalogs, and index entries of what died just now.
async fn blocks(db: &TestDb, call: &str) -> i64 {
    let mut session = db.owner().await;
    let sql = format!(
        "set role holdfast_worker; do $$ begin perform * from holdfast.{call}; end $$;
         explain (analyze, buffers, costs off) select * from holdfast.{call}"
    );
    let plan = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(&mut session).await.unwrap();
    let lines: Vec<String> = plan.iter().map(|row| row.get(0)).collect();
    // "Buffers: shared hit=12 read=3 dirtied=1", of the whole call.
    let buffers = lines.iter().find(|line| line.trim().starts_with("Buffers: shared")).unwrap();
    let pages = |name: &str| buffers.split(' ').find_map(|part| part.strip_prefix(name)?.parse::<i64>().ok());
    pages("hit=").unwrap_or(0) + pages("read=").unwrap_or(0)
}

/// `count` events of as many aggregates at each of the tenant's destinations, due now, that expect `sku` to be one of theirs.
async fn owe(db: &TestDb, tenant: &Tenant, count: usize, columns: &str) {
    db.execute(format!(
        "insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload,
           keyed, next_attempt_at, processed_at, dead_lettered_at)
         select d.tenant_id, d.id, gen_random_uuid(), 'sku', x.aggregate_id, x.sequence, 'sku.ats_changed', '{{}}', d.keyed,
           x.next_attempt_at, x.processed_at, x.dead_lettered_at
         from destination d, generate_series(1, {count}) n, lateral (select {columns}) x where d.tenant_id = '{}'",
        tenant.id
    ))
    .await;
}

const OF_ONE_SKU: &str =
    "'00000000-0000-4000-8000-000000000001'::uuid as aggregate_id, n as sequence, now() as next_attempt_at,
    null::timestamptz as processed_at, null::timestamptz as dead_lettered_at";
const OF_MANY: &str = "gen_random_uuid() as aggregate_id, 1 as sequence, now() as next_attempt_at,
    null::timestamptz as processed_at, null::timestamptz as dead_lettered_at";

async fn shop(db: &TestDb) -> Tenant {
    let tenant = db.seed(Seed::default()).await;
    db.destination(&tenant, "http://127.0.0.1:9/", &["*"]).await;
    db.execute("update destination set kind = 'shopify_inventory'").await;
    tenant
}

#[tokio::test]
async fn a_claim_is_bounded_in_rows_at_a_shop_too_and_settles_in_time_that_grows_with_the_rows_alone() {
    let db = TestDb::create().await;
    let tenant = shop(&db).await;
    with_stale_statistics(&db).await;
    let worker = db.worker();
    let request = ClaimRequest {
        slots: 20,
        after: Uuid::nil(),
        busy: &[],
        room_each: 20,
        watermarks: &[],
        terms: TERMS,
    };
    let settle = async |rows: Vec<(i64, Uuid)>| {
        let rows = rows.into_iter();
        let attempts: Vec<_> =
            rows.map(|(id, token)| Settlement::new(id, token, Transition::Delivered)).collect();
        settlement::settle(&worker, &attempts, TERMS.retry_unit, Limits::default().breaker).await.unwrap()
    };
    // The session plans its statements while the queue is short, and keeps its plans.
    for _ in 0..8 {
        owe(&db, &tenant, 1, OF_ONE_SKU).await;
        let claimed = outbox::claim(&worker, &request).await.unwrap().0;
        assert_eq!(settle(claimed.iter().map(|row| (row.id, row.token)).collect()).await.delivered, 1);
    }
    owe(&db, &tenant, 20_000, OF_ONE_SKU).await;
    let claimed = outbox::claim(&worker, &request).await.unwrap().0;
    assert_eq!(claimed.len(), 1_000);
    assert_eq!(settle(claimed.iter().map(|row| (row.id, row.token)).collect()).await.delivered, 1_000);
    // More than a relay settles at once. Each attempt compared with each would take longer than the statement's 6 s.
    db.execute(
        "update outbox set lease_token = '00000000-0000-4000-8000-000000000009', leased_until = now() + interval '1 h'
         where processed_at is null",
    )
    .await;
    let token = Uuid::from_u128(0x0000_0000_0000_4000_8000_0000_0000_0009);
    let ids: Vec<i64> = sqlx::query_scalar("select id from outbox where lease_token is not null")
        .fetch_all(&mut db.owner().await)
        .await
        .unwrap();
    assert_eq!(settle(ids.into_iter().map(|id| (id, token)).collect()).await.delivered, 19_000);
}

#[tokio::test]
async fn the_backlog_is_counted_up_to_a_bound_over_all_destinations() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    for _ in 0..20 {
        db.destination(&tenant, "http://127.0.0.1:9/", &["*"]).await;
    }
    with_stale_statistics(&db).await;
    owe(&db, &tenant, 1_000, OF_MANY).await;
    db.execute("update outbox set created_at = created_at - interval '1 h' where id % 7 = 0").await;
    let (due, age_secs) = outbox::backlog(&db.worker(), 2_000).await.unwrap();
    assert!((1_900..=2_000).contains(&due) && age_secs >= 3_600.0, "{due} {age_secs}");
    let touched = blocks(&db, r#"relay_backlog('{"most":2000}')"#).await;
    println!("{touched} pages for up to 2,000 of 20,000 due rows");
    assert!(touched < 6_000, "{touched} pages");
}

/// `count` queues of two at an ordered destination, each behind a head that was tried an hour ago and is due in an hour.
async fn queues(db: &TestDb, tenant: &Tenant, count: usize) {
    let waiting = "md5(((n - 1) / 2)::text)::uuid as aggregate_id, n as sequence,
        case when n % 2 = 1 then now() + interval '1 h' else 'infinity' end as next_attempt_at,
        null::timestamptz as processed_at, null::timestamptz as dead_lettered_at";
    owe(db, tenant, count * 2, waiting).await;
}

#[tokio::test]
async fn a_head_that_nobody_woke_is_found_at_once_behind_twelve_thousand_other_queues() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.execute("update destination set ordered = true").await;
    with_stale_statistics(&db).await;
    queues(&db, &tenant, 12_000).await;
    assert_eq!(drain(&relay(&db)).await.claimed, 0, "all wait; and all are checked now");
    assert_eq!(db.count("outbox where next_attempt_at = 'infinity' and not wait_checked").await, 0);
    // The last queue of all.
    let call = format!(
        r#"relay_check_waiting('{}')"#,
        json!({"destinationId": Uuid::nil(), "aggregateId": Uuid::nil(), "most": 2000})
    );
    // What is dead is passed over from the second look on, once no other session (autovacuum) holds an older snapshot.
    // The leaves of the index stay: some 300 pages. A look at each queue takes more than 5,000.
    let mut idle = blocks(&db, &call).await;
    for _ in 0..100 {
        if idle < 600 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        idle = blocks(&db, &call).await;
    }
    db.execute(
        "insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload,
           keyed, next_attempt_at)
         select tenant_id, id, gen_random_uuid(), 'sku', 'ffffffff-ffff-4fff-bfff-ffffffffffff', 1, 'sku.ats_changed', '{}', true,
           'infinity' from destination",
    )
    .await;
    let checked = outbox::check_waiting(&db.worker(), OrderedQueue::default(), 2_000).await.unwrap();
    assert_eq!((checked.woken, checked.more), (1, false));
    assert_eq!(drain(&relay(&db)).await.delivered, 1);
    println!("{idle} pages to look for rows to be checked, where 12,000 wait");
    assert!(idle < 600, "{idle} pages");
}

#[tokio::test]
async fn before_rows_are_checked_too_a_head_is_found_in_a_look_at_each_queue_and_not_at_each_row() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    db.destination(&tenant, "http://127.0.0.1:9/", &["*"]).await;
    db.execute("update destination set ordered = true").await;
    let one_queue = "'00000000-0000-4000-8000-000000000001'::uuid as aggregate_id, n as sequence,
        case when n = 1 then now() + interval '1 h' else 'infinity' end as next_attempt_at,
        null::timestamptz as processed_at, null::timestamptz as dead_lettered_at";
    owe(&db, &tenant, 5_000, one_queue).await;
    owe(&db, &tenant, 1, "'ffffffff-ffff-4fff-bfff-ffffffffffff'::uuid as aggregate_id, 1 as sequence,
        'infinity'::timestamptz as next_attempt_at, null::timestamptz as processed_at, null::timestamptz as dead_lettered_at").await;
    let worker = db.worker();
    let checked = outbox::check_waiting(&worker, OrderedQueue::default(), 100).await.unwrap();
    assert_eq!((checked.woken, checked.more), (1, true));
    assert_eq!(db.count("outbox where wait_checked").await, 100);
}

#[tokio::test]
async fn while_the_head_of_a_queue_is_being_settled_what_waits_behind_it_is_not_taken_as_checked() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.execute("update destination set ordered = true").await;
    db.emit(&tenant, 1).await;
    let worker = db.worker();
    let request = ClaimRequest {
        slots: 20,
        after: Uuid::nil(),
        busy: &[],
        room_each: 20,
        watermarks: &[],
        terms: TERMS,
    };
    let head = outbox::claim(&worker, &request).await.unwrap().0.pop().unwrap();
    // The settlement has looked for what is behind the head, and found nothing; then an event is written, and sees the head.
    let settling = db
        .hold(format!(
            "set role holdfast_worker; select * from holdfast.relay_settle('{}'::jsonb)",
            json!({"attempts": [{"id": head.id, "token": head.token, "outcome": "delivered"}], "unitSecs": 1,
                "breaker": {"after": 20, "openSecs": 10, "openMaxSecs": 60}})
        ))
        .await;
    db.emit(&tenant, 1).await;
    outbox::check_waiting(&worker, OrderedQueue::default(), 100).await.unwrap();
    assert_eq!(db.count("outbox where wait_checked").await, 0);
    settling.let_go().await;
    assert_eq!(drain(&relay(&db)).await.delivered, 1);
}
