//! What an allocation costs where an ordered destination subscribes, with many rows of ordered queues pending.

use std::time::{Duration, Instant};

use anyhow::Result;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::database::Database;
use crate::report::{Grown, Measured};
use crate::sample::median;
use crate::stage::Stage;
use crate::workload::Workload;
use xtask::process::Step;

/// The statistics are those of the empty table, and stay so.
const ORDERED: &str = "update destination set ordered = true;
    alter table outbox set (autovacuum_enabled = off)";
/// Half of them are this tenant's, of aggregates that nobody allocates.
const GROW: &str = "insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type,
      payload, keyed, next_attempt_at)
    select d.tenant_id, case when n % 2 = 0 then d.id else gen_random_uuid() end, gen_random_uuid(), 'sku', gen_random_uuid(), 1,
      'sku.ats_changed', '{}', true, 'infinity'
    from destination d, generate_series(1, 100000) n";
const WARM_CALLS: usize = 50;

pub async fn measure(stage: &Stage<'_>) -> Result<Measured> {
    let database = stage.seeded_database("fan_out").await?;
    let step = Step::begin("allocate beside 100,000 pending rows of ordered queues");
    database.run(ORDERED).await?;
    let calls = if stage.quick { 200 } else { 1_000 };
    let empty_ms = allocate_ms(&database, calls).await?;
    database.run(GROW).await?;
    let grown_ms = allocate_ms(&database, calls).await?;
    step.done();
    Ok(Measured::grown(&[Grown {
        what: "allocate, ordered destination; 100,000 keyed rows pending, stale statistics".into(),
        empty_ms,
        grown_ms,
        at_most: 1.2,
    }]))
}

/// The median of `calls` allocations in a new session, of the time without the commit. All are rolled back, so that their own
/// rows do not grow the queues.
async fn allocate_ms(database: &Database, calls: usize) -> Result<f64> {
    let mut session = PgConnection::connect(&database.app_url(database.port)).await?;
    let mut times = Vec::new();
    for _ in 0..WARM_CALLS + calls {
        let mut transaction = session.begin().await?;
        let begun = Instant::now();
        sqlx::raw_sql(AssertSqlSafe(Workload::Spread.statement())).execute(&mut *transaction).await?;
        times.push(begun.elapsed());
        transaction.rollback().await?;
    }
    session.close().await?;
    Ok(median(times.iter().skip(WARM_CALLS).map(Duration::as_secs_f64)) * 1e3)
}
