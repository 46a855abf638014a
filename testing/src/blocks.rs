//! What a call costs, in blocks: a bound on them holds on a slow machine as on a quick one.

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::TestDb;

/// Blocks that a call of a function reads or writes, in the session of `connection`, whatever it calls included. The call is made
/// twice, each time rolled back, and the second one counts: by then the session knows the tables.
pub async fn blocks(connection: &mut PgConnection, call: &str) -> i64 {
    let explain = format!("begin; explain (analyze, buffers, format json) {call}; rollback");
    let mut counted = 0;
    for _ in 0..2 {
        let rows = sqlx::raw_sql(AssertSqlSafe(explain.clone())).fetch_all(&mut *connection).await.unwrap();
        let plan: Value = serde_json::from_str(&rows[0].get_unchecked::<String, _>(0)).unwrap();
        let of = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
        counted = of("Shared Hit Blocks") + of("Shared Read Blocks");
    }
    counted
}

impl TestDb {
    /// Analyzes these tables now, and never again: however they grow, their statistics are of this moment.
    pub async fn keep_statistics(&self, tables: &[&str]) {
        for table in tables {
            self.execute(format!("analyze {table}; alter table {table} set (autovacuum_enabled = off)"))
                .await;
        }
    }
}
