//! Every refusal of allocate, in the contract's order; each changes nothing.

use serde_json::{Value, json};
use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply, Seed, Shop, fresh_key, lines};
use uuid::Uuid;

use crate::send;

async fn ask(sandbox: &Endpoint, shop: &Shop, order: usize, body: &Value) -> Reply {
    send(sandbox, &shop.allocate(order).key(&fresh_key()).json(body)).await
}

/// The refusal changed nothing, is recorded, and has these members and no others.
async fn assert_refused(shop: &Shop, order: Uuid, body: &Value, status: u16, error: &str, members: Value) {
    let before = shop.db.state().await;
    let key = fresh_key();
    let event =
        Event::post(&format!("/orders/{order}/allocate")).bearer(&shop.tenant.token()).key(&key).json(body);
    let reply = send(&shop.db.endpoint(), &event).await;
    let problem = reply.json();
    assert_eq!((reply.status, problem["error"].as_str()), (status, Some(error)), "{problem}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(problem["status"], status);
    let mut names: Vec<&str> = problem.as_object().unwrap().keys().map(String::as_str).collect();
    for name in ["type", "title", "status", "detail", "error"] {
        assert!(names.contains(&name), "{name} is missing: {problem}");
        names.retain(|n| *n != name);
    }
    for (name, value) in members.as_object().unwrap() {
        assert_eq!(&problem[name], value, "{name} of {error}");
        names.retain(|n| n != name);
    }
    assert!(names.is_empty(), "members beyond the contract: {names:?}");
    assert_eq!(shop.db.state().await, before, "{error} changed something");
    assert_eq!(
        shop.db.count(&format!("idempotency_key where key = '{key}' and response_status = {status}")).await,
        1
    );
}

fn short(sku: Uuid, requested: i64, available: i64) -> Value {
    json!({"skuId": sku, "requested": requested, "available": available})
}

#[tokio::test]
async fn an_unknown_order_and_an_order_that_is_not_open_are_told_apart() {
    let shop = Shop::open(Seed { orders: 3, ..Seed::default() }).await;
    let [open, cancelled, shipped] = shop.tenant.orders[..].try_into().unwrap();
    let other = shop.db.seed(Seed::default()).await;
    shop.db
        .execute(format!("update wholesale_order set status = 'cancelled' where id = '{cancelled}'"))
        .await;
    shop.db.execute(format!("update wholesale_order set status = 'shipped' where id = '{shipped}'")).await;
    // The order is checked before the lines: nothing about the unknown SKU.
    let body = json!({"lines": [{"skuId": Uuid::new_v4(), "qty": 1}]});
    for stranger in [Uuid::new_v4(), other.orders[0]] {
        assert_refused(&shop, stranger, &body, 404, "order_not_found", json!({})).await;
        assert_refused(&shop, stranger, &shop.one(0, 1), 404, "order_not_found", json!({})).await;
    }
    for ended in [cancelled, shipped] {
        assert_refused(&shop, ended, &body, 409, "order_not_open", json!({})).await;
        assert_refused(&shop, ended, &shop.one(0, 1), 409, "order_not_open", json!({})).await;
    }
    assert_refused(
        &shop,
        open,
        &body,
        422,
        "unknown_sku",
        json!({"lines": [short(body["lines"][0]["skuId"].as_str().unwrap().parse().unwrap(), 1, 0)]}),
    )
    .await;
}

/// A shop with which a request breaks every rule of SKUs at once: order 0 wants 10 of each of its four SKUs.
/// SKU 0: 2 left to promise; SKU 1: 1 left; SKU 2: 3 open of 10; SKU 3: not on the order.
async fn shop_that_breaks_every_rule(credit_limit_minor: Option<i64>) -> Shop {
    let shop = Shop::open(Seed {
        skus: 4,
        on_hand: 100,
        order_qty: 10,
        unit_price_minor: 100,
        credit_limit_minor,
        ..Seed::default()
    })
    .await;
    let (tenant, order) = (shop.tenant.id, shop.tenant.orders[0]);
    let [first, second, third, fourth] = shop.tenant.skus[..].try_into().unwrap();
    shop.db
        .execute(format!(
            "begin;
             delete from order_line where order_id = '{order}' and sku_id = '{fourth}';
             insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor) values
               ('{tenant}', '{first}', -98, 'adjustment', 'test'), ('{tenant}', '{second}', -99, 'adjustment', 'test');
             update sku_position set on_hand = 2 where sku_id = '{first}';
             update sku_position set on_hand = 1 where sku_id = '{second}';
             update order_line set qty_shipped = 4 where order_id = '{order}' and sku_id = '{third}';
             commit"
        ))
        .await;
    let reply = ask(&shop.db.endpoint(), &shop, 0, &json!({"skuId": third, "qty": 3})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    shop
}

#[tokio::test]
async fn refusals_come_in_the_contracts_order_each_with_all_its_skus_in_the_order_first_sent() {
    // Held: 3 allocated + 4 shipped of 100 minor units = 700.
    let shop = shop_that_breaks_every_rule(Some(1_000)).await;
    let order = shop.tenant.orders[0];
    let [first, second, third, fourth] = shop.tenant.skus[..].try_into().unwrap();
    let [x, y] = [Uuid::new_v4(), Uuid::new_v4()];
    let other = shop.db.seed(Seed::default()).await;
    let foreign = other.skus[0];

    // Everything is wrong at once; then the first mistake is removed, and so on.
    let all =
        [(y, 2), (second, 5), (fourth, 2), (foreign, 1), (third, 4), (x, 1), (first, 9), (y, 3), (fourth, 1)];
    let expected = [short(y, 5, 0), short(foreign, 1, 0), short(x, 1, 0)];
    assert_refused(&shop, order, &lines(&all), 422, "unknown_sku", json!({"lines": expected})).await;

    let known = [(second, 5), (fourth, 2), (third, 4), (first, 9), (fourth, 1)];
    let expected = [short(fourth, 3, 0)];
    assert_refused(&shop, order, &lines(&known), 422, "sku_not_on_order", json!({"lines": expected})).await;

    let on_order = [(third, 2), (second, 5), (first, 11), (third, 2)];
    let expected = [short(third, 4, 3), short(first, 11, 10)];
    assert_refused(&shop, order, &lines(&on_order), 422, "exceeds_ordered", json!({"lines": expected})).await;

    let within_order = [(second, 5), (third, 3), (first, 9), (second, 1)];
    let members = json!({"limit": 1_000, "exposure": 700, "requested": 1_800});
    assert_refused(&shop, order, &lines(&within_order), 422, "credit_limit_exceeded", members).await;

    shop.db
        .execute(format!(
            "update customer set credit_limit_minor = null where id = '{}'",
            shop.tenant.customer
        ))
        .await;
    let expected = [short(second, 6, 1), short(first, 9, 2)];
    assert_refused(&shop, order, &lines(&within_order), 422, "insufficient_ats", json!({"lines": expected}))
        .await;

    let covered = [(second, 1), (third, 3), (first, 2)];
    assert_eq!(ask(&shop.db.endpoint(), &shop, 0, &lines(&covered)).await.status, 200);
    let expected = [short(first, 1, 0)];
    assert_refused(&shop, order, &lines(&[(first, 1)]), 422, "insufficient_ats", json!({"lines": expected}))
        .await;
    let expected = [short(third, 1, 0)];
    assert_refused(&shop, order, &lines(&[(third, 1)]), 422, "exceeds_ordered", json!({"lines": expected}))
        .await;
    assert_eq!(shop.db.count("position_audit").await, 0);
}
