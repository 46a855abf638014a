//! Ledgers are append-only, positions can be rebuilt from them, and the schema refuses impossible quantities.

use sqlx::{AssertSqlSafe, Executor};
use testing::{Seed, Shop};

async fn refused(shop: &Shop, sql: &str) -> sqlx::Error {
    let mut owner = shop.db.owner().await;
    owner.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await.expect_err(sql)
}

fn constraint(error: &sqlx::Error) -> Option<&str> {
    error.as_database_error().and_then(|error| error.constraint())
}

async fn shop() -> Shop {
    let shop = Shop::open(Seed { skus: 2, on_hand: 10, ..Seed::default() }).await;
    let (tenant, order, sku) = (shop.tenant.id, shop.tenant.orders[0], shop.tenant.skus[0]);
    shop.db
        .execute(format!(
            "begin;
             insert into allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
               values ('{tenant}', '{order}', '{sku}', 4, 'allocate', 'test');
             update order_line set qty_allocated = 4 where order_id = '{order}' and sku_id = '{sku}';
             update sku_position set allocated = 4 where sku_id = '{sku}';
             commit"
        ))
        .await;
    shop.db.assert_consistent().await;
    shop
}

#[tokio::test]
async fn not_even_the_owner_can_rewrite_a_ledger() {
    let shop = shop().await;
    let before = shop.db.state().await;
    for table in ["allocation_ledger", "stock_ledger"] {
        for sql in [
            format!("update {table} set actor = 'somebody else'"),
            format!("update {table} set actor = actor where false"),
            format!("delete from {table}"),
            format!("delete from {table} where false"),
            format!("truncate {table}"),
            format!("truncate {table} cascade"),
        ] {
            let error = refused(&shop, &sql).await;
            let code = error.as_database_error().unwrap().code();
            assert_eq!(code.as_deref(), Some("23001"), "{sql}: {error}");
        }
    }
    for referenced in ["sku_position", "wholesale_order", "sku", "tenant"] {
        refused(&shop, &format!("truncate {referenced} cascade")).await;
        refused(&shop, &format!("delete from {referenced}")).await;
    }
    assert_eq!(shop.db.state().await, before);
}

#[tokio::test]
async fn oversell_cannot_be_represented() {
    let shop = shop().await;
    for sql in [
        "update sku_position set allocated = 11",
        "update sku_position set on_hand = 3 where allocated = 4",
        "update sku_position set on_hand = -1 where allocated = 0",
    ] {
        let error = refused(&shop, sql).await;
        assert_eq!(constraint(&error), Some("sku_position_no_oversell"), "{sql}");
    }
    refused(&shop, "update sku_position set allocated = -1").await;
    refused(&shop, "update sku_position set on_order = -1, on_hand = on_hand + 1").await;
    shop.db.execute("update sku_position set allocated = 10 where allocated = 4; update sku_position set allocated = 4 where allocated = 10").await;
}

#[tokio::test]
async fn an_order_line_never_has_more_allocated_and_shipped_than_ordered() {
    let shop = shop().await;
    for sql in [
        "update order_line set qty_allocated = 7",
        "update order_line set qty_allocated = -1",
        "update order_line set qty_shipped = 3 where qty_allocated = 4",
        "update order_line set qty_shipped = -1",
        "update order_line set qty = 3 where qty_allocated = 4",
        "update order_line set qty = 0",
        "update order_line set unit_price_minor = -1",
    ] {
        refused(&shop, sql).await;
    }
}

#[tokio::test]
async fn rows_cannot_point_into_another_tenant() {
    let shop = shop().await;
    let other = shop.db.seed(Seed::default()).await;
    let (tenant, sku, order) = (other.id, shop.tenant.skus[0], shop.tenant.orders[0]);
    for sql in [
        format!(
            "insert into order_line (tenant_id, order_id, sku_id, qty, unit_price_minor) values ('{tenant}', '{}', '{sku}', 1, 1)",
            other.orders[0]
        ),
        format!(
            "insert into order_line (tenant_id, order_id, sku_id, qty, unit_price_minor) values ('{tenant}', '{order}', '{}', 1, 1)",
            other.skus[0]
        ),
        format!(
            "insert into allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor) values ('{tenant}', '{order}', '{}', 1, 'allocate', 'x')",
            other.skus[0]
        ),
        format!(
            "insert into invoice (tenant_id, customer_id, total_minor, currency) values ('{tenant}', '{}', 1, 'USD')",
            shop.tenant.customer
        ),
        format!("update wholesale_order set customer_id = '{}' where id = '{order}'", other.customer),
    ] {
        let error = refused(&shop, &sql).await;
        assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("23503"), "{sql}");
    }
}

#[tokio::test]
async fn the_audit_names_every_position_that_differs_and_a_rebuild_corrects_it() {
    let shop = shop().await;
    let (tenant, [first, second]) = (shop.tenant.id, shop.tenant.skus[..].try_into().unwrap());
    shop.db
        .execute(format!(
            "update sku_position set allocated = 2 where sku_id = '{first}';
             update sku_position set on_hand = 17, on_order = 3 where sku_id = '{second}'"
        ))
        .await;
    assert_eq!(shop.db.count("position_audit").await, 2);
    let reported = format!(
        "position_audit where (sku_id = '{first}' and allocated = 2 and ledger_allocated = 4)
           or (sku_id = '{second}' and on_hand = 17 and ledger_on_hand = 10 and on_order = 3 and ledger_on_order = 0)"
    );
    assert_eq!(shop.db.count(&reported).await, 2);
    let other = shop.db.seed(Seed::default()).await;
    shop.db.execute(format!("update sku_position set on_hand = 99 where tenant_id = '{}'", other.id)).await;
    let rebuilt = format!("(select holdfast.rebuild_positions('{tenant}') as n) r where n = 2");
    assert_eq!(shop.db.count(&rebuilt).await, 1);
    assert_eq!(shop.db.count(&format!("position_audit where tenant_id = '{tenant}'")).await, 0);
    assert_eq!(shop.db.count("position_audit").await, 1, "the rebuild changes another tenant");
    shop.db.execute(format!("select holdfast.rebuild_positions('{}')", other.id)).await;
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_line_that_differs_from_the_ledger_is_reported() {
    let shop = shop().await;
    let order = shop.tenant.orders[0];
    shop.db
        .execute(format!(
            "update order_line set qty_allocated = 5 where order_id = '{order}' and qty_allocated = 4"
        ))
        .await;
    assert_eq!(shop.db.count("order_line_audit where qty_allocated = 5 and ledger_allocated = 4").await, 1);
    shop.db.execute(format!("delete from order_line where order_id = '{order}' and qty_allocated = 5")).await;
    assert_eq!(shop.db.count("order_line_audit where qty_allocated = 0 and ledger_allocated = 4").await, 1);
}
