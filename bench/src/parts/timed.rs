//! The time of one statement.

use std::time::{Duration, Instant};

use anyhow::Result;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::sample::median;

const WARM_CALLS: usize = 20;

/// The median of `calls` statements in a new session, without the commit. All are rolled back, so that their own rows do not add up.
pub async fn median_ms(url: &str, calls: usize, statement: impl Fn() -> String) -> Result<f64> {
    let mut session = PgConnection::connect(url).await?;
    let mut times = Vec::new();
    for _ in 0..WARM_CALLS + calls {
        let mut transaction = session.begin().await?;
        let begun = Instant::now();
        sqlx::raw_sql(AssertSqlSafe(statement())).execute(&mut *transaction).await?;
        times.push(begun.elapsed());
        transaction.rollback().await?;
    }
    session.close().await?;
    Ok(median(times.iter().skip(WARM_CALLS).map(Duration::as_secs_f64)) * 1e3)
}
