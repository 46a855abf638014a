//! Sizes, encodings and paths of requests, and the form of a problem.

use serde_json::{Value, json};
use testing::{Event, Reply, Seed, Shop, fresh_key, token};

use crate::send;

fn assert_problem(reply: &Reply, status: u16, error: &str) {
    assert_eq!((reply.status, reply.error().as_deref()), (status, Some(error)), "{reply:?}");
    let problem = reply.json();
    assert_eq!(problem["status"], status);
    for name in ["type", "title", "detail"] {
        assert!(problem[name].as_str().is_some_and(|text| !text.is_empty()), "{name}: {problem}");
    }
    assert!(reply.header("x-request-id").is_some_and(|id| !id.is_empty()));
}

/// A valid body of exactly this many bytes.
fn padded(body: &Value, bytes: usize) -> Vec<u8> {
    let mut text = body.to_string().into_bytes();
    text.resize(bytes, b' ');
    text
}

#[tokio::test]
async fn a_body_of_exactly_one_mebibyte_passes_and_one_byte_more_does_not() {
    let shop = Shop::open(Seed { on_hand: 50, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let body = shop.one(0, 1);
    const MEBIBYTE: usize = 1024 * 1024;
    for base64 in [false, true] {
        let event = |bytes: usize| {
            let event = shop.allocate(0).key(&fresh_key()).body(&padded(&body, bytes));
            if base64 { event.base64() } else { event }
        };
        assert_eq!(send(&sandbox, &event(MEBIBYTE)).await.status, 200);
        assert_problem(&send(&sandbox, &event(MEBIBYTE + 1)).await, 413, "body_too_large");
    }
    // Size is checked before key and body.
    let event = shop.allocate(0).body(&vec![b'{'; MEBIBYTE + 1]);
    assert_problem(&send(&sandbox, &event).await, 413, "body_too_large");
    assert_eq!(shop.db.count("idempotency_key").await, 2);
}

#[tokio::test]
async fn checks_come_in_the_contracts_order() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let reader = token(shop.tenant.id, shop.tenant.users[0], "orders:read outbox:admin");
    let writer = shop.tenant.token();
    let good_path = format!("/orders/{}/allocate", shop.tenant.orders[0]);
    let large = vec![b'{'; 1024 * 1024 + 1];
    let wrong = |path: &str| Event::post(path).key("a,b").body(&large);
    assert_problem(&send(&sandbox, &wrong("/orders/7/allocate").bearer("x")).await, 401, "unauthenticated");
    assert_problem(&send(&sandbox, &wrong("/orders/7/allocate").bearer(&reader)).await, 403, "forbidden");
    assert_problem(
        &send(&sandbox, &wrong("/orders/7/allocate").bearer(&writer)).await,
        404,
        "order_not_found",
    );
    assert_problem(&send(&sandbox, &wrong(&good_path).bearer(&writer)).await, 413, "body_too_large");
    let event = Event::post(&good_path).bearer(&writer).key("a,b").body(b"{");
    assert_problem(&send(&sandbox, &event).await, 400, "idempotency_key_invalid");
    let event = Event::post(&good_path).bearer(&writer).key("k").body(b"{");
    assert_problem(&send(&sandbox, &event).await, 400, "invalid_body");
    assert_eq!(shop.db.count("idempotency_key").await, 0);
}

#[tokio::test]
async fn a_path_id_of_the_wrong_form_is_no_order_and_is_never_recorded() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let order = shop.tenant.orders[0].to_string();
    for id in [
        "1",
        "x",
        "null",
        "%00",
        "%20",
        "..",
        "%2e%2e",
        "%ff",
        "%",
        "'",
        &order.replace('-', ""),
        &format!("{{{order}}}"),
        &format!("urn:uuid:{order}"),
        &format!("{order}0"),
        &order[1..],
        &format!("%20{order}"),
        &format!("{order}%00"),
        &format!("{order}%2Fallocate"),
        &order.replace('-', "_"),
        &"1".repeat(4_000),
    ] {
        let event = Event::post(&format!("/orders/{id}/allocate"))
            .bearer(&shop.tenant.token())
            .key("k")
            .json(&shop.one(0, 1));
        assert_problem(&send(&sandbox, &event).await, 404, "order_not_found");
    }
    assert_eq!(shop.db.count("idempotency_key").await, 0);
}

#[tokio::test]
async fn a_stage_in_the_path_is_not_part_of_it() {
    let shop = Shop::open(Seed { on_hand: 50, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    for stage in ["$default", "prod", "orders"] {
        let event = shop.allocate(0).stage(stage).key(&fresh_key()).json(&shop.one(0, 1));
        assert_eq!(send(&sandbox, &event).await.status, 200, "{stage}");
    }
}

#[tokio::test]
async fn a_bad_body_is_told_with_every_place_that_is_wrong() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let sku = shop.tenant.skus[0];
    let id = sku.to_string();
    let wrong: Vec<Value> = vec![
        json!({}),
        json!([]),
        json!(null),
        json!("x"),
        json!(7),
        json!({"skuId": sku}),
        json!({"qty": 1}),
        json!({"skuId": null, "qty": 1}),
        json!({"skuId": sku, "qty": null}),
        json!({"skuId": sku, "qty": "1"}),
        json!({"skuId": sku, "qty": true}),
        json!({"skuId": sku, "qty": [1]}),
        json!({"skuId": sku, "qty": 0}),
        json!({"skuId": sku, "qty": -1}),
        json!({"skuId": sku, "qty": 1_000_001}),
        json!({"skuId": sku, "qty": 9_007_199_254_740_991_i64}),
        json!({"skuId": sku, "qty": 1.5}),
        json!({"skuId": "x", "qty": 1}),
        json!({"skuId": "", "qty": 1}),
        json!({"skuId": 7, "qty": 1}),
        json!({"skuId": id.replace('-', ""), "qty": 1}),
        json!({"skuId": format!("{{{id}}}"), "qty": 1}),
        json!({"skuId": format!(" {id}"), "qty": 1}),
        json!({"skuId": sku, "qty": 1, "extra": 1}),
        json!({"skuId": sku, "qty": 1, "lines": [{"skuId": sku, "qty": 1}]}),
        json!({"skuid": sku, "Qty": 1}),
        json!({"lines": []}),
        json!({"lines": null}),
        json!({"lines": {}}),
        json!({"lines": [null]}),
        json!({"lines": [[]]}),
        json!({"lines": [{}]}),
        json!({"lines": [{"skuId": sku, "qty": 1, "orderId": "x"}]}),
        json!({"lines": [{"skuId": sku, "qty": 1}], "note": ""}),
        json!({"lines": [{"skuId": sku, "qty": 1}, {"skuId": sku, "qty": 0}]}),
    ];
    let texts = [
        "",
        " ",
        "{",
        "nul",
        "{}{}",
        "\u{feff}{}",
        r#"{"skuId":"a",}"#,
        "{'a':1}",
        "NaN",
        "skuId=1&qty=1",
        "[1e999]",
    ];
    let bodies = wrong.iter().map(Value::to_string).chain(texts.map(String::from));
    for body in bodies {
        let reply = send(&sandbox, &shop.allocate(0).key("k").body(body.as_bytes())).await;
        assert_problem(&reply, 400, "invalid_body");
        let errors = reply.json()["errors"].clone();
        let errors = errors.as_array().unwrap();
        assert!(!errors.is_empty(), "{body}");
        for error in errors {
            let members = error.as_object().unwrap();
            assert!(
                members.len() == 2 && members["path"].is_string() && members["message"].is_string(),
                "{error}"
            );
        }
    }
    let body = json!({"lines": [{"skuId": sku, "qty": 0}, {"skuId": "x", "qty": 1, "y": 1}]});
    let reply = send(&sandbox, &shop.allocate(0).key("k").json(&body)).await.json();
    let paths: Vec<_> =
        reply["errors"].as_array().unwrap().iter().map(|error| error["path"].as_str().unwrap()).collect();
    assert_eq!(paths.len(), 3, "{reply}");
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    let no_body = shop.allocate(0).key("k");
    assert_problem(&send(&sandbox, &no_body).await, 400, "invalid_body");
}

#[tokio::test]
async fn no_error_of_the_database_ever_leaves() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let failures = [
        "raise 'secret of the schema: relation \"sku_position\" of role holdfast_app'",
        "raise 'check' using errcode = 'check_violation', constraint = 'sku_position_no_oversell'",
        "raise 'unique' using errcode = 'unique_violation', constraint = 'another_key'",
        "raise 'fk' using errcode = 'foreign_key_violation'",
        "raise 'denied' using errcode = 'insufficient_privilege'",
        "raise 'disk' using errcode = 'disk_full'",
        "raise 'deadlock' using errcode = 'deadlock_detected'",
        "raise 'mine' using errcode = 'HF001', detail = 'select * from tenant'",
        "perform 1 / 0",
        "perform from no_such_table",
    ];
    for (n, failure) in failures.iter().enumerate() {
        shop.db
            .execute(format!(
                "create or replace function break_it() returns trigger language plpgsql as $$ begin {failure}; end $$;
                 drop trigger if exists break_it on outbox;
                 create trigger break_it before insert on outbox for each row execute function break_it()"
            ))
            .await;
        let reply = send(&sandbox, &shop.allocate(0).key(&n.to_string()).json(&shop.one(0, 1))).await;
        assert!(matches!(reply.status, 500 | 503), "{failure}: {reply:?}");
        let known = if reply.status == 503 { "unavailable" } else { "internal" };
        assert_problem(&reply, reply.status, known);
        let text = format!("{}{:?}", String::from_utf8(reply.body).unwrap(), reply.headers).to_lowercase();
        for word in [
            "sql",
            "select",
            "sku_position",
            "outbox",
            "holdfast_app",
            "relation",
            "secret",
            "trigger",
            "plpgsql",
            "constraint",
            "division",
            "deadlock",
            "postgres",
            "tenant",
            "hf001",
            "pg_",
            "error returned",
            "context",
        ] {
            assert!(!text.contains(word), "{word} leaks after {failure}: {text}");
        }
    }
    assert_eq!(shop.db.count("idempotency_key").await, 0);
}
