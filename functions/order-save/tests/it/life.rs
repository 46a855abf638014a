//! An order from creation to its end.

use serde_json::{Value, json};
use testing::{Event, Reply, Seed, Shop, fresh_key};
use uuid::Uuid;

use crate::{patch, post, send, warm};

#[tokio::test]
async fn an_order_is_created_with_its_location_its_etag_and_a_number_of_its_own() {
    let shop = Shop::open(Seed { skus: 2, ..Seed::default() }).await;
    let sandbox = warm(&shop).await;
    let [a, b] = shop.tenant.skus[..].try_into().unwrap();
    let body = json!({"customerId": shop.tenant.customer, "customerPo": "PO \"9\" é", "shipWindowStart": "2027-01-01",
        "lines": [{"skuId": b, "qty": 3, "unitPriceMinor": 0}, {"skuId": a, "qty": 1_000_000, "unitPriceMinor": 10_000}]});
    let event = post(&shop, "/orders", &body);
    let created = send(&sandbox, &event).await;
    assert_eq!((created.status, created.header("etag")), (201, Some("\"1\"")), "{}", created.json());
    let order = created.json();
    let id = order["id"].as_str().unwrap();
    assert_eq!(created.header("location"), Some(format!("/orders/{id}").as_str()));
    assert_eq!(
        (&order["status"], &order["version"], &order["currency"]),
        (&json!("open"), &json!(1), &json!("USD"))
    );
    assert_eq!((&order["customerPo"], &order["notes"]), (&json!("PO \"9\" é"), &json!(null)));
    assert_eq!(order["lines"][0]["skuId"], json!(b));
    assert_eq!(
        (&order["lines"][0]["unitPriceMinor"], &order["lines"][1]["qty"]),
        (&json!(0), &json!(1_000_000))
    );
    assert_eq!((&order["createdBy"], &order["updatedByName"]), (&json!(shop.tenant.users[0]), &json!("Ann")));

    let replay = send(&sandbox, &event).await;
    assert_eq!(
        (replay.status, &replay.body, replay.header("location")),
        (201, &created.body, created.header("location"))
    );
    let second = send(&sandbox, &post(&shop, "/orders", &body)).await.json();
    assert_ne!(second["number"], order["number"]);
    assert_eq!(shop.db.count("wholesale_order").await, 2 + 2);
    let payload: String = shop
        .db
        .scalar("select payload from outbox where event_type = 'order.created' order by id limit 1")
        .await;
    let event: Value = serde_json::from_str(&payload).unwrap();
    assert_eq!((&event["aggregate"]["id"], &event["aggregate"]["sequence"]), (&json!(id), &json!(1)));
    assert_eq!(event["data"]["version"], 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn what_cannot_be_ordered_is_refused_and_leaves_nothing() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    let other = shop.db.seed(Seed::default()).await;
    let before = shop.db.state().await;
    let sku = shop.tenant.skus[0];
    let order = |customer: Uuid, sku: Uuid| json!({"customerId": customer, "lines": [{"skuId": sku, "qty": 2, "unitPriceMinor": 1}]});
    for (body, error) in [
        (order(Uuid::new_v4(), sku), "unknown_customer"),
        (order(other.customer, sku), "unknown_customer"),
        (order(shop.tenant.customer, Uuid::new_v4()), "unknown_sku"),
        (order(shop.tenant.customer, other.skus[0]), "unknown_sku"),
    ] {
        let reply = send(&sandbox, &post(&shop, "/orders", &body)).await;
        assert_eq!((reply.status, reply.error().as_deref()), (422, Some(error)));
    }
    for body in [
        json!({"customerId": shop.tenant.customer, "lines": []}),
        json!({"customerId": shop.tenant.customer}),
        json!({"customerId": shop.tenant.customer, "lines": [{"skuId": sku, "qty": 1}]}),
        json!({"customerId": "x", "lines": [{"skuId": sku, "qty": 1, "unitPriceMinor": 1}]}),
        json!({"customerId": shop.tenant.customer, "baseVersion": 1, "lines": [{"skuId": sku, "qty": 1, "unitPriceMinor": 1}]}),
    ] {
        let reply = send(&sandbox, &post(&shop, "/orders", &body)).await;
        assert_eq!((reply.status, reply.error().as_deref()), (400, Some("invalid_body")), "{body}");
    }
    assert_eq!(shop.db.state().await, before);
    assert_eq!(shop.db.count("idempotency_key").await, 4, "the business refusals");
}

#[tokio::test]
async fn a_cancelled_order_gives_back_all_it_holds_and_stays_ended() {
    let shop = Shop::open(Seed { skus: 2, on_hand: 10, ..Seed::default() }).await;
    let sandbox = warm(&shop).await;
    let id = shop.tenant.orders[0];
    for sku in 0..2 {
        let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(sku, 4));
        assert_eq!(Reply::from(allocate::handle(&shop.db.endpoint(), event.request()).await).status, 200);
    }
    let cancel = post(&shop, &format!("/orders/{id}/cancel"), &json!({}));
    let cancelled = send(&sandbox, &cancel).await;
    assert_eq!((cancelled.status, cancelled.header("etag")), (200, Some("\"2\"")), "{}", cancelled.json());
    assert_eq!(
        (&cancelled.json()["status"], &cancelled.json()["lines"][0]["qtyAllocated"]),
        (&json!("cancelled"), &json!(0))
    );
    assert_eq!(shop.db.count("sku_position where allocated <> 0").await, 0);
    assert_eq!(shop.db.count("allocation_ledger where entry_type = 'cancel' and qty = -4").await, 2);
    let types: String = shop
        .db
        .scalar("select string_agg(event_type, ' ' order by sequence) from outbox where aggregate_type = 'wholesale_order'")
        .await;
    assert_eq!(
        types,
        "order.line_allocated order.line_allocated order.line_released order.line_released order.cancelled"
    );
    shop.db.assert_consistent().await;

    assert_eq!(send(&sandbox, &cancel).await.body, cancelled.body, "the same request again");
    let twice = send(&sandbox, &post(&shop, &format!("/orders/{id}/cancel"), &json!({}))).await;
    assert_eq!((twice.status, twice.error().as_deref()), (409, Some("order_not_open")));
    let save = send(&sandbox, &patch(&shop, 0, &json!({"baseVersion": 2, "notes": "x"}))).await;
    assert_eq!((save.status, save.error().as_deref()), (409, Some("order_not_open")));
    let bad = send(&sandbox, &post(&shop, &format!("/orders/{id}/cancel"), &json!({"reason": "x"}))).await;
    assert_eq!((bad.status, bad.json()["errors"][0]["path"].as_str()), (400, Some("/reason")));
}

#[tokio::test]
async fn other_tenants_readers_and_methods_are_kept_out() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    let other = shop.db.seed(Seed::default()).await;
    let path = format!("/orders/{}", shop.tenant.orders[0]);
    let save = json!({"baseVersion": 1, "notes": "x"});
    for (event, status, error) in [
        (Event::new("PATCH", &path).bearer(&other.token()).key("a").json(&save), 404, "order_not_found"),
        (
            Event::post(&format!("{path}/cancel")).bearer(&other.token()).key("b").json(&json!({})),
            404,
            "order_not_found",
        ),
        (
            Event::new("PATCH", "/orders/x").bearer(&shop.tenant.token()).key("c").json(&save),
            404,
            "order_not_found",
        ),
        (Event::new("PATCH", &path).key("d").json(&save), 401, "unauthenticated"),
        (
            Event::new("PATCH", &path)
                .bearer(&testing::token(shop.tenant.id, shop.tenant.users[0], "orders:read"))
                .key("e")
                .json(&save),
            403,
            "forbidden",
        ),
        (Event::new("PATCH", &path).bearer(&shop.tenant.token()).json(&save), 400, "idempotency_key_invalid"),
        (Event::new("DELETE", &path).bearer(&shop.tenant.token()), 405, "method_not_allowed"),
    ] {
        let reply = send(&sandbox, &event).await;
        assert_eq!((reply.status, reply.error().as_deref()), (status, Some(error)), "{event:?}");
    }
    let changed = shop.db.count("wholesale_order where version > 1 or status <> 'open'").await;
    assert_eq!(changed, 0);
}
