//! The size run: lines sent replace lines stored, omitted ones are removed, never below what is promised or shipped.

use serde_json::json;
use testing::{Seed, Shop};
use uuid::Uuid;

use crate::{patch, send, version, warm};

async fn allocated(shop: &Shop, qty: i64) {
    let event = shop.allocate(0).key(&testing::fresh_key()).json(&shop.one(0, qty));
    let reply = testing::Reply::from(allocate::handle(&shop.db.endpoint(), event.request()).await);
    assert_eq!(reply.status, 200, "{}", reply.json());
}

#[tokio::test]
async fn a_size_run_is_replaced_as_a_whole() {
    let shop = Shop::open(Seed { skus: 3, ..Seed::default() }).await;
    let sandbox = warm(&shop).await;
    let [a, b, c] = shop.tenant.skus[..].try_into().unwrap();
    // Without a price a line keeps its price; an omitted SKU is removed; lines have the order sent.
    let run = json!({"baseVersion": 1, "lines": [{"skuId": c, "qty": 9}, {"skuId": a, "qty": 2, "unitPriceMinor": 700}]});
    let saved = send(&sandbox, &patch(&shop, 0, &run)).await.json();
    let lines: Vec<_> = saved["order"]["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| (l["skuId"].clone(), l["qty"].clone(), l["unitPriceMinor"].clone()))
        .collect();
    assert_eq!(lines, [(json!(c), json!(9), json!(1000)), (json!(a), json!(2), json!(700))]);
    // A SKU that is new on the order needs a price: 400, and the key stays unused.
    let unpriced = patch(
        &shop,
        0,
        &json!({"baseVersion": 2, "lines": [{"skuId": a, "qty": 2}, {"skuId": b, "qty": 1}]}),
    );
    let reply = send(&sandbox, &unpriced).await;
    assert_eq!((reply.status, reply.error().as_deref()), (400, Some("invalid_body")));
    assert_eq!(reply.json()["errors"][0]["path"], "/lines/1/unitPriceMinor");
    assert_eq!(version(&shop, 0).await, 2);
    assert_eq!(shop.db.count("idempotency_key").await, 1);
    let priced = json!({"baseVersion": 2, "lines": [{"skuId": a, "qty": 2}, {"skuId": b, "qty": 1, "unitPriceMinor": 5}]});
    assert_eq!(send(&sandbox, &patch(&shop, 0, &priced)).await.status, 200);
}

#[tokio::test]
async fn a_line_never_falls_below_what_is_allocated_or_shipped() {
    let shop = Shop::open(Seed { skus: 2, on_hand: 10, ..Seed::default() }).await;
    let sandbox = warm(&shop).await;
    let [a, b] = shop.tenant.skus[..].try_into().unwrap();
    allocated(&shop, 4).await;
    shop.db
        .execute(format!(
            "update order_line set qty_shipped = 2 where order_id = '{}' and sku_id = '{b}'",
            shop.tenant.orders[0]
        ))
        .await;
    let before = shop.db.state().await;
    for (lines, short) in [
        (
            json!([{"skuId": a, "qty": 3}, {"skuId": b, "qty": 2}]),
            json!([{"skuId": a, "requested": 3, "available": 4}]),
        ),
        (json!([{"skuId": a, "qty": 4}]), json!([{"skuId": b, "requested": 0, "available": 2}])),
        (
            json!([{"skuId": b, "qty": 1}]),
            json!([{"skuId": b, "requested": 1, "available": 2}, {"skuId": a, "requested": 0, "available": 4}]),
        ),
    ] {
        let reply =
            send(&sandbox, &patch(&shop, 0, &json!({"baseVersion": 1, "notes": "n", "lines": lines}))).await;
        assert_eq!((reply.status, reply.error().as_deref()), (422, Some("below_allocated")));
        assert_eq!(reply.json()["lines"], short);
    }
    assert_eq!(shop.db.state().await, before, "a refusal changes nothing but the recorded answer");
    let exact = json!({"baseVersion": 1, "lines": [{"skuId": a, "qty": 4}, {"skuId": b, "qty": 2}]});
    assert_eq!(send(&sandbox, &patch(&shop, 0, &exact)).await.status, 200);
}

#[tokio::test]
async fn an_unknown_sku_is_told_before_anything_below() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    allocated(&shop, 4).await;
    let unknown = Uuid::new_v4();
    let run = json!({"baseVersion": 1, "lines": [{"skuId": unknown, "qty": 3, "unitPriceMinor": 1}]});
    let reply = send(&sandbox, &patch(&shop, 0, &run)).await;
    assert_eq!((reply.status, reply.error().as_deref()), (422, Some("unknown_sku")));
    assert_eq!(reply.json()["lines"], json!([{"skuId": unknown, "requested": 3, "available": 0}]));
}

#[tokio::test]
async fn what_is_no_order_is_400_with_every_mistake_and_its_place() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    let sku = shop.tenant.skus[0];
    for (body, paths) in [
        (
            json!({"baseVersion": "1", "customerPo": "x".repeat(65), "notes": 1}),
            vec!["/baseVersion", "/customerPo", "/notes"],
        ),
        (json!({"baseVersion": 1, "notes": "x".repeat(2001)}), vec!["/notes"]),
        (json!({"baseVersion": 1, "shipWindowStart": "2026-02-29"}), vec!["/shipWindowStart"]),
        (
            json!({"baseVersion": 1, "shipWindowStart": "2027-02-02", "shipWindowEnd": "2027-02-01"}),
            vec!["/shipWindowEnd"],
        ),
        (json!({"baseVersion": 1, "status": "shipped"}), vec!["/status"]),
        (
            json!({"baseVersion": 1, "lines": [{"skuId": sku, "qty": 1}, {"skuId": sku, "qty": 2}]}),
            vec!["/lines/1/skuId"],
        ),
        (
            json!({"baseVersion": 1, "lines": [{"skuId": sku, "qty": 0, "unitPriceMinor": -1, "x": 1}]}),
            vec!["/lines/0/qty", "/lines/0/unitPriceMinor", "/lines/0/x"],
        ),
        (
            json!({"baseVersion": 1, "lines": [{"skuId": sku, "qty": 1_000_000, "unitPriceMinor": 10_000_000_000_i64}]}),
            vec!["/lines"],
        ),
        (json!({"baseVersion": null}), vec!["/baseVersion"]),
        (json!([]), vec![""]),
    ] {
        let reply = send(&sandbox, &patch(&shop, 0, &body)).await;
        assert_eq!((reply.status, reply.error().as_deref()), (400, Some("invalid_body")), "{body}");
        let problem = reply.json();
        let told: Vec<&str> =
            problem["errors"].as_array().unwrap().iter().map(|e| e["path"].as_str().unwrap()).collect();
        assert_eq!(told, paths, "{body}");
    }
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    // A date that contradicts the stored one.
    assert_eq!(
        send(&sandbox, &patch(&shop, 0, &json!({"baseVersion": 1, "shipWindowEnd": "2027-02-01"})))
            .await
            .status,
        200
    );
    let late =
        send(&sandbox, &patch(&shop, 0, &json!({"baseVersion": 2, "shipWindowStart": "2027-02-02"}))).await;
    assert_eq!((late.status, late.json()["errors"][0]["path"].as_str()), (400, Some("/shipWindowStart")));
    assert_eq!((version(&shop, 0).await, shop.db.count("idempotency_key").await), (2, 1));
}
