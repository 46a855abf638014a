//! Stock pushes to a shop.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::response::IntoResponse;
use relay::Limits;
use serde_json::{Value, json};
use shared::db::connection::Db;
use shared::delivery::outbox::{self, ClaimRequest, LeaseTerms};
use testing::{Seed, Tenant, TestDb};
use tokio::time::Instant;
use uuid::Uuid;

use crate::support::{Partner, ToStatus, drain, relay, relay_with, rows};

/// A shop that has an item for every SKU of a seeded tenant and records the quantities set.
#[derive(Clone, Default)]
pub struct Shop {
    pub set: Arc<Mutex<Vec<(String, i64)>>>,
    /// The answer to the next push.
    pub answer: Arc<Mutex<Option<Value>>>,
    /// How many other items have a SKU that begins with the one that is looked for.
    pub longer: usize,
    /// It carries nothing.
    pub empty: Arc<AtomicBool>,
    /// What `ITEM` stands for in the id of an item.
    pub item: Arc<Mutex<String>>,
    pub delay: Duration,
    pub pushes: Arc<AtomicUsize>,
}

impl Shop {
    pub async fn open(self) -> Partner {
        Partner::start(move |received| {
            let shop = self.clone();
            async move {
                let request: Value = serde_json::from_slice(&received.body).unwrap();
                let query = request["query"].as_str().unwrap();
                if query.contains("query Test") {
                    let asked =
                        request["variables"]["location"].as_str().unwrap_or("gid://shopify/Location/1");
                    let there = ["gid://shopify/Location/1", "gid://shopify/Location/2"].contains(&asked);
                    return Json(json!({"data": {"location": there.then(|| json!({"id": asked}))}}))
                        .into_response();
                }
                if query.contains("inventoryItems") {
                    return Json(shop.look_up(&request["variables"])).into_response();
                }
                assert!(
                    query.contains("inventorySetQuantities") && query.contains("@idempotent(key: $key)"),
                    "{query}"
                );
                // Pushes differ in time, so that one overtaken by another would be seen.
                let number = shop.pushes.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(shop.delay * [1, 8, 1, 3][number % 4]).await;
                let answer = shop.answer.lock().unwrap().clone();
                if let Some(answer) = answer {
                    return Json(answer).into_response();
                }
                let input = &request["variables"]["input"];
                let quantity = &input["quantities"][0];
                assert_eq!(
                    (&input["name"], &quantity["changeFromQuantity"]),
                    (&json!("available"), &Value::Null)
                );
                let item =
                    quantity["inventoryItemId"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
                shop.set.lock().unwrap().push((item, quantity["quantity"].as_i64().unwrap()));
                Json(json!({"data": {"inventorySetQuantities": {"userErrors": []}}})).into_response()
            }
        })
        .await
    }

    /// One page, of as many as were asked for at most.
    pub fn look_up(&self, variables: &Value) -> Value {
        let code = variables["code"].as_str().unwrap();
        let code = code.strip_prefix("sku:\"").unwrap().strip_suffix('"').unwrap();
        let code = code.replace("\\\"", "\"");
        let node = |item: String, sku: String| json!({"id": format!("gid://shopify/InventoryItem/{item}"), "sku": sku});
        let mut all: Vec<Value> =
            (0..=self.longer).map(|n| node(n.to_string(), format!("{code}-{n}"))).collect();
        if !self.empty.load(Ordering::SeqCst) {
            all.push(node(format!("{code}{}", self.item.lock().unwrap()), code.to_owned()));
        }
        let from: usize = variables["after"].as_str().map_or(0, |after| after.parse().unwrap());
        let to = all.len().min(from + 100);
        json!({"data": {"location": {"id": "gid://shopify/Location/1"}, "inventoryItems": {"nodes": all[from..to],
            "pageInfo": {"hasNextPage": to < all.len(), "endCursor": to.to_string()}}}})
    }

    pub fn set(&self) -> Vec<(String, i64)> {
        self.set.lock().unwrap().clone()
    }
}

/// A tenant that pushes to this shop: its database, itself, and the shop as it answers.
pub async fn connected(seed: Seed, shop: &Shop) -> (TestDb, Tenant, Partner) {
    let db = TestDb::create().await;
    let tenant = db.seed(seed).await;
    let partner = shop.clone().open().await;
    connect(&db, &tenant, &partner.url).await;
    (db, tenant, partner)
}

pub async fn connect(db: &TestDb, tenant: &Tenant, url: &str) -> Uuid {
    let shop = db.destination(tenant, url, &["sku.ats_changed"]).await;
    db.execute(format!("update destination set kind = 'shopify_inventory' where id = '{}'", shop.id)).await;
    shop.id
}

/// Moves a SKU's stock by `delta`, with its ledger line and its event, in one transaction.
pub async fn change(db: &TestDb, tenant: &Tenant, sku: usize, delta: i64) {
    let (tenant, sku) = (tenant.id, tenant.skus[sku]);
    db.execute(format!(
        "begin;
         insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor) values ('{tenant}', '{sku}', {delta}, 'count', 'test');
         with moved as (
           update sku_position set on_hand = on_hand + {delta}, event_sequence = event_sequence + 1
           where tenant_id = '{tenant}' and sku_id = '{sku}'
           returning event_sequence as sequence, on_hand + on_order - allocated as ats)
         select holdfast.emit('{tenant}', array[row('sku.ats_changed', 'sku', '{sku}', sequence, null,
           format('{{\"atsAfter\":%s}}', ats))::holdfast.event]) from moved;
         commit"
    ))
    .await;
}

#[tokio::test]
async fn all_due_changes_of_a_sku_go_out_as_one_push_of_its_ats() {
    let shop = Shop::default();
    let (db, tenant, partner) = connected(Seed { skus: 2, ..Seed::default() }, &shop).await;
    for _ in 0..10 {
        change(&db, &tenant, 0, 1).await;
        change(&db, &tenant, 1, 2).await;
    }
    let summary = drain(&relay(&db)).await;
    assert_eq!((summary.claimed, summary.delivered), (20, 20));
    let mut set = shop.set();
    set.sort();
    assert_eq!(set, [("SKU-0001".into(), 16), ("SKU-0002".into(), 26)]);
    assert!(rows(&db).await.iter().all(|row| row.processed && row.attempts == 1));
    let first = partner
        .received()
        .into_iter()
        .find(|r| String::from_utf8_lossy(&r.body).contains("inventorySet"))
        .unwrap();
    assert!(first.header("x-shopify-access-token").starts_with("whsec_"), "the destination's secret");
    // The item was looked up once and stored.
    assert_eq!(db.count("shopify_inventory_item").await, 2);
    let requests = partner.received().len();
    assert_eq!(requests, 4);
    db.execute("update destination set location_id = 'gid://shopify/Location/1'").await;
    change(&db, &tenant, 0, -3).await;
    drain(&relay(&db)).await;
    assert_eq!(
        (partner.received().len(), shop.set().last().unwrap().clone()),
        (requests + 1, ("SKU-0001".into(), 13))
    );
}

#[tokio::test]
async fn after_all_is_quiet_the_last_push_carries_the_final_ats() {
    let shop = Shop { delay: Duration::from_millis(20), ..Shop::default() };
    let (db, tenant, _partner) = connected(Seed { skus: 2, ..Seed::default() }, &shop).await;
    let limits = Limits { poll_interval: Duration::from_millis(2), ..Limits::default() };
    for round in 0..12 {
        let relays = [relay_with(&db, limits), relay_with(&db, limits)];
        let deadline = Instant::now() + Duration::from_secs(60);
        let writing = async {
            for step in 0..10 {
                change(&db, &tenant, step % 2, if (step + round) % 3 == 0 { 2 } else { -1 }).await;
            }
        };
        let watch = Duration::from_millis(300);
        let (first, second, ()) =
            tokio::join!(relays[0].run_once(watch, deadline), relays[1].run_once(watch, deadline), writing);
        first.unwrap();
        second.unwrap();
        while db.count("outbox where processed_at is null").await > 0 {
            assert!(Instant::now() < deadline);
            drain(&relays[0]).await;
        }
        for (sku, id) in tenant.skus.iter().enumerate() {
            let ats: i64 = sqlx::query_scalar(
                "select on_hand + on_order - allocated from sku_position where sku_id = $1",
            )
            .bind(id)
            .fetch_one(&mut db.owner().await)
            .await
            .unwrap();
            let code = format!("SKU-{:04}", sku + 1);
            let last = shop.set().into_iter().rev().find(|(item, _)| *item == code).unwrap().1;
            assert_eq!(last, ats, "round {round}, {code}");
        }
    }
    println!("{} pushes for {} changes", shop.set().len(), db.count("outbox").await);
    assert!(shop.set().len() < 120);
    db.assert_consistent().await;
}

#[tokio::test]
async fn what_the_shop_will_never_take_is_a_dead_letter_at_once_and_what_it_may_take_later_is_tried_again() {
    let shop = Shop::default();
    let (db, tenant, _partner) = connected(Seed::default(), &shop).await;
    let user_error = |code: &str| {
        Some(
            json!({"data": {"inventorySetQuantities": {"userErrors": [{"code": code, "field": null, "message": "no"}]}}}),
        )
    };
    for (code, dead) in [("INVALID_QUANTITY_TOO_HIGH", true), ("IDEMPOTENCY_CONCURRENT_REQUEST", false)] {
        change(&db, &tenant, 0, 1).await;
        *shop.answer.lock().unwrap() = user_error(code);
        let summary = drain(&relay(&db)).await;
        assert_eq!((summary.failed, summary.dead_lettered), (1, u64::from(dead)), "{code}");
    }
    let rows_now = rows(&db).await;
    assert!(
        rows_now[0].dead && rows_now[0].last_error.as_ref().unwrap().starts_with("INVALID_QUANTITY"),
        "{rows_now:?}"
    );
    assert!(!rows_now[1].dead);
    *shop.answer.lock().unwrap() = None;
    db.execute("update outbox set next_attempt_at = now() where dead_lettered_at is null").await;
    assert_eq!(drain(&relay(&db)).await.delivered, 1);

    *shop.answer.lock().unwrap() = Some(json!({"errors": [{"message": "Internal error"}]}));
    change(&db, &tenant, 0, 1).await;
    assert_eq!(drain(&relay(&db)).await.failed, 1);
    assert!(rows(&db).await[2].last_error.as_ref().unwrap().contains("Internal error"));
}

/// The variables of the requests that set something.
pub fn pushes(partner: &Partner) -> Vec<Value> {
    let received = partner.received();
    let bodies = received.iter().map(|received| serde_json::from_slice::<Value>(&received.body).unwrap());
    bodies.map(|body| body["variables"].clone()).filter(|variables| !variables["key"].is_null()).collect()
}

#[tokio::test]
async fn a_throttled_shop_is_left_alone_for_as_long_as_it_asks() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { skus: 3, ..Seed::default() }).await;
    let shop = Shop::default();
    let partner = shop.clone().open().await;
    let destination = connect(&db, &tenant, &partner.url).await;
    *shop.answer.lock().unwrap() = Some(
        json!({"errors": [{"message": "Throttled", "extensions": {"code": "THROTTLED"}}],
        "extensions": {"cost": {"requestedQueryCost": 400, "throttleStatus": {"currentlyAvailable": 0, "restoreRate": 50}}}}),
    );
    change(&db, &tenant, 0, 1).await;
    assert_eq!(drain(&relay(&db)).await.failed, 1);
    *shop.answer.lock().unwrap() = None;
    change(&db, &tenant, 1, 1).await;
    assert_eq!(drain(&relay(&db)).await.claimed, 0, "the whole shop waits");
    let wait_secs: f64 =
        db.scalar("select extract(epoch from throttled_until - now())::float8 from destination_health").await;
    assert!(wait_secs > 3.0 && wait_secs <= 8.0, "{wait_secs}");
    db.execute(
        "update destination_health set throttled_until = now(); update outbox set next_attempt_at = now()",
    )
    .await;
    assert_eq!(drain(&relay(&db)).await.delivered, 2);

    partner.answer(|_| async { (429.to_status(), [("retry-after", "30")]) });
    change(&db, &tenant, 2, 1).await;
    assert_eq!(drain(&relay(&db)).await.failed, 1);
    let wait_secs: f64 =
        db.scalar("select extract(epoch from throttled_until - now())::float8 from destination_health").await;
    assert!(wait_secs > 20.0 && wait_secs <= 30.0, "{wait_secs}");
    assert_eq!(db.count(&format!("destination where id = '{destination}' and state = 'active'")).await, 1);
}

#[tokio::test]
async fn a_change_that_commits_while_others_of_its_sku_are_being_claimed_waits_for_their_push() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    connect(&db, &tenant, "http://127.0.0.1:9/").await;
    let claim = async |worker: &Db| {
        let terms =
            LeaseTerms { lease: Duration::from_secs(30), retry_unit: Duration::from_secs(1), jitter: 1.0 };
        let request =
            ClaimRequest { slots: 20, after: Uuid::nil(), busy: &[], room_each: 20, watermarks: &[], terms };
        outbox::claim(worker, &request).await.unwrap().0.len()
    };
    // The calls up to the commit share one transaction, since a worker has one connection.
    let say = async |worker: &Db, sql: &'static str| {
        let mut lease = worker.checkout().await.unwrap();
        sqlx::raw_sql(sql).execute(&mut *lease).await.unwrap();
        lease.keep().await;
    };
    change(&db, &tenant, 0, 1).await;
    let (worker, other) = (db.worker(), db.worker());
    say(&worker, "begin").await;
    assert_eq!(claim(&worker).await, 1);
    change(&db, &tenant, 0, 1).await;
    // Two pushes in flight could arrive in the wrong order.
    assert_eq!(claim(&other).await, 0, "while the first claim is open");
    say(&worker, "commit").await;
    assert_eq!(claim(&other).await, 0, "while its lease holds");
    db.execute("update outbox set lease_token = null, leased_until = null, processed_at = now() where lease_token is not null").await;
    assert_eq!(claim(&other).await, 1);
}

#[tokio::test]
async fn a_shops_pace_counts_pushes_and_not_the_changes_that_they_carry() {
    let shop = Shop::default();
    let (db, tenant, _partner) = connected(Seed::default(), &shop).await;
    db.execute("update destination set max_per_second = 2").await;
    for _ in 0..20 {
        change(&db, &tenant, 0, 1).await;
    }
    assert_eq!(drain(&relay(&db)).await.delivered, 20);
    let until_secs: f64 =
        db.scalar("select extract(epoch from paced_until - now())::float8 from destination_health").await;
    assert!(until_secs < 1.0, "{until_secs} s for one push");
}

#[tokio::test]
async fn throttling_is_no_failure_of_the_shop_however_often_it_comes() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { skus: 25, ..Seed::default() }).await;
    let partner = Partner::start(|_| async { (429.to_status(), [("retry-after", "1")]) }).await;
    connect(&db, &tenant, &partner.url).await;
    db.execute("update destination set location_id = 'l'").await;
    for sku in 0..25 {
        change(&db, &tenant, sku, 1).await;
    }
    let mut failed = 0;
    while failed < 25 {
        let summary = drain(&relay(&db)).await;
        assert_eq!(summary.disabled, 0);
        failed += summary.failed;
        db.execute("update destination_health set paced_until = null").await;
    }
    assert_eq!(db.count("destination_health where failures = 0 and open_until is null").await, 1);
}

#[tokio::test]
async fn what_a_person_sends_again_is_set_again_though_the_shop_remembers_it() {
    let shop = Shop::default();
    let (db, tenant, partner) = connected(Seed::default(), &shop).await;
    change(&db, &tenant, 0, 1).await;
    drain(&relay(&db)).await;
    // As `POST /admin/outbox/{id}/requeue` does.
    db.execute("select holdfast.back_to_pending(array[1::bigint])").await;
    drain(&relay(&db)).await;
    let keys: Vec<Value> = pushes(&partner).iter().map(|push| push["key"].clone()).collect();
    assert_eq!(keys, ["outbox-1-0-7-SKU-0001-1", "outbox-1-1-7-SKU-0001-1"]);
}

#[tokio::test]
async fn the_lost_rows_of_a_sku_come_back_as_one_push() {
    let shop = Shop::default();
    let (db, tenant, _partner) = connected(Seed::default(), &shop).await;
    for _ in 0..5 {
        change(&db, &tenant, 0, 1).await;
    }
    db.execute(
        "update outbox set attempts = 1, lease_token = gen_random_uuid(), leased_until = now() - interval '1 s',
         next_attempt_at = now()",
    )
    .await;
    assert_eq!(drain(&relay(&db)).await.delivered, 5);
    assert_eq!(shop.set(), [("SKU-0001".into(), 11)]);
}
