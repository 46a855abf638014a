//! Answers of successful allocations, and the limits of quantities and lines.

use serde_json::{Value, json};
use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply, Seed, Shop, fresh_key, lines};
use uuid::Uuid;

use crate::send;

async fn ask(sandbox: &Endpoint, shop: &Shop, order: usize, body: &Value) -> Reply {
    send(sandbox, &shop.allocate(order).key(&fresh_key()).json(body)).await
}

fn short(sku: Uuid, requested: i64, available: i64) -> Value {
    json!({"skuId": sku, "requested": requested, "available": available})
}

#[tokio::test]
async fn one_line_and_several_lines_are_answered_in_the_same_shape() {
    let shop = Shop::open(Seed { skus: 3, on_hand: 50, orders: 2, order_qty: 20, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let (order, [a, b, c]) = (shop.tenant.orders[0], shop.tenant.skus[..].try_into().unwrap());
    let reply = ask(&sandbox, &shop, 0, &json!({"skuId": a, "qty": 4})).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(
        reply.json(),
        json!({"ok": true, "orderId": order, "lines": [{"skuId": a, "qty": 4, "atsAfter": 46}]})
    );
    // Not in the order of ids, and one SKU on three lines: the answer has the lines as sent, each with the ATS after the whole
    // request.
    let reply = ask(&sandbox, &shop, 0, &lines(&[(c, 2), (a, 1), (b, 3), (a, 5), (a, 1)])).await;
    let line = |sku: Uuid, qty: i64, ats: i64| json!({"skuId": sku, "qty": qty, "atsAfter": ats});
    assert_eq!(
        reply.json()["lines"],
        json!([line(c, 2, 48), line(a, 1, 39), line(b, 3, 47), line(a, 5, 39), line(a, 1, 39)])
    );
    let held = format!(
        "order_line where order_id = '{order}' and (sku_id, qty_allocated) in (('{a}', 11), ('{b}', 3), ('{c}', 2))"
    );
    assert_eq!(shop.db.count(&held).await, 3);
    assert_eq!(shop.db.count("allocation_ledger").await, 4, "one line per distinct SKU and request");
    assert_eq!(
        shop.db.count("wholesale_order where version <> 1").await,
        0,
        "allocate does not touch the version"
    );
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn ids_are_taken_in_either_case_and_answered_in_lower_case() {
    let shop = Shop::open(Seed { on_hand: 50, ..Seed::default() }).await;
    let (sku, order) = (shop.tenant.skus[0].to_string(), shop.tenant.orders[0].to_string());
    let body = json!({"lines": [{"skuId": sku.to_uppercase(), "qty": 1}, {"skuId": sku, "qty": 2}]});
    let event =
        Event::post(&format!("/orders/{}/allocate", order.to_uppercase())).bearer(&shop.tenant.token());
    let reply = send(&shop.db.endpoint(), &event.key("k").json(&body)).await;
    let line = |qty: i64| json!({"skuId": sku, "qty": qty, "atsAfter": 47});
    assert_eq!(reply.json(), json!({"ok": true, "orderId": order, "lines": [line(1), line(2)]}));
    assert_eq!(shop.db.count("allocation_ledger where qty = 3").await, 1, "upper and lower case are one SKU");
}

#[tokio::test]
async fn five_hundred_lines_go_through_and_one_more_is_refused() {
    let shop = Shop::open(Seed { skus: 500, on_hand: 5, order_qty: 5, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let mut all: Vec<_> = shop.tenant.skus.iter().rev().map(|sku| (*sku, 1)).collect();
    let reply = ask(&sandbox, &shop, 0, &lines(&all)).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["lines"].as_array().unwrap().len(), 500);
    all.push(all[0]);
    assert_eq!(ask(&sandbox, &shop, 0, &lines(&all)).await.error().as_deref(), Some("invalid_body"));
    assert_eq!(shop.db.count("allocation_ledger").await, 500);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_quantity_goes_from_one_to_a_million_summed_or_not() {
    let shop = Shop::open(Seed { on_hand: 5_000_000, order_qty: 1_000_000, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let sku = shop.tenant.skus[0];
    // Each line is in range. Their sum exceeds any order: a refusal by the order's rules, not a bad body.
    let reply = ask(&sandbox, &shop, 0, &lines(&[(sku, 1_000_000), (sku, 1_000_000)])).await;
    assert_eq!(reply.json()["lines"], json!([short(sku, 2_000_000, 1_000_000)]));
    let reply = ask(&sandbox, &shop, 0, &lines(&[(sku, 999_999), (sku, 1)])).await;
    assert_eq!(reply.json()["lines"][1], json!({"skuId": sku, "qty": 1, "atsAfter": 4_000_000}));
}

#[tokio::test]
async fn what_is_on_order_can_be_promised_and_what_is_not_there_cannot() {
    let shop = Shop::open(Seed { on_hand: 2, order_qty: 100, ..Seed::default() }).await;
    let (tenant, sku) = (shop.tenant.id, shop.tenant.skus[0]);
    shop.db
        .execute(format!(
            "insert into stock_ledger (tenant_id, sku_id, on_order_delta, entry_type, actor)
               values ('{tenant}', '{sku}', 30, 'asn', 'test');
             update sku_position set on_order = 30 where sku_id = '{sku}'"
        ))
        .await;
    let sandbox = shop.db.endpoint();
    assert_eq!(ask(&sandbox, &shop, 0, &shop.one(0, 33)).await.json()["lines"], json!([short(sku, 33, 32)]));
    assert_eq!(ask(&sandbox, &shop, 0, &shop.one(0, 31)).await.json()["lines"][0]["atsAfter"], 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn ats_below_zero_is_shown_as_it_is_and_promises_nothing() {
    // A shipment was reported before its receipt: on_hand is negative, and on_order covers it.
    let shop = Shop::open(Seed { on_hand: 0, order_qty: 100, ..Seed::default() }).await;
    let (tenant, sku) = (shop.tenant.id, shop.tenant.skus[0]);
    shop.db
        .execute(format!(
            "insert into stock_ledger (tenant_id, sku_id, on_hand_delta, on_order_delta, entry_type, actor)
               values ('{tenant}', '{sku}', -5, 12, 'asn', 'test');
             update sku_position set on_hand = -5, on_order = 12 where sku_id = '{sku}'"
        ))
        .await;
    let sandbox = shop.db.endpoint();
    assert_eq!(ask(&sandbox, &shop, 0, &shop.one(0, 8)).await.json()["lines"], json!([short(sku, 8, 7)]));
    assert_eq!(ask(&sandbox, &shop, 0, &shop.one(0, 7)).await.json()["lines"][0]["atsAfter"], 0);
    shop.db.assert_consistent().await;
}
