//! Helpers for tests of HTTP functions: a database with one tenant, its users' requests, conditions to wait for.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use super::{Event, Seed, Tenant, TestDb};

/// A database with one tenant. Not a Shopify shop.
pub struct Shop {
    /// The test's own database.
    pub db: TestDb,
    /// Its only tenant.
    pub tenant: Tenant,
}

/// A new idempotency key.
pub fn fresh_key() -> String {
    Uuid::new_v4().to_string()
}

/// The body of an allocate or release with these lines of (SKU, units).
pub fn lines(lines: &[(Uuid, i64)]) -> Value {
    json!({"lines": lines.iter().map(|(sku, qty)| json!({"skuId": sku, "qty": qty})).collect::<Vec<_>>()})
}

impl Shop {
    /// Creates the database and seeds the tenant.
    pub async fn open(seed: Seed) -> Self {
        let db = TestDb::create().await;
        let tenant = db.seed(seed).await;
        Self { db, tenant }
    }

    /// The first user's `POST /orders/{id}/allocate` for `tenant.orders[order]`, without key or body.
    pub fn allocate(&self, order: usize) -> Event {
        self.post(order, "allocate")
    }

    /// The first user's `POST /orders/{id}/release`, likewise.
    pub fn release(&self, order: usize) -> Event {
        self.post(order, "release")
    }

    fn post(&self, order: usize, verb: &str) -> Event {
        Event::post(&format!("/orders/{}/{verb}", self.tenant.orders[order])).bearer(&self.tenant.token())
    }

    /// The body of an allocate or release with one line, of `tenant.skus[sku]`.
    pub fn one(&self, sku: usize, qty: i64) -> Value {
        json!({"skuId": self.tenant.skus[sku], "qty": qty})
    }

    /// Adds `units` to a SKU's units on hand, with the ledger entry.
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

    /// Locks a SKU's position, so that all work on it waits.
    pub async fn hold(&self, sku: usize) -> Hold {
        let sku = self.tenant.skus[sku];
        self.db.hold(format!("select 1 from sku_position where sku_id = '{sku}' for update")).await
    }
}

/// An open transaction of the owner that holds locks.
pub struct Hold(PgConnection);

impl Hold {
    /// Commits; what waited for the locks continues.
    pub async fn let_go(mut self) {
        sqlx::raw_sql("commit").execute(&mut self.0).await.unwrap();
    }
}

/// Longest wait for a condition.
const UNTIL_TIMEOUT: Duration = Duration::from_secs(10);
const UNTIL_PAUSE: Duration = Duration::from_millis(4);

impl TestDb {
    /// Runs a statement in a transaction and leaves the transaction open.
    pub async fn hold(&self, sql: String) -> Hold {
        let mut owner = self.owner().await;
        sqlx::raw_sql(AssertSqlSafe(format!("begin; {sql}"))).execute(&mut owner).await.unwrap();
        Hold(owner)
    }

    /// Waits until `condition` (a SQL expression) is true; panics after ten seconds.
    pub async fn until(&self, condition: &str) {
        let mut owner = self.owner().await;
        let started = Instant::now();
        loop {
            let sql = AssertSqlSafe(format!("select {condition}"));
            if sqlx::query_scalar::<_, bool>(sql).fetch_one(&mut owner).await.unwrap() {
                return;
            }
            assert!(started.elapsed() < UNTIL_TIMEOUT, "still not true: {condition}");
            tokio::time::sleep(UNTIL_PAUSE).await;
        }
    }

    /// Waits until exactly `sessions` sessions of the HTTP functions' role wait for a lock in this database.
    pub async fn until_blocked(&self, sessions: usize) {
        self.until(&format!(
            "(select count(*) from pg_stat_activity where datname = current_database() and usename = 'holdfast_app'
                and wait_event_type = 'Lock') = {sessions}"
        ))
        .await;
    }

    /// The number of rows of `from`, which is all that follows FROM in a query.
    pub async fn count(&self, from: &str) -> i64 {
        let sql = AssertSqlSafe(format!("select count(*) from {from}"));
        sqlx::query_scalar(sql).fetch_one(&mut self.owner().await).await.unwrap()
    }

    /// A digest of the business data: two are equal if and only if all rows of these tables are. Recorded answers are not
    /// part of it.
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
