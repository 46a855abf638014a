//! What an allocation costs beside much that is settled: bounds on blocks, with the statistics of an empty table.

use serde_json::{Value, json};
use sqlx::PgConnection;
use testing::{Seed, Shop, blocks, fresh_key};

/// The message of an allocation of one unit, under a new key.
fn allocation(shop: &Shop) -> String {
    let (tenant, user, order) = (shop.tenant.id, shop.tenant.users[0], shop.tenant.orders[0]);
    let call = json!({"tenantId": tenant, "userId": user, "actor": format!("user:{user}"), "key": fresh_key(), "method": "POST",
        "path": format!("/orders/{order}/allocate"), "hash": "ab".repeat(32), "lockRequest": 1, "lockKey": 2, "orderId": order,
        "lines": [shop.one(0, 1)]});
    format!("select * from holdfast.allocate('{call}'::jsonb)")
}

/// Grows the customer's settled lines: shipped and invoiced, of 200 orders with 100 lines each.
async fn settle_20_000_lines(shop: &Shop) {
    let (tenant, customer, user) = (shop.tenant.id, shop.tenant.customer, shop.tenant.users[0]);
    shop.db
        .execute(format!(
            "insert into wholesale_order (tenant_id, id, number, customer_id, status, currency, created_by, updated_by)
             select '{tenant}', ('66666666-6666-4666-8666-' || lpad(n::text, 12, '0'))::uuid, 'OLD-' || n, '{customer}', 'shipped',
               'USD', '{user}', '{user}' from generate_series(1, 200) n;
             insert into order_line (tenant_id, order_id, sku_id, qty, qty_shipped, qty_invoiced, unit_price_minor)
             select o.tenant_id, o.id, s.id, 5, 5, 5, 1000 from wholesale_order o
             join sku s on s.tenant_id = o.tenant_id where o.number like 'OLD-%'"
        ))
        .await;
}

async fn exposure(app: &mut PgConnection, shop: &Shop) -> (i64, Value) {
    let (tenant, customer) = (shop.tenant.id, shop.tenant.customer);
    let read = json!({"tenantId": tenant, "userId": shop.tenant.users[0], "list": "customer", "limit": 50});
    let cost = blocks(app, &format!("select * from holdfast.list('{read}')")).await;
    let document: String = sqlx::query_scalar("select holdfast.customer_document($1, $2)")
        .bind(tenant)
        .bind(customer)
        .fetch_one(&mut shop.db.owner().await)
        .await
        .unwrap();
    (cost, serde_json::from_str::<Value>(&document).unwrap()["exposureMinor"].clone())
}

#[tokio::test]
async fn settled_lines_cost_neither_an_allocation_nor_the_list_of_customers() {
    let shop =
        Shop::open(Seed { skus: 100, on_hand: 50, credit_limit_minor: Some(1_000_000), ..Seed::default() })
            .await;
    shop.db.keep_statistics(&["order_line", "wholesale_order", "invoice", "customer"]).await;
    let mut app = shop.db.app().await;
    let alone = blocks(&mut app, &allocation(&shop)).await;
    let (list_alone, _) = exposure(&mut app, &shop).await;
    settle_20_000_lines(&shop).await;
    // A line that counts, among them; and paid invoices.
    shop.db
        .execute(format!(
            "update order_line set qty_shipped = 3, qty_invoiced = 1 where (order_id, sku_id) = (
               select order_id, sku_id from order_line where qty_shipped = 5 limit 1);
             insert into invoice (tenant_id, customer_id, total_minor, currency, status)
             select '{}', '{}', 700, 'USD', 'paid' from generate_series(1, 5000)",
            shop.tenant.id, shop.tenant.customer
        ))
        .await;
    let beside = blocks(&mut app, &allocation(&shop)).await;
    assert!(beside <= alone + alone / 3, "{beside} blocks beside 20,000 settled lines, {alone} without");
    let (list_beside, exposure) = exposure(&mut app, &shop).await;
    assert!(
        list_beside <= list_alone + 20,
        "{list_beside} blocks beside 20,000 settled lines, {list_alone} without"
    );
    assert_eq!(exposure, 2_000);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn whoever_changes_a_line_it_counts_as_it_stands() {
    let shop = Shop::open(Seed { skus: 2, on_hand: 50, orders: 1, ..Seed::default() }).await;
    let order = shop.tenant.orders[0];
    for (change, exposed) in [
        ("qty_allocated = 2", 2),
        ("qty_invoiced = 2", 0),
        ("qty_shipped = 1", 2),
        ("qty_allocated = 0, qty_shipped = 2", 0),
        ("qty_invoiced = 1", 2),
        ("qty = 9, line_no = 3", 2),
    ] {
        shop.db.execute(format!("update order_line set {change} where order_id = '{order}'")).await;
        assert_eq!(shop.db.count("order_line where exposed").await, exposed, "{change}");
        assert_eq!(shop.db.count("exposed_line_audit").await, 0, "{change}");
    }
    let other = uuid::Uuid::new_v4();
    shop.db
        .execute(format!(
            "insert into customer (tenant_id, id, name, currency) values ('{}', '{other}', 'Other', 'USD');
             update wholesale_order set customer_id = '{other}'",
            shop.tenant.id
        ))
        .await;
    assert_eq!(shop.db.count(&format!("order_line where customer_id = '{other}'")).await, 2);
    assert_eq!(shop.db.count("exposed_line_audit").await, 0);
}

#[tokio::test]
async fn a_repeated_allocation_of_a_line_writes_no_index_of_it() {
    let shop = Shop::open(Seed { on_hand: 50, orders: 1, order_qty: 50, ..Seed::default() }).await;
    let mut app = shop.db.app().await;
    let hot = "select pg_stat_get_tuples_updated('order_line'::regclass) - pg_stat_get_tuples_hot_updated('order_line'::regclass)";
    for _ in 0..8 {
        sqlx::raw_sql(sqlx::AssertSqlSafe(allocation(&shop))).execute(&mut app).await.unwrap();
    }
    sqlx::raw_sql("select pg_stat_force_next_flush()").execute(&mut app).await.unwrap();
    let cold: i64 = {
        sqlx::raw_sql("select 1").execute(&mut app).await.unwrap();
        shop.db.until("pg_stat_get_tuples_updated('order_line'::regclass) >= 8").await;
        shop.db.scalar(hot).await
    };
    assert!(cold <= 1, "the first makes the line count, {cold} of 8 wrote the indexes");
}

#[tokio::test]
async fn keys_and_delivered_events_cost_an_allocation_nothing() {
    let shop = Shop::open(Seed { on_hand: 50, order_qty: 50, ..Seed::default() }).await;
    let tenant = shop.tenant.id;
    let destination = shop.db.destination(&shop.tenant, "http://127.0.0.1:9/", &["*"]).await.id;
    shop.db.keep_statistics(&["idempotency_key", "outbox"]).await;
    let mut app = shop.db.app().await;
    let alone = blocks(&mut app, &allocation(&shop)).await;
    shop.db
        .execute(format!(
            "insert into idempotency_key (tenant_id, key, request_method, request_path, request_hash, response_status,
               response_body, response_content_type)
             select '{tenant}', 'k' || n, 'POST', '/', sha256(''), 200, '', 'application/json' from generate_series(1, 20000) n;
             insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload,
               processed_at)
             select '{tenant}', '{destination}', gen_random_uuid(), 'sku', gen_random_uuid(), 1, 'x', '', now()
             from generate_series(1, 20000) n"
        ))
        .await;
    let beside = blocks(&mut app, &allocation(&shop)).await;
    assert!(beside <= alone + 25, "{beside} blocks beside 20,000 keys and delivered events, {alone} without");
}
