//! What a save writes, and what it tells.

use serde_json::{Value, json};
use testing::{Reply, Seed, fresh_key};

use super::*;

#[tokio::test]
async fn limit_hold_and_name_are_saved_together_or_one_by_one_and_read_back() {
    let books = Books::open(Seed { credit_limit_minor: Some(70_000), ..Seed::default() }).await;
    let first = books.read().await;
    assert_eq!((first.status, first.header("etag")), (200, Some("\"1\"")));
    let expected = json!({"id": books.shop.tenant.customer, "name": "Boutique", "currency": "USD", "creditLimitMinor": 70_000,
        "exposureMinor": 0, "onHold": false, "version": 1});
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&first.json()[name], value, "{name}");
    }

    let save = json!({"baseVersion": 1, "creditLimitMinor": 1, "onHold": true, "name": "Bóutique \"é\" 2"});
    let event = books.patch_of(1, &save);
    let saved = books.send(&event).await;
    assert_eq!((saved.status, saved.header("etag")), (200, Some("\"2\"")), "{}", saved.json());
    let body = saved.json();
    let names: Vec<&String> = body.as_object().unwrap().keys().collect();
    assert_eq!(names, ["customer", "version"]);
    assert_eq!((&body["version"], &body["customer"]["version"]), (&json!(2), &json!(2)));
    let customer = &body["customer"];
    assert_eq!(
        (&customer["creditLimitMinor"], &customer["onHold"], &customer["name"]),
        (&json!(1), &json!(true), &json!("Bóutique \"é\" 2"))
    );
    assert_eq!(
        (&customer["updatedBy"], &customer["updatedByName"]),
        (&json!(books.shop.tenant.users[1]), &json!("Ben"))
    );
    let read = books.read().await;
    assert_eq!((&read.json(), read.header("etag")), (customer, Some("\"2\"")));

    let replay = books.send(&event).await;
    assert_eq!((replay.status, &replay.body, replay.header("etag")), (200, &saved.body, Some("\"2\"")));
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));

    // Only fields present are written; null is no limit.
    for (version, field, value) in [
        (2, "onHold", json!(false)),
        (3, "creditLimitMinor", json!(null)),
        (4, "creditLimitMinor", json!(10_000_000_000_i64)),
        (5, "creditLimitMinor", json!(0)),
        (6, "name", json!("C")),
    ] {
        let mut expected = books.read().await.json();
        let reply = books.send(&books.patch(&json!({"baseVersion": version, field: value}))).await;
        assert_eq!(reply.status, 200, "{}", reply.json());
        expected[field] = value;
        expected["version"] = json!(version + 1);
        let mut customer = reply.json()["customer"].clone();
        for name in ["updatedBy", "updatedByName", "updatedAt"] {
            expected[name] = json!(null);
            customer[name] = json!(null);
        }
        assert_eq!(customer, expected);
    }
}

#[tokio::test]
async fn null_is_no_limit_and_a_limit_of_nothing_promises_nothing() {
    let books = Books::open(Seed { credit_limit_minor: Some(0), ..Seed::default() }).await;
    let allocate = async || {
        let event = books.shop.allocate(0).key(&fresh_key()).json(&books.shop.one(0, 2));
        Reply::from(allocate::handle(&books.sandbox, event.request()).await)
    };
    assert_eq!(refused(&allocate().await), refusal(422, "credit_limit_exceeded"));
    let none = books.send(&books.patch(&json!({"baseVersion": 1, "creditLimitMinor": null}))).await;
    assert_eq!((none.status, &none.json()["customer"]["creditLimitMinor"]), (200, &json!(null)));
    assert_eq!(allocate().await.status, 200);
    let zero = books.send(&books.patch(&json!({"baseVersion": 2, "creditLimitMinor": 0}))).await;
    assert_eq!(zero.status, 200);
    assert_eq!(refused(&allocate().await), refusal(422, "credit_limit_exceeded"));
    books.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn exposure_does_not_touch_the_version() {
    let books = Books::open(Seed { credit_limit_minor: Some(70_000), ..Seed::default() }).await;
    let event = books.shop.allocate(0).key(&fresh_key()).json(&books.shop.one(0, 3));
    assert_eq!(allocate::handle(&books.sandbox, event.request()).await.status().as_u16(), 200);
    let read = books.read().await;
    assert_eq!((read.header("etag"), &read.json()["exposureMinor"]), (Some("\"1\""), &json!(3_000)));
    let saved = books.send(&books.patch(&json!({"name": "x"})).header("if-match", "\"1\"")).await;
    assert_eq!((saved.status, &saved.json()["customer"]["exposureMinor"]), (200, &json!(3_000)));
}

#[tokio::test]
async fn a_save_is_told_once_with_what_changed() {
    let books = Books::open(Seed::default()).await;
    let event = books.patch(&json!({"baseVersion": 1, "creditLimitMinor": 9_000, "onHold": false}));
    for _ in 0..2 {
        assert_eq!(books.send(&event).await.status, 200);
    }
    // Not told: what was refused.
    books.send(&books.patch(&json!({"baseVersion": 1, "name": "x"}))).await;
    assert_eq!(books.send(&books.patch(&json!({"baseVersion": 2, "name": "x"}))).await.status, 200);
    let payloads: Vec<String> = sqlx::query_scalar("select payload from outbox order by id")
        .fetch_all(&mut books.shop.db.owner().await)
        .await
        .unwrap();
    let told: Vec<Value> = payloads.iter().map(|payload| serde_json::from_str(payload).unwrap()).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    for (n, (event, limit)) in told.iter().zip([9_000, 9_000]).enumerate() {
        assert_eq!(event["type"], "customer.saved");
        let aggregate = json!({"type": "customer", "id": books.shop.tenant.customer, "sequence": n + 1});
        assert_eq!(event["aggregate"], aggregate);
        let data = &event["data"];
        assert_eq!(
            (&data["version"], &data["limit"], &data["exposure"]),
            (&json!(n + 2), &json!(limit), &json!(0))
        );
    }
    books.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn what_is_no_limit_no_hold_and_no_name_is_400_and_leaves_the_key_unused() {
    let books = Books::open(Seed::default()).await;
    let key = fresh_key();
    let event =
        |body: &Value| Event::new("PATCH", &books.path()).bearer(&books.token(0)).key(&key).json(body);
    let state = books.shop.db.state().await;
    for (member, value) in [
        ("creditLimitMinor", json!(-1)),
        ("creditLimitMinor", json!(10_000_000_001_i64)),
        ("creditLimitMinor", json!(1.5)),
        ("creditLimitMinor", json!("1")),
        ("onHold", json!(null)),
        ("onHold", json!(1)),
        ("onHold", json!("true")),
        ("name", json!(null)),
        ("name", json!("")),
        ("name", json!("a\u{0}b")),
        ("name", json!(7)),
        ("currency", json!("EUR")),
        ("exposureMinor", json!(0)),
        ("version", json!(1)),
        ("baseVersion", json!("1")),
    ] {
        let mut body = json!({"baseVersion": 1, "onHold": true});
        body[member] = value;
        let reply = books.send(&event(&body)).await;
        assert_eq!(refused(&reply), refusal(400, "invalid_body"), "{body}");
        let path = format!("/{member}");
        assert!(
            reply.json()["errors"].as_array().unwrap().iter().any(|e| e["path"] == path.as_str()),
            "{}",
            reply.json()
        );
    }
    for body in [json!([]), json!(null), json!({"baseVersion": 1})] {
        assert_eq!(refused(&books.send(&event(&body)).await), refusal(400, "invalid_body"), "{body}");
    }
    assert_eq!(books.shop.db.state().await, state);
    assert_eq!(books.send(&event(&json!({"baseVersion": 1, "onHold": true}))).await.status, 200);
}
