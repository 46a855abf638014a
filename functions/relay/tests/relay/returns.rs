//! Returned goods: a webhook names no order, so the shop is asked.

use std::sync::{Arc, Mutex};

use axum::Json;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use shared::runtime::sealed::destination_place;
use shared::webhooks::inbox::{Delivery, Receiver};
use shared::webhooks::reading::Reading;
use shared::webhooks::shopify;
use testing::{Seed, Tenant, TestDb};
use uuid::Uuid;

use crate::support::{Partner, drain, relay};

const DOMAIN: &str = "alder.myshopify.com";
const TOPIC: &str = "reverse_fulfillment_orders/dispose";

/// Delivers a webhook whose signature holds; returns `processed` or `kept`, as the receiver's function says.
async fn told(db: &TestDb, id: &str, topic: &str, body: &Value) {
    let receiver = Receiver::new(&db.app_config()).unwrap();
    let body = body.to_string();
    let reading = Reading { topic: topic.into(), meaning: shopify::read(topic, None, body.as_bytes()) };
    let provider = format!("shopify:{DOMAIN}");
    let delivery = Delivery { provider: &provider, event_id: Some(id), reading, body: body.as_bytes() };
    assert_eq!(receiver.receive(&delivery).await.unwrap().status, 200, "{topic}");
}

/// A tenant with its shop; an order of five units that were all shipped.
async fn shipped(db: &TestDb) -> Tenant {
    let tenant = db.seed(Seed { on_hand: 10, orders: 0, ..Seed::default() }).await;
    let id = tenant.id;
    db.execute(format!("insert into shopify_shop (domain, tenant_id) values ('{DOMAIN}', '{id}')")).await;
    let line = json!({"id": 11, "sku": "SKU-0001", "variant_id": 1, "quantity": 5, "current_quantity": 5});
    let order = json!({"id": 1, "updated_at": "2026-02-01T10:00:00Z", "refunds": [], "line_items": [line],
        "fulfillments": [{"id": 91, "status": "success", "updated_at": "2026-02-01T10:00:00Z", "line_items": [line]}]});
    told(db, "c", "orders/create", &order).await;
    tenant
}

async fn on_hand(db: &TestDb) -> i64 {
    db.scalar("select on_hand from sku_position").await
}

fn disposed() -> Value {
    json!({"id": 7, "admin_graphql_api_id": "gid://shopify/ReverseFulfillmentOrder/7", "total_dispositions": 1,
        "dispositions": [{"type": "RESTOCKED", "quantity": 2, "location": {"id": 3},
            "reverse_fulfillment_order_line_item": {"id": 8}}]})
}

/// What the shop answers of the return: dispositions of (id, type, units).
fn answer(dispositions: &[(i64, &str, i64)]) -> Value {
    let dispositions: Vec<Value> = dispositions
        .iter()
        .map(|(id, kind, qty)| {
            json!({"id": format!("gid://shopify/ReverseFulfillmentOrderDisposition/{id}"), "type": kind, "quantity": qty})
        })
        .collect();
    json!({"data": {"reverseFulfillmentOrder": {"order": {"id": "gid://shopify/Order/1"}, "lineItems": {
        "pageInfo": {"hasNextPage": false}, "nodes": [{
            "fulfillmentLineItem": {"lineItem": {"id": "gid://shopify/LineItem/11"}}, "dispositions": dispositions}]}}}})
}

/// A shop's Admin API, and the destination that pushes to it.
async fn api(db: &TestDb, tenant: &Tenant) -> (Partner, Arc<Mutex<Value>>) {
    let answered = Arc::new(Mutex::new(answer(&[])));
    let says = Arc::clone(&answered);
    let partner = Partner::start(move |received| {
        let answer = says.lock().unwrap().clone();
        async move {
            let request: Value = serde_json::from_slice(&received.body).unwrap();
            if !request["query"].as_str().unwrap().contains("reverseFulfillmentOrder(id: $id)") {
                return Json(json!({"data": {}})).into_response(); // a push
            }
            assert_eq!(request["variables"], json!({"id": "gid://shopify/ReverseFulfillmentOrder/7"}));
            assert!(received.header("x-shopify-access-token").starts_with("whsec_"));
            Json(answer).into_response()
        }
    })
    .await;
    let destination = db.destination(tenant, &partner.url, &["order.created"]).await;
    let sealed = testing::sealer().seal(&destination_place(destination.id), &destination.secret).unwrap();
    db.execute(format!(
        "update destination set kind = 'shopify_inventory'; update destination_secret set secret = '{sealed}'"
    ))
    .await;
    (partner, answered)
}

#[tokio::test]
async fn a_return_that_was_restocked_comes_back_once() {
    let db = TestDb::create().await;
    let tenant = shipped(&db).await;
    let (_partner, says) = api(&db, &tenant).await;
    let relay = relay(&db);
    assert_eq!(on_hand(&db).await, 5);
    *says.lock().unwrap() = answer(&[(1, "RESTOCKED", 2), (2, "MISSING", 1)]);
    told(&db, "1", TOPIC, &disposed()).await;
    assert_eq!(on_hand(&db).await, 5, "the webhook does not say what came back");
    drain(&relay).await;
    assert_eq!(on_hand(&db).await, 7);
    assert_eq!(db.count("shopify_question").await, 0);
    // Told again under another id, and once more with a further disposition.
    told(&db, "2", TOPIC, &disposed()).await;
    drain(&relay).await;
    assert_eq!(on_hand(&db).await, 7, "a disposition counts once");
    *says.lock().unwrap() = answer(&[(1, "RESTOCKED", 2), (2, "MISSING", 1), (3, "RESTOCKED", 1)]);
    told(&db, "3", TOPIC, &disposed()).await;
    drain(&relay).await;
    assert_eq!(on_hand(&db).await, 8);
    // The refund of the same goods adds nothing; one of more adds what is more.
    let refund = |id: i64, qty: i64, how: &str| {
        json!({"order_id": 1, "refund_line_items": [
        {"id": id, "line_item_id": 11, "quantity": qty, "restock_type": how}]})
    };
    told(&db, "r1", "refunds/create", &refund(51, 3, "return")).await;
    assert_eq!(on_hand(&db).await, 8);
    told(&db, "r2", "refunds/create", &refund(52, 1, "return")).await;
    assert_eq!(on_hand(&db).await, 9);
    assert_eq!(db.count("inbox_exception").await, 0);
    db.assert_consistent().await;
}

#[tokio::test]
async fn of_refunds_and_dispositions_of_one_line_the_larger_counts() {
    for (how, after) in
        [("return", [7, 8]), ("cancel", [7, 8]), ("legacy_restock", [7, 8]), ("no_restock", [7, 7])]
    {
        let db = TestDb::create().await;
        let tenant = shipped(&db).await;
        let (_partner, says) = api(&db, &tenant).await;
        *says.lock().unwrap() = answer(&[(1, "RESTOCKED", 2)]);
        told(&db, "1", TOPIC, &disposed()).await;
        drain(&relay(&db)).await;
        assert_eq!(on_hand(&db).await, 7);
        for (id, qty, after) in [(51, 1, after[0]), (52, 2, after[1])] {
            let line = json!({"id": id, "line_item_id": 11, "quantity": qty, "restock_type": how});
            told(
                &db,
                &id.to_string(),
                "refunds/create",
                &json!({"order_id": 1, "refund_line_items": [line]}),
            )
            .await;
            assert_eq!(on_hand(&db).await, after, "{how}");
        }
        db.assert_consistent().await;
    }
}

#[tokio::test]
async fn without_a_token_a_person_is_told_and_a_retry_asks() {
    let db = TestDb::create().await;
    let tenant = shipped(&db).await;
    told(&db, "1", TOPIC, &disposed()).await;
    let reason = "inbox_exception where event_id = '1' and reason like 'returned goods were disposed of, and without a token%'
        and convert_from(body, 'UTF8') like '%RESTOCKED%'";
    assert_eq!(db.count(reason).await, 1);
    assert_eq!(db.count("shopify_question").await, 0);
    let (_partner, says) = api(&db, &tenant).await;
    *says.lock().unwrap() = answer(&[(1, "RESTOCKED", 2)]);
    let delivery = shared::webhooks::inbox::reread(
        &format!("shopify:{DOMAIN}"),
        TOPIC,
        disposed().to_string().as_bytes(),
    );
    let tenant = tenant.id;
    db.execute(format!(
        "begin; select set_config('app.tenant_id', '{tenant}', true);
         select holdfast.retry_exception(jsonb_build_object('tenantId', '{tenant}', 'id', id, 'actor', 'user:x',
           'delivery', '{delivery}'::jsonb)) from inbox_exception; commit"
    ))
    .await;
    assert_eq!(db.count("inbox_exception where resolved_at is not null").await, 1);
    drain(&relay(&db)).await;
    assert_eq!(on_hand(&db).await, 7);
    db.assert_consistent().await;
}

#[tokio::test]
async fn what_a_shop_cannot_answer_is_asked_again_and_in_the_end_a_person_is_told() {
    let db = TestDb::create().await;
    let tenant = shipped(&db).await;
    let (_partner, says) = api(&db, &tenant).await;
    let relay = relay(&db);
    *says.lock().unwrap() = json!({"errors": [{"message": "try later"}]});
    told(&db, "1", TOPIC, &disposed()).await;
    drain(&relay).await;
    let waiting = "shopify_question where attempts = 1 and last_error like '%try later%' and next_attempt_at > now() and lease_token is null";
    assert_eq!(db.count(waiting).await, 1);
    drain(&relay).await;
    assert_eq!(db.count(waiting).await, 1, "not before it is due");
    // The last attempt.
    db.execute("update shopify_question set attempts = 11, next_attempt_at = now()").await;
    drain(&relay).await;
    assert_eq!(db.count("shopify_question").await, 0);
    let kept = "inbox_exception where event_id = '1' and reason = 'the shop does not say which goods were disposed of: GraphQL: try later'";
    assert_eq!(db.count(kept).await, 1);
    // A return that the shop does not know is not asked for twice.
    *says.lock().unwrap() = json!({"data": {"reverseFulfillmentOrder": null}});
    told(&db, "2", TOPIC, &disposed()).await;
    drain(&relay).await;
    assert_eq!(
        db.count("inbox_exception where event_id = '2' and reason like '%it knows no such return'").await,
        1
    );
    assert_eq!((db.count("shopify_question").await, on_hand(&db).await), (0, 5));
    db.assert_consistent().await;
}

#[tokio::test]
async fn an_answer_that_comes_after_its_lease_or_after_a_newer_question_books_nothing() {
    let db = TestDb::create().await;
    let tenant = shipped(&db).await;
    let (_partner, says) = api(&db, &tenant).await;
    told(&db, "1", TOPIC, &disposed()).await;
    let token = Uuid::new_v4();
    let worker = db.worker();
    let claim = json!({"limit": 4, "token": token, "leaseSecs": 30});
    let call =
        |name: &'static str, argument: &Value| shared::db::call::Statement::new(name, argument.clone());
    assert_eq!(worker.call(&call("holdfast.claim_questions", &claim)).await.unwrap().len(), 1);
    assert_eq!(
        worker.call(&call("holdfast.claim_questions", &claim)).await.unwrap().len(),
        0,
        "it is leased"
    );
    told(&db, "2", TOPIC, &disposed()).await;
    let late = json!({"tenantId": tenant.id, "shop": DOMAIN, "reverseOrderId": "gid://shopify/ReverseFulfillmentOrder/7",
        "token": token, "orderId": "1", "dispositions": [{"id": "d", "lineId": "11", "qty": 1}]});
    worker.call(&call("holdfast.settle_question", &late)).await.unwrap();
    assert_eq!((on_hand(&db).await, db.count("channel_disposition").await), (5, 0));
    *says.lock().unwrap() = answer(&[(1, "RESTOCKED", 2)]);
    drain(&relay(&db)).await;
    assert_eq!(on_hand(&db).await, 7);
}
