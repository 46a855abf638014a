//! Pages that commit once, and owners that cannot commit beside each other.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use reconcile::{Limits, Request};

use crate::support::{ANY, PATIENCE, Stage, hasty};

impl Stage {
    /// The first page of a walk whose run was claimed: the last SKU of three is on the next one.
    fn first_page(&self, call: &Value) -> Value {
        let mut page = call.clone();
        let now = jiff::Timestamp::now().to_string();
        for (name, value) in [
            ("account", json!("wms")),
            ("codes", json!(["SKU-0001", "SKU-0002", "STRANGE"])),
            ("counts", json!([12, 9, 1])),
            ("times", json!([now, now, now])),
            ("invalid", json!([{"code": "X", "reason": "onHand is below 0"}])),
            ("next", Value::Null),
        ] {
            page[name] = value;
        }
        page
    }

    async fn everything(&self) -> Vec<Value> {
        let mut all = self.rows("select * from inventory_snapshot order by sku_id").await;
        for table in [
            "reconcile_finding",
            "stock_ledger",
            "sku_position",
            "inbox_exception",
            "outbox",
            "reconcile_run",
        ] {
            let without_time =
                format!("select to_jsonb(t) - 'leased_until' - 'updated_at' as t from {table} t order by 1");
            all.extend(self.rows(&without_time).await);
        }
        all
    }
}

#[tokio::test]
async fn a_page_that_committed_changes_nothing_when_it_comes_again() {
    let stage = Stage::open(3, 10).await;
    let mut call = stage.claim().await;
    let mut walked = stage.first_page(&call);
    walked["next"] = json!({"account": "wms", "after": "2"});
    let compared = json!({"limit": 2, "terms": ANY});
    // Of each kind pages that leave the run in its state, and the last one, which does not.
    for (function, page, state) in [
        ("holdfast.reconcile_walk", &walked, "walking"),
        ("holdfast.reconcile_walk", &stage.first_page(&call), "measuring"),
        ("holdfast.reconcile_measure", &compared, "measuring"),
        ("holdfast.reconcile_measure", &compared, "booking"),
        ("holdfast.reconcile_book", &json!({"limit": 1}), "booking"),
        ("holdfast.reconcile_book", &json!({"limit": 1}), "booking"),
        ("holdfast.reconcile_book", &json!({"limit": 1}), "done"),
    ] {
        let mut sent = call.clone();
        for (name, value) in page.as_object().into_iter().flatten().filter(|(name, _)| *name != "step") {
            sent[name] = value.clone();
        }
        assert_eq!(stage.call(function, sent.clone()).await, state, "{function}");
        let after = stage.everything().await;
        for _ in 0..2 {
            assert_eq!(stage.call(function, sent.clone()).await, state, "{function}");
            assert_eq!(stage.everything().await, after, "{function}");
        }
        call["step"] = json!(call["step"].as_i64().unwrap() + 1);
    }
    assert_eq!(stage.on_hand().await, [12, 9, 10]);
    stage.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn an_owner_whose_lease_ended_commits_nothing() {
    let stage = Stage::open(3, 10).await;
    let call = stage.claim().await;
    let before = stage.everything().await;
    stage.shop.db.execute("update reconcile_run set leased_until = clock_timestamp()").await;
    assert_eq!(stage.call("holdfast.reconcile_walk", stage.first_page(&call)).await, "lost");
    assert_eq!(stage.everything().await, before);
    // The next owner goes on; the late one is told so at whatever it sends.
    let next = stage.claim().await;
    let mut late = call.clone();
    late["token"] = json!("22222222-2222-4222-8222-222222222222");
    assert_eq!(stage.call("holdfast.reconcile_walk", stage.first_page(&late)).await, "lost");
    let renewed = shared::db::call::Statement::new("holdfast.reconcile_renew", late);
    let row = stage.shop.db.worker().call_one(&renewed).await.unwrap();
    assert!(!sqlx::Row::get::<bool, _>(&row, 0));
    assert_eq!(stage.call("holdfast.reconcile_walk", stage.first_page(&next)).await, "measuring");
}

#[tokio::test]
async fn a_run_that_a_person_dropped_is_lost_to_its_owner() {
    let stage = Stage::open(3, 10).await;
    let call = stage.claim().await;
    stage.shop.db.execute("update reconcile_run set state = 'dropped', finished_at = now()").await;
    assert_eq!(stage.call("holdfast.reconcile_walk", stage.first_page(&call)).await, "lost");
    assert_eq!(stage.shop.db.count("inventory_snapshot").await, 0);
}

#[tokio::test]
async fn two_invocations_do_not_both_walk_a_tenant() {
    let stage = Stage::open(40, 10).await;
    stage.counts(&[11; 40]);
    stage.warehouse.delay(Duration::from_millis(150));
    let limits = Limits { page: 4, renewal: Duration::from_millis(400), ..hasty() };
    let (one, two) = tokio::join!(stage.reconcile_with(limits, ANY), stage.reconcile_with(limits, ANY));
    let mut ends = [(one.completed, one.running), (two.completed, two.running)];
    ends.sort();
    assert_eq!(ends, [(0, true), (1, false)]);
    assert_eq!(stage.warehouse.asked().len(), 10);
    assert_eq!(stage.on_hand().await, [11; 40]);
    assert_eq!(stage.shop.db.count("stock_ledger where entry_type = 'reconcile'").await, 40);
    stage.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn every_tenant_gets_its_run_and_resuming_begins_none() {
    let stage = Stage::open(2, 10).await;
    stage.counts(&[9, 9]);
    let other = stage.shop.db.seed(testing::Seed { on_hand: 10, ..testing::Seed::default() }).await;
    stage.warehouse.serve(&stage.shop.db, other.id, &["other"]).await;
    stage.warehouse.counted("other", &[("SKU-0001".into(), 7)]);
    let reconciler = stage.reconciler(hasty(), ANY);
    let deadline = Instant::now() + PATIENCE;
    let nothing = reconciler.run_once(Request { tenant: None, resume: true }, deadline).await.unwrap();
    assert_eq!((nothing.completed, nothing.pages), (0, 0));
    let summary = reconciler.run_once(Request::default(), deadline).await.unwrap();
    assert_eq!((summary.completed, summary.units_down), (2, 5));
    let unknown = Request { tenant: Some(uuid::Uuid::nil()), resume: false };
    assert_eq!(reconciler.run_once(unknown, deadline).await.unwrap().completed, 0);
    stage.shop.db.assert_consistent().await;
}
