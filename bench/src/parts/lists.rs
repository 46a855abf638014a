//! What lists and searches cost, and an erasure, where there is much.

use anyhow::Result;
use serde_json::{Value, json};

use super::timed::median_ms;
use crate::database::Database;
use crate::report::{Measured, Target};
use crate::stage::Stage;
use crate::workload::{TENANT, USER};
use xtask::process::Step;

/// 20,000 customers, of 50 orders each at a million.
fn grow_orders(orders: u64) -> String {
    format!(
        "insert into customer (tenant_id, id, name, currency)
         select t.id, ('44444444-3333-4333-8333-' || lpad(n::text, 12, '0'))::uuid,
           'House of ' || md5(n::text) || ' & Sons', 'USD' from tenant t, generate_series(1, 20000) n;
         insert into wholesale_order (tenant_id, number, customer_id, status, currency, customer_po, created_by, updated_by, created_at)
         select t.id, (1000 + n)::text, ('44444444-3333-4333-8333-' || lpad((1 + n % 20000)::text, 12, '0'))::uuid,
           case when n % 100000 = 7 then 'cancelled' else 'shipped' end, 'USD', 'PO-' || md5(n::text), '{USER}', '{USER}',
           '2020-01-01'::timestamptz + n * interval '1 minute'
         from tenant t, generate_series(1, {orders}) n"
    )
}

/// 50 customers, the first by name, with `lines` settled lines each, and 40 orders of 500 lines, the newest.
fn grow_lines(lines: u64) -> String {
    format!(
        "insert into customer (tenant_id, id, name, currency)
         select t.id, ('55555555-3333-4333-8333-' || lpad(n::text, 12, '0'))::uuid, 'A ' || n, 'USD' from tenant t, generate_series(1, 50) n;
         insert into wholesale_order (tenant_id, id, number, customer_id, status, currency, created_by, updated_by, created_at)
         select c.tenant_id, gen_random_uuid(), c.name || '-' || n, c.id, 'shipped', 'USD', '{USER}'::uuid, '{USER}'::uuid,
           '2019-01-01'::timestamptz
         from customer c, generate_series(1, {lines} / 500) n where c.name like 'A %'
         union all
         select t.id, gen_random_uuid(), 'LARGE-' || n, '55555555-3333-4333-8333-000000000001'::uuid, 'open', 'USD', '{USER}'::uuid,
           '{USER}'::uuid,
           now() + n * interval '1 s'
         from tenant t, generate_series(1, 200) n;
         insert into order_line (tenant_id, order_id, sku_id, line_no, qty, qty_shipped, qty_invoiced, unit_price_minor)
         select o.tenant_id, o.id, s.id, 1, 5, case o.status when 'open' then 0 else 5 end, case o.status when 'open' then 0 else 5 end, 1000
         from wholesale_order o join (select tenant_id, id from sku limit 500) s on s.tenant_id = o.tenant_id
         where o.number like 'A %' or o.number like 'LARGE-%'"
    )
}

pub async fn measure(stage: &Stage<'_>) -> Result<Measured> {
    let (calls, share) = if stage.quick { (20, 10) } else { (50, 1) };
    let database = stage.seeded_database("lists").await?;
    let orders = 1_000_000 / share;
    let step = Step::begin(format!("lists and searches at {orders} orders"));
    database.run("alter table wholesale_order set (autovacuum_enabled = off)").await?;
    database.run(&grow_orders(orders)).await?;
    let mut targets = Vec::new();
    for (what, filters) in [
        ("newest", json!({})),
        ("q, a number", json!({"q": "51234"})),
        ("q, one digit", json!({"q": "2"})),
        ("q, the beginning of a PO", json!({"q": "po-abc1"})),
        ("q, the beginning of every PO", json!({"q": "po-"})),
        ("q, a word of a customer's name", json!({"q": "c4ca4238"})),
        ("q, a word of every customer's name", json!({"q": "sons"})),
        ("q, nothing fits", json!({"q": "no such order"})),
        ("a rare status", json!({"status": "cancelled"})),
        ("a rare status and q", json!({"status": "cancelled", "q": "po-"})),
    ] {
        let ms = list_ms(&database, "wholesale_order", &filters, calls).await?;
        targets.push(Target::at_most(format!("GET /orders at {orders}: {what}"), ms, "ms", 20.0));
    }
    step.done();

    let lines = 20_000 / share;
    let step = Step::begin(format!("a page of customers with {} settled lines", 50 * lines));
    database.run("alter table order_line set (autovacuum_enabled = off)").await?;
    database.run(&grow_lines(lines)).await?;
    let ms = list_ms(&database, "customer", &json!({}), calls).await?;
    targets.push(Target::at_most(
        format!("GET /customers: 50 of {lines} settled lines each"),
        ms,
        "ms",
        200.0,
    ));
    let ms = list_ms(&database, "wholesale_order", &json!({"limit": 200}), calls.min(10)).await?;
    targets.push(Target::at_most(
        "GET /orders?limit=200: orders of 500 lines, a page of 4 MB",
        ms,
        "ms",
        1_000.0,
    ));
    let ms = list_ms(&database, "wholesale_order", &json!({"limit": 200, "lines": "false"}), calls).await?;
    targets.push(Target::at_most("GET /orders?limit=200&lines=false: the same orders", ms, "ms", 20.0));
    step.done();
    let table = String::from("medians of one client, statistics of an empty table: see the targets");
    Ok(Measured { table, json: Value::Null, targets })
}

async fn list_ms(database: &Database, list: &str, filters: &Value, calls: usize) -> Result<f64> {
    let mut read = json!({"tenantId": TENANT, "userId": USER, "list": list, "limit": 50});
    if let (Value::Object(read), Value::Object(filters)) = (&mut read, filters) {
        read.extend(filters.clone());
    }
    median_ms(&database.app_url(database.port), calls, || {
        format!("select * from holdfast.list('{read}'::jsonb)")
    })
    .await
}
