//! A night's reconciliation of 40,000 SKUs, of which one in a hundred differs, with the release binary. Its floor is what no
//! implementation can do without: the same rows by COPY into a temporary table, and one upsert of the snapshots. And what
//! allocate costs beside it.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testing::Warehouse;
use testing::emulator::{Function, Sandbox};

use crate::database::Database;
use crate::product::{Events, Product};
use crate::report::{Measured, Target};
use crate::sample::{Sample, Window, median};
use crate::stage::Stage;
use crate::workload::{TENANT, Workload};
use xtask::process::Step;

const SKUS: usize = 40_000;
const STOCK: i64 = 500_000_000_000;
/// Buyers beside the reconciliation.
const CLIENTS: usize = 8;
const TIMEOUT: Duration = Duration::from_secs(900);
/// What the seed put on hand was there a day before the counts; 39,000 more SKUs.
const GROW: &str = "alter table stock_ledger disable trigger append_only;
    insert into sku (tenant_id, code, style_id)
    select t.id, 'SKU-' || n, s.id from tenant t join style s on s.tenant_id = t.id, generate_series(1000, 39999) n;
    insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor)
    select k.tenant_id, k.id, 500000000000, 'opening', 'bench' from sku k
    where not exists (select from stock_ledger l where l.sku_id = k.id);
    update sku_position p set on_hand = (select sum(l.on_hand_delta) from stock_ledger l
      where l.tenant_id = p.tenant_id and l.sku_id = p.sku_id);
    update stock_ledger set created_at = created_at - interval '1 day';
    alter table stock_ledger enable trigger append_only;";

pub async fn measure(stage: &Stage<'_>) -> Result<Measured> {
    let [reconcile, allocate] = stage.build(["reconcile", "allocate"]).await?;
    let database = stage.seeded_database("reconcile").await?;
    let warehouse = Warehouse::start().await;
    database.run(GROW).await?;
    database.run(&warehouse.account_sql(TENANT, "wms")).await?;
    database.run("vacuum analyze").await?;
    let function = Function::new("reconcile", reconcile)
        .env("WORKER_DATABASE_URL", database.worker_url(database.port))
        .env("DESTINATION_ALLOW", "127.0.0.1");
    let sandbox = Sandbox::start(&function).await?;

    let step = Step::begin("a reconciliation of 40,000 SKUs, and its floor");
    let nights = if stage.quick { 2 } else { 5 };
    let (mut product, mut floor, mut live) = (Vec::new(), Vec::new(), Vec::new());
    for night in 0..nights {
        floor.push(floor_secs(&database, night).await?);
        product.push(night_secs(&sandbox, &warehouse, night, Duration::from_secs(60)).await?);
    }
    // Counts of this very moment: all positions are locked, for what is under way may still commit.
    for night in nights..nights + 2 {
        live.push(night_secs(&sandbox, &warehouse, night, Duration::ZERO).await?);
    }
    step.done();
    let per_sec = |secs: &[f64]| SKUS as f64 / median(secs.iter().copied());
    let (product, floor, live) = (per_sec(&product), per_sec(&floor), per_sec(&live));

    let step = Step::begin("allocate alone, and beside reconciliations");
    let events = Events::new()?;
    let buyers =
        Product::start(&events.function(&allocate, database.app_url(database.port)), &events, CLIENTS)
            .await?;
    let counted = Duration::from_secs(if stage.quick { 2 } else { 6 });
    let window = || Window::begin(Duration::from_millis(500), counted);
    let (mut alone, mut beside): (Vec<Sample>, Vec<Sample>) = (Vec::new(), Vec::new());
    for round in 0..if stage.quick { 1 } else { 3 } {
        alone.push(buyers.measure(Workload::Spread, window()).await?);
        let over = window();
        let nights = async {
            let mut night = 100 * (round + 1);
            while over.is_open() {
                night_secs(&sandbox, &warehouse, night, Duration::from_secs(60)).await?;
                night += 1;
            }
            Ok::<_, anyhow::Error>(())
        };
        let (sample, nights) = tokio::join!(buyers.measure(Workload::Spread, over), nights);
        nights?;
        beside.push(sample?);
    }
    buyers.end().await?;
    sandbox.kill().await?;
    step.done();
    check(&database).await?;

    let p99 = |samples: &[Sample]| median(samples.iter().map(|sample| sample.p99_ms));
    let (alone_ms, beside_ms) = (p99(&alone), p99(&beside));
    let mut table = String::new();
    // Writing into a String cannot fail.
    let _ = writeln!(
        table,
        "SKUs per second: {product:.0}, its floor {floor:.0}; counted in this moment {live:.0}"
    );
    let _ = writeln!(
        table,
        "allocate, {CLIENTS} clients, p99 in ms: {alone_ms:.2} alone, {beside_ms:.2} beside it"
    );
    Ok(Measured {
        table,
        json: json!({"skusPerSec": product, "floorSkusPerSec": floor, "liveSkusPerSec": live,
            "allocateAlone": alone, "allocateBeside": beside}),
        targets: vec![
            Target::at_least("reconcile, SKUs per second over its floor", product / floor, "×", 0.3),
            Target::at_most(
                "p99 of allocate beside a reconciliation over alone",
                beside_ms / alone_ms,
                "×",
                1.5,
            ),
        ],
    })
}

/// One SKU in a hundred differs by one unit, others each night, up and down.
fn count(night: usize, sku: usize) -> i64 {
    STOCK + i64::from(sku % 100 == night % 100)
}

/// A night in one invocation, in which the counts are `age` old. All differences are booked.
async fn night_secs(sandbox: &Sandbox, warehouse: &Warehouse, night: usize, age: Duration) -> Result<f64> {
    let stock: Vec<_> = (0..SKUS).map(|sku| (format!("SKU-{sku}"), count(night, sku))).collect();
    warehouse.counted_at("wms", &stock, jiff::Timestamp::now() - age);
    let begun = Instant::now();
    let answer = sandbox.invoke(json!({"tenantId": TENANT}).to_string(), TIMEOUT).await?;
    let took = begun.elapsed();
    let summary: Value = serde_json::from_slice(&answer.payload)?;
    ensure!(
        summary["completed"] == 1 && summary["skus"] == SKUS && summary["booked"].as_u64() >= Some(400),
        "the night went wrong: {summary}"
    );
    Ok(took.as_secs_f64())
}

/// The same rows by COPY and one upsert.
async fn floor_secs(database: &Database, night: usize) -> Result<f64> {
    let mut owner = database.owner().await?;
    let rows: Vec<(String, i64)> =
        sqlx::query_as("select id::text, 0::bigint from sku order by random()").fetch_all(&mut owner).await?;
    let text: String = rows.iter().map(|(sku, _)| format!("{sku}\t{STOCK}\n")).collect();
    let begun = Instant::now();
    let mut transaction = owner.begin().await?;
    sqlx::raw_sql("create temporary table counted (sku_id uuid, on_hand bigint) on commit drop")
        .execute(&mut *transaction)
        .await?;
    let mut copy = transaction.copy_in_raw("copy counted from stdin").await?;
    copy.send(text.as_bytes()).await?;
    copy.finish().await?;
    sqlx::query(
        "insert into inventory_snapshot (tenant_id, sku_id, snapshot_date, account_id, on_hand)
         select $1, sku_id, current_date - 1 - $2, 'floor', on_hand from counted
         on conflict (tenant_id, snapshot_date, sku_id, account_id) do update set on_hand = excluded.on_hand",
    )
    .bind(TENANT.parse::<uuid::Uuid>()?)
    .bind(i32::try_from(night)?)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await?;
    let took = begun.elapsed();
    owner.close().await?;
    Ok(took.as_secs_f64())
}

/// The books agree after all of it.
async fn check(database: &Database) -> Result<()> {
    let mut owner: PgConnection = database.owner().await?;
    let odd: i64 = sqlx::query_scalar("select count(*) from position_audit").fetch_one(&mut owner).await?;
    owner.close().await.context("the connection")?;
    ensure!(odd == 0, "{odd} positions differ from their ledgers");
    Ok(())
}
