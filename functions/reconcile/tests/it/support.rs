//! A tenant with a warehouse, and reconciliations of it.

use std::time::Duration;

use reconcile::{Limits, Reconciler, Request, Summary, Terms};
use serde_json::{Value, json};
use shared::delivery::address::Guard;
use shared::runtime::sealed::inventory_place;
use sqlx::{AssertSqlSafe, Row};
use testing::{Seed, Shop, Warehouse};
use tokio::time::Instant;

/// Longest wait of any test, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Allows every difference.
pub const ANY: Terms = Terms { sku_share: 1e9, sku_floor: i64::MAX, run_share: 1e9, run_floor: i64::MAX };

/// A tenant whose stock stands in a warehouse.
pub struct Stage {
    pub shop: Shop,
    pub warehouse: Warehouse,
    /// Of its SKUs, in the order of their ids.
    pub codes: Vec<String>,
}

/// Limits without pauses, for partners that fail.
pub fn hasty() -> Limits {
    Limits { backoff: Duration::from_millis(1), ..Limits::default() }
}

impl Stage {
    /// `skus` SKUs with `on_hand` units each, of which the warehouse's account `wms` is to tell.
    pub async fn open(skus: usize, on_hand: i64) -> Self {
        let shop = Shop::open(Seed { skus, on_hand, order_qty: on_hand.max(1), ..Seed::default() }).await;
        let warehouse = Warehouse::start().await;
        warehouse.serve(&shop.db, shop.tenant.id, &["wms"]).await;
        let codes = (1..=skus).map(|n| format!("SKU-{n:04}")).collect();
        Self { shop, warehouse, codes }
    }

    /// Stores the account's token as `holdfast admin threepl inventory` does where it has the keys.
    pub async fn seal_token(&self) {
        let token = self.shop.db.text("select token from threepl_inventory").await;
        let sealed = testing::sealer().seal(&inventory_place("wms"), &token).unwrap();
        self.shop.db.execute(format!("update threepl_inventory set token = '{sealed}'")).await;
    }

    /// A sandbox of the job.
    pub fn reconciler(&self, limits: Limits, terms: Terms) -> Reconciler {
        let mut reconciler = Reconciler::with(self.shop.db.worker(), limits, terms);
        reconciler.guard = Guard::allowing("127.0.0.1").unwrap();
        reconciler
    }

    /// One invocation for this tenant, with all the time that it needs.
    pub async fn reconcile_with(&self, limits: Limits, terms: Terms) -> Summary {
        let request = Request { tenant: Some(self.shop.tenant.id), resume: false };
        let reconciler = self.reconciler(limits, terms);
        let ran = reconciler.run_once(request, Instant::now() + PATIENCE * 2);
        tokio::time::timeout(PATIENCE, ran).await.unwrap().unwrap()
    }

    /// The same, which must complete.
    pub async fn reconcile(&self) -> Summary {
        let summary = self.reconcile_with(hasty(), ANY).await;
        assert_eq!((summary.completed, &summary.errors), (1, &vec![]), "{summary:?}");
        self.shop.db.assert_consistent().await;
        summary
    }

    /// The account `wms` counts now: units of the SKUs from the first on.
    pub fn counts(&self, units: &[i64]) {
        let stock: Vec<_> = self.codes.iter().cloned().zip(units.iter().copied()).collect();
        self.warehouse.counted("wms", &stock);
    }

    /// What the positions say is on hand, in the order of the SKUs.
    pub async fn on_hand(&self) -> Vec<i64> {
        self.numbers("select on_hand from sku_position order by sku_id").await
    }

    /// The first column of a query.
    pub async fn numbers(&self, sql: &str) -> Vec<i64> {
        sqlx::query_scalar(AssertSqlSafe(sql.to_owned()))
            .fetch_all(&mut self.shop.db.owner().await)
            .await
            .unwrap()
    }

    /// Rows of a query with one JSON column.
    pub async fn rows(&self, sql: &str) -> Vec<Value> {
        let sql = format!("select row_to_json(q)::text from ({sql}) q");
        let rows = sqlx::query(AssertSqlSafe(sql)).fetch_all(&mut self.shop.db.owner().await).await.unwrap();
        rows.iter().map(|row| serde_json::from_str(row.get(0)).unwrap()).collect()
    }

    /// Waits as long as a busy machine may need until `condition` (a SQL expression) is true.
    pub async fn until(&self, condition: &str) {
        let mut owner = self.shop.db.owner().await;
        let begun = Instant::now();
        loop {
            let sql = AssertSqlSafe(format!("select {condition}"));
            if sqlx::query_scalar::<_, bool>(sql).fetch_one(&mut owner).await.unwrap() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "still not true: {condition}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Calls a function with one argument as the worker.
    pub async fn call(&self, function: &'static str, argument: Value) -> String {
        let statement = shared::db::call::Statement::new(function, argument);
        let row = self.shop.db.worker().call_one(&statement).await.unwrap();
        row.try_get::<Option<String>, _>(0).unwrap().unwrap_or_default()
    }

    /// Moves a position by an outside movement of an actor, as webhooks do.
    pub async fn shift(&self, sku: usize, on_hand: i64, actor: &str) {
        let (tenant, sku) = (self.shop.tenant.id, self.shop.tenant.skus[sku]);
        self.shop
            .db
            .execute(format!(
                "begin; select from sku_position where sku_id = '{sku}' for no key update;
                 select holdfast.shift('{tenant}', array[row('{sku}', {on_hand}, 0, 0, 'test')::holdfast.position_change],
                   null, null, null, '{actor}'); commit"
            ))
            .await;
    }

    /// The first order holds `units` of a SKU.
    pub async fn promise(&self, sku: usize, units: i64) {
        let (tenant, order, sku) =
            (self.shop.tenant.id, self.shop.tenant.orders[0], self.shop.tenant.skus[sku]);
        self.shop
            .db
            .execute(format!(
                "begin;
                 insert into allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
                   values ('{tenant}', '{order}', '{sku}', {units}, 'allocate', 'test');
                 update order_line set qty_allocated = qty_allocated + {units} where order_id = '{order}' and sku_id = '{sku}';
                 update sku_position set allocated = allocated + {units} where sku_id = '{sku}';
                 commit"
            ))
            .await;
    }

    /// Claims the tenant's run; returns what the worker's calls about it begin with.
    pub async fn claim(&self) -> Value {
        let (tenant, token) = (self.shop.tenant.id, "11111111-1111-4111-8111-111111111111");
        self.call_begin().await;
        let claim = json!({"tenantId": tenant, "token": token, "leaseSecs": 15, "except": []});
        let run: Value = serde_json::from_str(&self.call("holdfast.reconcile_claim", claim).await).unwrap();
        json!({"tenantId": tenant, "runId": run["runId"], "token": token, "step": run["step"], "leaseSecs": 15})
    }

    pub async fn call_begin(&self) {
        let begin = json!({"tenantId": self.shop.tenant.id, "zone": "UTC"});
        let statement = shared::db::call::Statement::new("holdfast.reconcile_begin", begin);
        self.shop.db.worker().call_one(&statement).await.unwrap();
    }
}
