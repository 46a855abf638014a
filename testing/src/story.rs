//! What stories are told with: a shop with one tenant, requests as its users send them, markers to wait for.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::{Event, Seed, Tenant, TestDb};

/// A database with one tenant in it.
pub struct Shop {
    /// The database.
    pub db: TestDb,
    /// The tenant.
    pub tenant: Tenant,
}

/// A key that nobody used.
pub fn fresh_key() -> String {
    Uuid::new_v4().to_string()
}

/// A body of several lines.
pub fn lines(lines: &[(Uuid, i64)]) -> Value {
    json!({"lines": lines.iter().map(|(sku, qty)| json!({"skuId": sku, "qty": qty})).collect::<Vec<_>>()})
}

impl Shop {
    /// Opens one.
    pub async fn open(seed: Seed) -> Self {
        let db = TestDb::create().await;
        let tenant = db.seed(seed).await;
        Self { db, tenant }
    }

    /// The first user's `POST /orders/{id}/allocate` of the tenant's order number `order`, without key or body.
    pub fn allocate(&self, order: usize) -> Event {
        self.post(order, "allocate")
    }

    /// The first user's `POST /orders/{id}/release`.
    pub fn release(&self, order: usize) -> Event {
        self.post(order, "release")
    }

    fn post(&self, order: usize, verb: &str) -> Event {
        Event::post(&format!("/orders/{}/{verb}", self.tenant.orders[order])).bearer(&self.tenant.token())
    }

    /// The short body: one line of the tenant's SKU number `sku`.
    pub fn one(&self, sku: usize, qty: i64) -> Value {
        json!({"skuId": self.tenant.skus[sku], "qty": qty})
    }

    /// `units` more on hand of a SKU, through its ledger.
    pub async fn receive(&self, sku: usize, units: i64) {
        let (tenant, sku) = (self.tenant.id, self.tenant.skus[sku]);
        self.db
            .execute(format!(
                "begin;
                 update sku_position set on_hand = on_hand + {units} where tenant_id = '{tenant}' and sku_id = '{sku}';
                 insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor)
                   values ('{tenant}', '{sku}', {units}, 'receipt', 'test');
                 commit"
            ))
            .await;
    }

    /// Locks a SKU's position, so that work on it stands still.
    pub async fn hold(&self, sku: usize) -> Hold {
        let sku = self.tenant.skus[sku];
        self.db.hold(format!("select 1 from sku_position where sku_id = '{sku}' for update")).await
    }
}

/// A transaction of the owner that holds locks until it is let go.
pub struct Hold(PgConnection);

impl Hold {
    /// Ends it; what waited goes on.
    pub async fn let_go(mut self) {
        sqlx::raw_sql("commit").execute(&mut self.0).await.unwrap();
    }
}

/// Longest wait for a marker.
const PATIENCE: Duration = Duration::from_secs(10);

impl TestDb {
    /// Runs a statement in a transaction that stays open.
    pub async fn hold(&self, sql: String) -> Hold {
        let mut owner = self.owner().await;
        sqlx::raw_sql(AssertSqlSafe(format!("begin; {sql}"))).execute(&mut owner).await.unwrap();
        Hold(owner)
    }

    /// Waits until `condition` (a SQL expression) holds; panics after ten seconds.
    pub async fn until(&self, condition: &str) {
        let mut owner = self.owner().await;
        let started = Instant::now();
        loop {
            let sql = AssertSqlSafe(format!("select {condition}"));
            if sqlx::query_scalar::<_, bool>(sql).fetch_one(&mut owner).await.unwrap() {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "still not so: {condition}");
            tokio::time::sleep(Duration::from_millis(4)).await;
        }
    }

    /// Waits until `sessions` sessions of the endpoint role stand before a lock of this database.
    pub async fn until_blocked(&self, sessions: usize) {
        self.until(&format!(
            "(select count(*) from pg_stat_activity where datname = current_database() and usename = 'holdfast_app'
                and wait_event_type = 'Lock') = {sessions}"
        ))
        .await;
    }

    /// How many rows a query has.
    pub async fn count(&self, from: &str) -> i64 {
        let sql = AssertSqlSafe(format!("select count(*) from {from}"));
        sqlx::query_scalar(sql).fetch_one(&mut self.owner().await).await.unwrap()
    }

    /// A text that differs whenever business data do: every row of every tenant table but the recorded answers.
    pub async fn state(&self) -> String {
        const TABLES: [&str; 9] = [
            "customer",
            "style",
            "sku",
            "sku_position",
            "wholesale_order",
            "order_line",
            "invoice",
            "allocation_ledger",
            "outbox",
        ];
        let parts = TABLES.map(|table| {
            format!("(select '{table}:' || count(*) || md5(coalesce(string_agg(t::text, ',' order by t::text), '')) from {table} t)")
        });
        let sql = AssertSqlSafe(format!("select concat_ws(' ', {})", parts.join(",")));
        sqlx::query_scalar(sql).fetch_one(&mut self.owner().await).await.unwrap()
    }
}
