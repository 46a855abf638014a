//! Differences that are too large wait for a person.

use serde_json::json;
use uuid::Uuid;

use reconcile::Terms;

use crate::support::{ANY, Stage, hasty};

const OF_A_SKU: Terms = Terms { sku_share: 0.5, sku_floor: 5, ..ANY };
const OF_ALL: Terms = Terms { run_share: 0.1, run_floor: 4, ..ANY };

impl Stage {
    async fn decide(&self, decision: &str) {
        let run: Uuid = sqlx::query_scalar("select id from reconcile_run where state = 'held'")
            .fetch_one(&mut self.shop.db.owner().await)
            .await
            .unwrap();
        let tenant = self.shop.tenant.id;
        self.call_as_app(&json!({"tenantId": tenant, "id": run, "actor": "user:ann", "decision": decision}))
            .await;
    }

    async fn call_as_app(&self, argument: &serde_json::Value) {
        let mut app = self.shop.db.app().await;
        let tenant = self.shop.tenant.id;
        let sql = format!(
            "set app.tenant_id = '{tenant}'; select (holdfast.decide_reconcile_run('{argument}')).status"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut app).await.unwrap();
    }
}

#[tokio::test]
async fn a_sku_that_differs_too_much_holds_the_run_until_a_person_lets_it_through() {
    let stage = Stage::open(3, 10).await;
    stage.counts(&[10, 11, 4]);
    for night in 0..2 {
        let summary = stage.reconcile_with(hasty(), OF_A_SKU).await;
        assert_eq!((summary.completed, summary.held, summary.booked), (0, 1, 0), "{night}");
        // Only the invocation that held it back tells of its units.
        assert_eq!(summary.held_units, if night == 0 { 7 } else { 0 });
        assert_eq!(stage.on_hand().await, [10, 10, 10]);
    }
    let run = &stage.rows("select state, held_reason, beyond_limit from reconcile_run").await[0];
    assert_eq!(
        *run,
        json!({"state": "held", "beyond_limit": 1,
        "held_reason": "1 SKUs differ by more than 50.0 % of their stock and 5 units"})
    );
    assert_eq!(
        stage.shop.db.count("outbox where event_type = 'reconcile.held' and aggregate_type = 'tenant'").await,
        1
    );

    stage.decide("accept").await;
    let summary = stage.reconcile_with(hasty(), OF_A_SKU).await;
    assert_eq!((summary.completed, summary.held, summary.booked), (1, 0, 2));
    assert_eq!(stage.on_hand().await, [10, 11, 4]);
    assert_eq!(
        stage.shop.db.count("reconcile_run where state = 'done' and decided_by = 'user:ann'").await,
        1
    );
}

#[tokio::test]
async fn all_differences_together_hold_the_run_and_a_dropped_one_makes_room() {
    let stage = Stage::open(3, 10).await;
    stage.counts(&[8, 12, 9]);
    let summary = stage.reconcile_with(hasty(), OF_ALL).await;
    assert_eq!((summary.held, summary.booked), (1, 0));
    stage.decide("drop").await;
    // Not above the share of 30 units.
    stage.counts(&[9, 11, 9]);
    let summary = stage.reconcile_with(hasty(), OF_ALL).await;
    assert_eq!((summary.completed, summary.held, summary.booked), (1, 0, 3));
    assert_eq!(stage.on_hand().await, [9, 11, 9]);
}

#[tokio::test]
async fn small_differences_pass_whatever_share_they_are() {
    let stage = Stage::open(1, 2).await;
    stage.counts(&[0]);
    let summary = stage.reconcile_with(hasty(), Terms::default()).await;
    assert_eq!((summary.completed, summary.held), (1, 0));
    assert_eq!(stage.on_hand().await, [0]);
}

#[tokio::test]
async fn the_next_night_does_not_wait_for_a_decision_about_the_last() {
    let stage = Stage::open(1, 100).await;
    stage.counts(&[0]);
    stage.reconcile_with(hasty(), OF_A_SKU).await;
    stage.shop.db.execute("update reconcile_run set started_at = now() - interval '13 hours'").await;
    stage.counts(&[99]);
    let summary = stage.reconcile_with(hasty(), OF_A_SKU).await;
    assert_eq!((summary.completed, summary.held), (1, 0));
    assert_eq!(stage.on_hand().await, [99]);
    assert_eq!(stage.shop.db.count("reconcile_run where state = 'superseded'").await, 1);
}
