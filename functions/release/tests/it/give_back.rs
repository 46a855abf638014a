//! Release gives back what an order holds, never more, and answers with what it did.

use serde_json::{Value, json};
use testing::{Event, Reply, Seed, Shop, fresh_key, issue_api_key, lines};
use uuid::Uuid;

use crate::send;

fn seed() -> Seed {
    Seed { skus: 3, on_hand: 50, orders: 2, order_qty: 20, ..Seed::default() }
}

/// A shop whose first order holds ten of each SKU.
async fn holding() -> Shop {
    let shop = Shop::open(seed()).await;
    let all: Vec<_> = shop.tenant.skus.iter().map(|sku| (*sku, 10)).collect();
    let reply = send(&shop.db.endpoint(), &shop.allocate(0).key("held").json(&lines(&all))).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    shop
}

async fn release(shop: &Shop, order: Uuid, body: &Value) -> Reply {
    let event = Event::post(&format!("/orders/{order}/release")).bearer(&shop.tenant.token());
    send(&shop.db.endpoint(), &event.key(&fresh_key()).json(body)).await
}

async fn assert_refused(
    shop: &Shop,
    order: Uuid,
    body: &Value,
    status: u16,
    error: &str,
    lines: Option<Value>,
) {
    let (before, keys) = (shop.db.state().await, shop.db.count("idempotency_key").await);
    let reply = release(shop, order, body).await;
    let problem = reply.json();
    assert_eq!((reply.status, problem["error"].as_str()), (status, Some(error)), "{problem}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(problem.get("lines"), lines.as_ref(), "{problem}");
    assert_eq!(shop.db.state().await, before);
    assert_eq!(shop.db.count("idempotency_key").await, keys + 1);
}

#[tokio::test]
async fn what_was_promised_can_be_given_back_in_one_shape_for_one_line_and_several() {
    let shop = holding().await;
    let (order, [a, b, c]) = (shop.tenant.orders[0], shop.tenant.skus[..].try_into().unwrap());
    let reply = release(&shop, order, &json!({"skuId": b, "qty": 4})).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    assert_eq!(
        reply.json(),
        json!({"ok": true, "orderId": order, "lines": [{"skuId": b, "qty": 4, "atsAfter": 44}]})
    );
    let reply = release(&shop, order, &lines(&[(c, 1), (a, 2), (c, 9), (a, 3)])).await;
    let line = |sku: Uuid, qty: i64, ats: i64| json!({"skuId": sku, "qty": qty, "atsAfter": ats});
    assert_eq!(
        reply.json()["lines"],
        json!([line(c, 1, 50), line(a, 2, 45), line(c, 9, 50), line(a, 3, 45)])
    );
    let held = format!(
        "order_line where order_id = '{order}' and (sku_id, qty_allocated) in (('{a}', 5), ('{b}', 6), ('{c}', 0))"
    );
    assert_eq!(shop.db.count(&held).await, 3);
    let entries = format!(
        "allocation_ledger where entry_type = 'release' and order_id = '{order}'
           and (sku_id, qty) in (('{a}', -5), ('{b}', -4), ('{c}', -10))"
    );
    assert_eq!(shop.db.count(&entries).await, 3);
    assert_eq!(shop.db.count("allocation_ledger").await, 6);
    assert_eq!(shop.db.count("wholesale_order where version <> 1").await, 0);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_release_writes_its_events_and_names_its_actor() {
    let shop = holding().await;
    let subscriber = shop.db.destination(&shop.tenant, "https://all.test", &["order.line_released"]).await.id;
    let (order, sku) = (shop.tenant.orders[0], shop.tenant.skus[1]);
    let partner = issue_api_key(&shop.db, shop.tenant.id, shop.tenant.users[0], &["orders:write"]).await;
    let event = Event::post(&format!("/orders/{order}/release"))
        .bearer(&partner)
        .key("k")
        .json(&lines(&[(sku, 1), (sku, 2)]));
    assert_eq!(send(&shop.db.endpoint(), &event).await.status, 200);
    let data = format!(r#"payload::jsonb -> 'data' = '{{"skuId":"{sku}","qty":3,"atsAfter":43}}'::jsonb"#);
    let released = format!(
        "outbox where event_type = 'order.line_released' and aggregate_type = 'wholesale_order' and aggregate_id = '{order}'
           and sequence = 4 and destination_id = '{subscriber}' and processed_at is null and {data}"
    );
    assert_eq!(shop.db.count(&released).await, 1);
    let changed = format!(
        "outbox where event_type = 'sku.ats_changed' and aggregate_type = 'sku' and aggregate_id = '{sku}' and sequence = 2
           and destination_id is null and processed_at is not null and payload::jsonb -> 'data' = '{{\"atsAfter\":43}}'::jsonb"
    );
    assert_eq!(shop.db.count(&changed).await, 1);
    assert_eq!(shop.db.count("outbox").await, 8);
    let named = "allocation_ledger l, api_key k where l.entry_type = 'release' and position(k.id::text in l.actor) > 0";
    assert_eq!(shop.db.count(named).await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn what_was_given_back_can_be_promised_to_another_order() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let ask =
        async |event: Event| send(&sandbox, &event.key(&fresh_key()).json(&shop.one(0, 6))).await.status;
    assert_eq!(ask(shop.allocate(0)).await, 200);
    assert_eq!(ask(shop.allocate(1)).await, 422);
    assert_eq!(ask(shop.release(0)).await, 200);
    assert_eq!(ask(shop.allocate(1)).await, 200);
    assert_eq!(ask(shop.release(0)).await, 422);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn refusals_are_told_apart_in_order_and_change_nothing() {
    let shop = holding().await;
    let [order, empty] = shop.tenant.orders[..].try_into().unwrap();
    let [a, b, c] = shop.tenant.skus[..].try_into().unwrap();
    let stranger = Uuid::new_v4();
    let other = shop.db.seed(seed()).await;
    let short = |sku: Uuid, requested: i64, available: i64| json!({"skuId": sku, "requested": requested, "available": available});
    for unknown in [stranger, other.orders[0]] {
        assert_refused(&shop, unknown, &lines(&[(stranger, 1)]), 404, "order_not_found", None).await;
    }
    shop.db.execute(format!("delete from order_line where order_id = '{empty}' and sku_id = '{c}'")).await;
    let all = [(b, 1), (stranger, 1), (c, 2), (a, 11), (other.skus[0], 3), (stranger, 1)];
    let unknown = json!([short(stranger, 2, 0), short(other.skus[0], 3, 0)]);
    assert_refused(&shop, empty, &lines(&all), 422, "unknown_sku", Some(unknown)).await;
    let known = [(b, 1), (c, 2), (a, 11), (c, 1)];
    assert_refused(&shop, empty, &lines(&known), 422, "sku_not_on_order", Some(json!([short(c, 3, 0)])))
        .await;
    let beyond = [(c, 10), (b, 6), (a, 11), (b, 5)];
    let exceeding = json!([short(b, 11, 10), short(a, 11, 10)]);
    assert_refused(&shop, order, &lines(&beyond), 422, "exceeds_allocated", Some(exceeding)).await;
    assert_refused(&shop, empty, &lines(&[(a, 1)]), 422, "exceeds_allocated", Some(json!([short(a, 1, 0)])))
        .await;
    for status in ["cancelled", "shipped"] {
        shop.db.execute(format!("update wholesale_order set status = '{status}' where id = '{order}'")).await;
        assert_refused(&shop, order, &lines(&all), 409, "order_not_open", None).await;
    }
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn shipped_units_cannot_be_given_back_and_invoiced_ones_can() {
    let shop = holding().await;
    let (order, sku) = (shop.tenant.orders[0], shop.tenant.skus[0]);
    shop.db
        .execute(format!(
            "update order_line set qty_shipped = 5, qty_invoiced = 10 where order_id = '{order}'"
        ))
        .await;
    let problem = release(&shop, order, &shop.one(0, 11)).await.json();
    assert_eq!(problem["lines"], json!([{"skuId": sku, "requested": 11, "available": 10}]));
    assert_eq!(release(&shop, order, &shop.one(0, 10)).await.json()["lines"][0]["atsAfter"], 50);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_release_lowers_exposure_and_asks_for_no_credit() {
    let shop = Shop::open(Seed {
        on_hand: 50,
        order_qty: 20,
        unit_price_minor: 10,
        credit_limit_minor: Some(100),
        ..Seed::default()
    })
    .await;
    let sandbox = shop.db.endpoint();
    let ask = async |event: Event, qty: i64| {
        send(&sandbox, &event.key(&fresh_key()).json(&shop.one(0, qty))).await.status
    };
    assert_eq!(ask(shop.allocate(0), 10).await, 200);
    assert_eq!(ask(shop.allocate(1), 1).await, 422);
    shop.db.execute("update customer set credit_limit_minor = 0").await;
    assert_eq!(ask(shop.release(0), 4).await, 200);
    shop.db.execute("update customer set credit_limit_minor = 100").await;
    assert_eq!(ask(shop.allocate(1), 4).await, 200);
    assert_eq!(ask(shop.allocate(1), 1).await, 422);
}

#[tokio::test]
async fn two_releases_at_once_give_back_what_is_held_once() {
    let shop = Shop::open(Seed { skus: 40, ..Seed::default() }).await;
    let (one, two) = (shop.db.endpoint(), shop.db.endpoint());
    let all: Vec<_> = shop.tenant.skus.iter().map(|sku| (*sku, 6)).collect();
    assert_eq!(send(&one, &shop.allocate(0).key("k").json(&lines(&all))).await.status, 200);
    for sku in 0..40 {
        let event = || shop.release(0).key(&fresh_key()).json(&shop.one(sku, 6));
        let (a, b) = (event(), event());
        let (a, b) = tokio::join!(send(&one, &a), send(&two, &b));
        let mut statuses = [a.status, b.status];
        statuses.sort();
        assert_eq!(statuses, [200, 422]);
    }
    assert_eq!(shop.db.count("sku_position where allocated <> 0").await, 0);
    shop.db.assert_consistent().await;
}
