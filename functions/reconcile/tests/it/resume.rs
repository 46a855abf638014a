//! Killed anywhere, a run goes on; the end is that of a run that nobody disturbed.

use serde_json::{Value, json};
use testing::emulator::{Function, Sandbox};
use testing::{Seed, Shop, Warehouse};

use crate::support::{PATIENCE, Stage};

const SKUS: usize = 40_000;
/// Kills within one run, each at a page that the dice choose.
const KILLS: u64 = 10;
/// Walk, comparison and booking take about so many pages.
const PAGES: u64 = 110;

/// A tenant of 40,000 SKUs: every tenth differs, every thirtieth falls below its promise, some codes are unknown.
async fn wide() -> Stage {
    let shop = Shop::open(Seed { skus: 1, on_hand: 0, orders: 1, ..Seed::default() }).await;
    let (tenant, order) = (shop.tenant.id, shop.tenant.orders[0]);
    shop.db
        .execute(format!(
            "begin;
             delete from order_line; update sku set code = 'NONE';
             insert into sku (tenant_id, code, style_id)
               select '{tenant}', 'WIDE-' || lpad(n::text, 5, '0'), (select id from style) from generate_series(1, {SKUS}) n;
             insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor)
               select tenant_id, id, 20, 'opening', 'seed' from sku where code like 'WIDE-%';
             insert into order_line (tenant_id, order_id, sku_id, qty, qty_allocated, unit_price_minor)
               select '{tenant}', '{order}', id, 15, 15, 1 from sku where code like 'WIDE-%0';
             insert into allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
               select '{tenant}', '{order}', sku_id, 15, 'allocate', 'seed' from order_line;
             update sku_position p set on_hand = 20, allocated = coalesce(l.qty, 0)
               from sku k left join order_line l on l.tenant_id = k.tenant_id and l.sku_id = k.id
               where k.tenant_id = p.tenant_id and k.id = p.sku_id and k.code <> 'NONE';
             commit"
        ))
        .await;
    let warehouse = Warehouse::start().await;
    warehouse.serve(&shop.db, tenant, &["annex", "wms"]).await;
    let code = |n: usize| if n % 5_000 == 3 { format!("STRANGE-{n}") } else { format!("WIDE-{n:05}") };
    let counted = |n: usize| match n % 30 {
        0 => 12,
        10 => 25,
        20 => 17,
        _ => 20,
    };
    // One in three stands in two warehouses.
    let stock: Vec<_> = (1..=SKUS).map(|n| (code(n), counted(n) - i64::from(n % 3 == 0) * 5)).collect();
    let annex: Vec<_> = (1..=SKUS).filter(|n| n % 3 == 0).map(|n| (code(n), 5)).collect();
    warehouse.counted("wms", &stock);
    warehouse.counted("annex", &annex);
    Stage { shop, warehouse, codes: Vec::new() }
}

/// All that a run leaves behind, by code and without ids and times.
async fn left(stage: &Stage) -> Vec<Vec<Value>> {
    let mut left = Vec::new();
    for sql in [
        "select k.code, p.on_hand, p.on_order, p.allocated, p.event_sequence from sku_position p join sku k on k.id = p.sku_id order by 1",
        "select k.code, l.on_hand_delta, l.entry_type from stock_ledger l join sku k on k.id = l.sku_id where entry_type <> 'opening' order by 1, 2",
        "select k.code, s.qty, s.owed_on_hand, s.cause, s.settled_at from shortfall s join sku k on k.id = s.sku_id order by 1",
        "select k.code, s.account_id, s.on_hand from inventory_snapshot s join sku k on k.id = s.sku_id order by 1, 2",
        "select kind, code, counted, expected, adjusted, short, booked_at is null as left from reconcile_finding order by 1, 2",
        "select provider, reason from inbox_exception order by 2",
        "select event_type, count(*) from outbox group by 1 order by 1",
        "select state, pages, lines, unknown, invalid, skus, duplicates, missing, variances, booked, units_up, units_down, units_short
         from reconcile_run",
    ] {
        left.push(stage.rows(sql).await);
    }
    left
}

fn function(stage: &Stage) -> Function {
    Function::new("reconcile", env!("CARGO_BIN_EXE_reconcile"))
        .env("WORKER_DATABASE_URL", &stage.shop.db.worker_url)
        .env("DESTINATION_ALLOW", "127.0.0.1")
        .env("RECONCILE_SKU_FLOOR", "1000000")
        .env("RECONCILE_RUN_FLOOR", "1000000000")
}

async fn invoked(sandbox: &Sandbox, stage: &Stage) -> Value {
    let event = json!({"tenantId": stage.shop.tenant.id}).to_string();
    let answer = sandbox.invoke(event, PATIENCE * 5).await.unwrap();
    serde_json::from_slice(&answer.payload).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_killed_again_and_again_ends_like_one_that_nobody_disturbed() {
    let undisturbed = wide().await;
    let sandbox = Sandbox::start(&function(&undisturbed)).await.unwrap();
    let summary = invoked(&sandbox, &undisturbed).await;
    assert_eq!((&summary["completed"], &summary["missing"]), (&json!(1), &json!(8)), "{summary}");
    undisturbed.shop.db.assert_consistent().await;
    let expected = left(&undisturbed).await;
    drop(undisturbed);

    let stage = wide().await;
    let seed: u64 = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand_seed);
    println!("SEED={seed}");
    let mut dice = seed;
    let (mut kills, mut step) = (0, 0);
    loop {
        let sandbox = Sandbox::start(&function(&stage)).await.unwrap();
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        step += 1 + (dice >> 33) % (2 * PAGES / KILLS);
        let reached = format!("exists (select from reconcile_run where step >= {step})");
        tokio::select! {
            summary = invoked(&sandbox, &stage) => {
                assert_eq!(summary["completed"], 1, "SEED={seed}: {summary}");
                break;
            }
            () = stage.until(&reached) => {}
        }
        sandbox.kill().await.unwrap();
        kills += 1;
        // What the dead process had sent may still commit; and its lease ends in a quarter of a minute.
        stage
            .until("not exists (select from pg_stat_activity where datname = current_database() and usename = 'holdfast_worker')")
            .await;
        // Killed between its last page and its answer: the run has ended, and the next invocation would begin another one.
        if stage.numbers("select count(*) from reconcile_run where finished_at is null").await == [0] {
            break;
        }
        stage.shop.db.execute("update reconcile_run set leased_until = clock_timestamp()").await;
    }
    assert!(kills >= 3, "SEED={seed}: only {kills} kills");
    stage.shop.db.assert_consistent().await;
    for (found, expected) in left(&stage).await.iter().zip(&expected) {
        assert!(found == expected, "SEED={seed}, {kills} kills: {:?}", differing(found, expected));
    }
}

fn rand_seed() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap()
}

/// The first rows that differ.
fn differing<'r>(found: &'r [Value], expected: &'r [Value]) -> Vec<(Option<&'r Value>, Option<&'r Value>)> {
    let pairs = (0..found.len().max(expected.len())).map(|index| (found.get(index), expected.get(index)));
    pairs.filter(|(found, expected)| found != expected).take(3).collect()
}

#[tokio::test]
async fn an_invocation_after_a_death_waits_for_the_lease_to_end_and_goes_on() {
    let stage = Stage::open(8, 10).await;
    stage.counts(&[11; 8]);
    // Somebody claimed it and died.
    stage.claim().await;
    stage
        .shop
        .db
        .execute("update reconcile_run set leased_until = clock_timestamp() + interval '2 seconds'")
        .await;
    let summary = stage.reconcile().await;
    assert!(!summary.running && summary.seconds > 1.0, "{summary:?}");
    assert_eq!(stage.on_hand().await, [11; 8]);
}
