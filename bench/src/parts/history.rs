//! What an allocation costs beside much that is settled, and beside the reaper.

use std::time::{Duration, Instant};

use anyhow::Result;
use reaper::{Limits, Retention};
use shared::db::connection::Db;
use shared::runtime::config::DatabaseConfig;
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::timed::median_ms;
use crate::database::Database;
use crate::report::{Grown, Measured};
use crate::sample::Sample;
use crate::stage::Stage;
use crate::workload::Workload;
use xtask::process::Step;

/// The statistics of these tables are those of the empty ones, and stay so.
const KEEP_STATISTICS: &str = "alter table order_line set (autovacuum_enabled = off);
    alter table wholesale_order set (autovacuum_enabled = off);
    update customer set credit_limit_minor = 1000000000000000";
/// Shipped and invoiced, all of the customer whose orders are allocated.
fn settle(lines: u64) -> String {
    format!(
        "insert into wholesale_order (tenant_id, number, customer_id, status, currency, created_by, updated_by)
         select tenant_id, 'OLD-' || n, customer_id, 'shipped', 'USD', created_by, updated_by
         from (select * from wholesale_order limit 1) o, generate_series(1, {lines} / 100) n;
         insert into order_line (tenant_id, order_id, sku_id, qty, qty_shipped, qty_invoiced, unit_price_minor)
         select o.tenant_id, o.id, s.id, 5, 5, 5, 1000 from wholesale_order o
         join (select tenant_id, id from sku limit 100) s on s.tenant_id = o.tenant_id where o.number like 'OLD-%'"
    )
}

/// Keys and delivered events, `age` old.
fn keep(rows: u64, age: &str) -> String {
    format!(
        "insert into idempotency_key (tenant_id, key, request_method, request_path, request_hash, response_status,
           response_body, response_content_type, created_at)
         select t.id, gen_random_uuid()::text, 'POST', '/orders/x/allocate', sha256(n::text::bytea), 200,
           convert_to(repeat('x', 200), 'UTF8'), 'application/json', now() - interval '{age}'
         from tenant t, generate_series(1, {rows}) n;
         insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload,
           created_at, processed_at)
         select d.tenant_id, d.id, gen_random_uuid(), 'sku', gen_random_uuid(), 1, 'sku.ats_changed', repeat('x', 300),
           now() - interval '{age}', now() - interval '{age}'
         from destination d, generate_series(1, {rows}) n"
    )
}

pub async fn measure(stage: &Stage<'_>) -> Result<Measured> {
    let (calls, share) = if stage.quick { (200, 10) } else { (1_000, 1) };
    let mut rows = Vec::new();

    let lines = 400_000 / share;
    let database = stage.seeded_database("settled").await?;
    let step = Step::begin(format!("allocate, credit limit, beside {lines} settled lines"));
    database.run(KEEP_STATISTICS).await?;
    let empty_ms = allocate_ms(&database, calls).await?;
    database.run(&settle(lines)).await?;
    let grown_ms = allocate_ms(&database, calls).await?;
    step.done();
    let what = format!("allocate, limit; {lines} settled lines of the customer, stale statistics");
    rows.push(Grown { what, empty_ms, grown_ms, at_most: 1.3 });

    let kept = 3_000_000 / share;
    let database = stage.seeded_database("kept").await?;
    let step = Step::begin(format!("allocate beside {kept} keys and {kept} delivered events"));
    let empty_ms = allocate_ms(&database, calls).await?;
    database.run(&keep(kept, "1 hour")).await?;
    database.run("vacuum analyze idempotency_key, outbox").await?;
    let grown_ms = allocate_ms(&database, calls).await?;
    step.done();
    let what = format!("allocate; {kept} keys and delivered events kept");
    rows.push(Grown { what, empty_ms, grown_ms, at_most: 1.2 });

    let old = 1_000_000 / share;
    let step = Step::begin(format!("allocate while {old} keys are reaped"));
    database
        .run(&keep(old, "40 days").split_inclusive(';').next().unwrap_or_default().replace(';', ""))
        .await?;
    database.run("vacuum analyze idempotency_key").await?;
    let seconds = if stage.quick { 3 } else { 10 };
    let alone = load(&database, Duration::from_secs(seconds)).await?;
    let reaper = Db::new(&DatabaseConfig::direct(database.worker_url(database.port)))?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(600);
    let (beside, reaped) = tokio::join!(
        load(&database, Duration::from_secs(seconds)),
        reaper::run_once(&reaper, Retention::default(), Limits::default(), deadline)
    );
    let (beside, reaped) = (beside?, reaped?);
    step.done();
    let what = format!("p99 of allocate, one client; {} keys reaped meanwhile and after", reaped.keys);
    rows.push(Grown { what, empty_ms: alone.p99_ms, grown_ms: beside.p99_ms, at_most: 1.5 });
    Ok(Measured::grown(&rows))
}

async fn allocate_ms(database: &Database, calls: usize) -> Result<f64> {
    median_ms(&database.app_url(database.port), calls, || Workload::Spread.statement()).await
}

/// Allocations by one client, one after the other, each committed.
async fn load(database: &Database, time: Duration) -> Result<Sample> {
    let mut session = PgConnection::connect(&database.app_url(database.port)).await?;
    let (mut latencies_us, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < time {
        let sent = Instant::now();
        sqlx::raw_sql(AssertSqlSafe(Workload::Spread.statement())).execute(&mut session).await?;
        latencies_us.push(u64::try_from(sent.elapsed().as_micros())?);
    }
    session.close().await?;
    Ok(Sample::of(latencies_us, time))
}
