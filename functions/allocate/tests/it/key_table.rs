//! The cases of the contract's idempotency table that need no parallel requests.

use serde_json::json;
use testing::{Event, Reply, Seed, Shop, token};
use uuid::Uuid;

use crate::{hex, send};

fn seed() -> Seed {
    Seed { skus: 2, on_hand: 10, orders: 3, order_qty: 10, ..Seed::default() }
}

fn assert_replays(first: &Reply, again: &Reply) {
    assert_eq!(again.status, first.status);
    assert_eq!(again.body, first.body);
    for name in ["content-type", "etag", "location"] {
        assert_eq!(again.header(name), first.header(name), "{name}");
    }
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
}

#[tokio::test]
async fn the_first_request_of_a_key_runs_and_its_answer_is_recorded() {
    let shop = Shop::open(seed()).await;
    let reply = send(&shop.db.endpoint(), &shop.allocate(0).key("k").json(&shop.one(0, 4))).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let (path, tenant) = (format!("/orders/{}/allocate", shop.tenant.orders[0]), shop.tenant.id);
    let recorded = format!(
        "idempotency_key where tenant_id = '{tenant}' and key = 'k' and request_method = 'POST' and request_path = '{path}'
           and response_status = 200 and response_body = '\\x{}' and response_content_type = 'application/json'
           and created_at > now() - interval '1 minute'",
        hex(&reply.body)
    );
    assert_eq!(shop.db.count(&recorded).await, 1);
    assert_eq!(shop.db.count("idempotency_key").await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn an_equal_request_gets_the_recorded_answer_byte_for_byte_and_changes_nothing() {
    let shop = Shop::open(seed()).await;
    let event = shop.allocate(0).key("k").json(&shop.one(0, 4));
    let sandbox = shop.db.endpoint();
    let first = send(&sandbox, &event).await;
    let after = shop.db.state().await;
    for again in [send(&sandbox, &event).await, send(&shop.db.endpoint(), &event).await] {
        assert_replays(&first, &again);
        assert_ne!(
            again.header("x-request-id"),
            first.header("x-request-id"),
            "each request has an id of its own"
        );
    }
    assert_eq!(shop.db.state().await, after);
}

#[tokio::test]
async fn formatting_of_json_does_not_make_another_request_but_array_order_does() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let (a, b) = (shop.tenant.skus[0], shop.tenant.skus[1]);
    let body = format!(r#"{{"lines":[{{"skuId":"{a}","qty":6}},{{"skuId":"{b}","qty":1}}]}}"#);
    let first = send(&sandbox, &shop.allocate(0).key("k").body(body.as_bytes())).await;
    assert_eq!(first.status, 200);
    for same in [
        format!(r#" {{ "lines" :[{{"qty":6.0,"skuId":"{a}"}},{{"skuId":"{b}","qty":1}} ]  }}"#),
        format!(
            "{{\r\n\t\"lines\":[{{\"skuId\":\"{a}\",\"qty\":6e0}},{{\"skuId\":\"{b}\",\"qty\":10E-1}}]}}\n"
        ),
        format!(r#"{{"\u006cines":[{{"sku\u0049d":"{a}","qty":0.6e1}},{{"skuId":"{b}","qty":1}}]}}"#),
        format!(
            r#"{{"lines":[{{"skuId":"{a}","qty":60e-1}},{{"skuId":"{}\u00{:x}","qty":1.00}}]}}"#,
            &b.to_string()[..35],
            b.to_string().as_bytes()[35]
        ),
    ] {
        assert_replays(&first, &send(&sandbox, &shop.allocate(0).key("k").body(same.as_bytes())).await);
        let encoded = shop.allocate(0).key("k").body(same.as_bytes()).base64();
        assert_replays(&first, &send(&sandbox, &encoded).await);
    }
    for other in [
        format!(r#"{{"lines":[{{"skuId":"{b}","qty":1}},{{"skuId":"{a}","qty":6}}]}}"#),
        format!(r#"{{"lines":[{{"skuId":"{a}","qty":5}},{{"skuId":"{b}","qty":1}}]}}"#),
        format!(r#"{{"skuId":"{a}","qty":6}}"#),
    ] {
        let reply = send(&sandbox, &shop.allocate(0).key("k").body(other.as_bytes())).await;
        assert_eq!((reply.status, reply.error().as_deref()), (422, Some("idempotency_key_reused")));
        assert_eq!(reply.header("idempotent-replayed"), None);
    }
}

#[tokio::test]
async fn stage_and_case_of_a_path_id_do_not_make_another_request() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let (token, body) = (shop.tenant.token(), shop.one(0, 2));
    let first = send(&sandbox, &shop.allocate(0).key("k").json(&body)).await;
    assert_eq!(first.status, 200);
    let order = shop.tenant.orders[0].to_string();
    for path in [
        format!("/orders/{}/allocate", order.to_uppercase()),
        format!("/orders/%{:02x}{}/allocate", order.as_bytes()[0], &order[1..]),
    ] {
        let event = Event::post(&path).bearer(&token).key("k").json(&body);
        assert_replays(&first, &send(&sandbox, &event).await);
        assert_replays(&first, &send(&sandbox, &event.stage("live")).await);
    }
}

#[tokio::test]
async fn a_key_used_on_another_order_is_reused_and_of_another_tenant_is_new() {
    let shop = Shop::open(seed()).await;
    let other = shop.db.seed(seed()).await;
    let sandbox = shop.db.endpoint();
    assert_eq!(send(&sandbox, &shop.allocate(0).key("k").json(&shop.one(0, 2))).await.status, 200);
    let after = shop.db.state().await;
    let reply = send(&sandbox, &shop.allocate(1).key("k").json(&shop.one(0, 2))).await;
    assert_eq!((reply.status, reply.error().as_deref()), (422, Some("idempotency_key_reused")));
    assert_eq!(shop.db.state().await, after);

    let event = Event::post(&format!("/orders/{}/allocate", other.orders[0])).bearer(&other.token()).key("k");
    let reply = send(&sandbox, &event.json(&json!({"skuId": other.skus[0], "qty": 2}))).await;
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None));
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn another_user_of_the_tenant_gets_the_replay_of_the_same_request() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let event =
        Event::post(&format!("/orders/{}/allocate", shop.tenant.orders[0])).key("k").json(&shop.one(0, 2));
    let first = send(&sandbox, &event.clone().bearer(&shop.tenant.token())).await;
    assert_eq!(first.status, 200);
    assert_replays(&first, &send(&sandbox, &event.bearer(&shop.tenant.second_token())).await);
}

#[tokio::test]
async fn bad_credentials_a_bad_body_and_failed_validation_leave_the_key_unused() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let path = format!("/orders/{}/allocate", shop.tenant.orders[0]);
    let anonymous = || Event::post(&path).key("k").json(&shop.one(0, 2));
    let reader = token(shop.tenant.id, shop.tenant.users[0], "orders:read");
    let stranger = token(shop.tenant.id, Uuid::new_v4(), "orders:write");
    let mine = |body: &str| shop.allocate(0).key("k").body(body.as_bytes());
    let sku = shop.tenant.skus[0];
    for (status, event) in [
        (401, anonymous()),
        (401, anonymous().bearer("rubbish")),
        (401, anonymous().bearer(&stranger)),
        (403, anonymous().bearer(&reader)),
        (
            404,
            Event::post("/orders/not-an-id/allocate")
                .bearer(&shop.tenant.token())
                .key("k")
                .json(&shop.one(0, 2)),
        ),
        (413, mine(&" ".repeat(1024 * 1024 + 1))),
        (400, mine("")),
        (400, mine("{")),
        (400, mine(&format!(r#"{{"skuId":"{sku}"}}"#))),
        (400, mine(&format!(r#"{{"skuId":"{sku}","qty":0}}"#))),
        (400, mine(&format!(r#"{{"skuId":"{sku}","qty":1000001}}"#))),
        (400, mine(&format!(r#"{{"skuId":"{sku}","qty":1.5}}"#))),
        (400, mine(&format!(r#"{{"skuId":"{sku}","qty":1,"qty":1}}"#))),
        (400, mine(&format!(r#"{{"skuId":"{sku}","qty":1,"note":"x"}}"#))),
        (400, mine(r#"{"lines":[]}"#)),
    ] {
        let reply = send(&sandbox, &event).await;
        assert_eq!(reply.status, status, "{event:?} {reply:?}");
    }
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    let reply = send(&sandbox, &shop.allocate(0).key("k").json(&shop.one(0, 2))).await;
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None));
}

#[tokio::test]
async fn a_refusal_is_recorded_and_replayed_even_after_stock_came_back() {
    let shop = Shop::open(Seed { on_hand: 3, ..seed() }).await;
    let sandbox = shop.db.endpoint();
    let event = shop.allocate(0).key("k").json(&shop.one(0, 4));
    let first = send(&sandbox, &event).await;
    assert_eq!((first.status, first.error().as_deref()), (422, Some("insufficient_ats")));
    shop.receive(0, 100).await;
    assert_replays(&first, &send(&sandbox, &event).await);
    let reply = send(&sandbox, &shop.allocate(0).key("another").json(&shop.one(0, 4))).await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn an_order_that_does_not_exist_is_a_recorded_refusal() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let event = Event::post(&format!("/orders/{}/allocate", Uuid::new_v4())).bearer(&shop.tenant.token());
    let event = event.key("k").json(&shop.one(0, 1));
    let first = send(&sandbox, &event).await;
    assert_eq!((first.status, first.error().as_deref()), (404, Some("order_not_found")));
    assert_replays(&first, &send(&sandbox, &event).await);
}

#[tokio::test]
async fn an_unexpected_failure_records_nothing_and_the_same_key_runs_again() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let before = shop.db.state().await;
    shop.db
        .execute(
            "create function break_it() returns trigger language plpgsql as $$ begin raise 'disk on fire'; end $$;
             create trigger break_it before insert on outbox for each row execute function break_it()",
        )
        .await;
    let event = shop.allocate(0).key("k").json(&shop.one(0, 4));
    for _ in 0..2 {
        let reply = send(&sandbox, &event).await;
        assert_eq!(reply.status, 500, "{reply:?}");
        assert_eq!(reply.header("content-type"), Some("application/problem+json"));
        assert_eq!(shop.db.state().await, before);
        assert_eq!(shop.db.count("idempotency_key").await, 0);
    }
    shop.db.execute("drop trigger break_it on outbox").await;
    let reply = send(&sandbox, &event).await;
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None));
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_reaped_key_is_a_new_request() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    let event = shop.allocate(0).key("k").json(&shop.one(0, 4));
    assert_eq!(send(&sandbox, &event).await.json()["lines"][0]["atsAfter"], 6);
    shop.db.execute("delete from idempotency_key").await;
    let reply = send(&sandbox, &event).await;
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None));
    assert_eq!(reply.json()["lines"][0]["atsAfter"], 2);
    shop.db.assert_consistent().await;
}
