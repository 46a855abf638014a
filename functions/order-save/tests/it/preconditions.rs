//! The version that a save is based on: `baseVersion`, `If-Match`, both or neither.

use serde_json::{Value, json};
use testing::{Seed, Shop, fresh_key};

use crate::{patch, send, version, warm};

#[tokio::test]
async fn without_a_version_a_save_is_428_and_with_two_different_ones_400_and_neither_takes_the_key() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    let key = fresh_key();
    let path = format!("/orders/{}", shop.tenant.orders[0]);
    let event =
        |body: Value| testing::Event::new("PATCH", &path).bearer(&shop.tenant.token()).key(&key).json(&body);
    let neither = send(&sandbox, &event(json!({"notes": "x"}))).await;
    assert_eq!((neither.status, neither.error().as_deref()), (428, Some("version_required")));
    let differ =
        send(&sandbox, &event(json!({"baseVersion": 1, "notes": "x"})).header("If-Match", "\"2\"")).await;
    assert_eq!((differ.status, differ.error().as_deref()), (400, Some("version_mismatch")));
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    let both =
        send(&sandbox, &event(json!({"baseVersion": 1, "notes": "x"})).header("If-Match", "\"1\"")).await;
    assert_eq!(both.status, 200, "{}", both.json());
}

#[tokio::test]
async fn if_match_saves_on_a_strong_match_and_is_412_otherwise() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    for (header, matches) in [
        ("\"1\"", true),
        ("*", true),
        ("\"3\", \"4\"", true),
        ("W/\"4\"", false),
        ("4", false),
        ("\"4--gzip\"", false),
        ("\"4\";q=1", false),
        ("\"a,b\"", false),
        ("\"3\"", false),
    ] {
        let before = version(&shop, 0).await;
        let reply =
            send(&sandbox, &patch(&shop, 0, &json!({"notes": header})).header("If-Match", header)).await;
        if matches {
            assert_eq!((reply.status, reply.json()["version"].as_i64()), (200, Some(before + 1)), "{header}");
        } else {
            assert_eq!((reply.status, reply.error().as_deref()), (412, Some("version_conflict")), "{header}");
            assert_eq!(reply.json()["current"]["version"], before);
            assert_eq!(version(&shop, 0).await, before);
        }
    }
    let stale = send(&sandbox, &patch(&shop, 0, &json!({"notes": "x"})).header("If-Match", "\"3\"")).await;
    assert_eq!(stale.json()["yourBaseVersion"], 3);
}

#[tokio::test]
async fn the_base_version_in_the_header_is_part_of_the_request() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    let save = patch(&shop, 0, &json!({"notes": "x"}));
    assert_eq!(send(&sandbox, &save.clone().header("If-Match", "\"1\"")).await.status, 200);
    let other = send(&sandbox, &save.clone().header("If-Match", "\"2\"")).await;
    assert_eq!((other.status, other.error().as_deref()), (422, Some("idempotency_key_reused")));
    let same = send(&sandbox, &save.header("If-Match", " \"1\" ")).await;
    assert_eq!(same.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn every_if_match_vector_is_answered_as_rfc_9110_has_it() {
    let Some(cases) = testing::case("etag/comparison.json") else { return };
    let cases: Value = serde_json::from_slice(&cases).unwrap();
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    for case in cases["if_match_headers"].as_array().unwrap() {
        shop.db.execute("update wholesale_order set version = 7").await;
        let raw = case["raw"].as_str().unwrap();
        let meaning = case["meaning"].as_str().unwrap();
        let expected =
            if ["one strong", "any current", "list: matches"].iter().any(|m| meaning.starts_with(m)) {
                200
            } else {
                412
            };
        let reply = send(&sandbox, &patch(&shop, 0, &json!({"notes": raw})).header("If-Match", raw)).await;
        assert_eq!(reply.status, expected, "{raw}: {meaning}");
    }
    for case in cases["rfc9110_8.8.3.2"].as_array().unwrap() {
        let (a, b) = (case["a"].as_str().unwrap(), case["b"].as_str().unwrap());
        // Our tags are strong, so only cases whose second tag is strong apply.
        if !b.starts_with('"') {
            continue;
        }
        shop.db.execute("update wholesale_order set version = 1").await;
        let reply = send(&sandbox, &patch(&shop, 0, &json!({"notes": "x"})).header("If-Match", a)).await;
        assert_eq!(reply.status == 200, case["strong"].as_bool().unwrap(), "{a} {b}");
    }
}

#[tokio::test]
async fn refusals_come_in_order_of_existence_state_version_then_content() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    shop.db
        .execute(format!(
            "update wholesale_order set status = 'shipped' where id = '{}'",
            shop.tenant.orders[1]
        ))
        .await;
    let unknown =
        json!({"baseVersion": 5, "lines": [{"skuId": uuid::Uuid::new_v4(), "qty": 1, "unitPriceMinor": 1}]});
    let closed = send(&sandbox, &patch(&shop, 1, &unknown)).await;
    assert_eq!((closed.status, closed.error().as_deref()), (409, Some("order_not_open")));
    let stale = send(&sandbox, &patch(&shop, 0, &unknown)).await;
    assert_eq!((stale.status, stale.error().as_deref()), (409, Some("version_conflict")));
    let nowhere = testing::Event::new("PATCH", &format!("/orders/{}", uuid::Uuid::new_v4()));
    let nowhere = send(&sandbox, &nowhere.bearer(&shop.tenant.token()).key("k").json(&unknown)).await;
    assert_eq!((nowhere.status, nowhere.error().as_deref()), (404, Some("order_not_found")));
}
