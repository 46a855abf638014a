//! The promises of invoice, tested with the deployed handler against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod payments;
mod voids;

use futures_util::future::join_all;
use serde_json::{Value, json};
use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply, Seed, Shop, fresh_key};

async fn send(sandbox: &Endpoint, event: &Event) -> Reply {
    Reply::from(invoice::handle(sandbox, event.request()).await)
}

fn invoice_of(shop: &Shop, order: usize) -> Event {
    let path = format!("/orders/{}/invoices", shop.tenant.orders[order]);
    Event::post(&path).bearer(&shop.tenant.token()).key(&fresh_key()).json(&json!({}))
}

/// A credit clerk's request about an invoice.
fn about(shop: &Shop, invoice: &str, verb: &str, body: &Value) -> Event {
    let token = testing::token(shop.tenant.id, shop.tenant.users[0], "credit:write");
    Event::post(&format!("/invoices/{invoice}/{verb}")).bearer(&token).key(&fresh_key()).json(body)
}

/// Allocates six units of 1,000 and invoices them.
async fn invoiced(shop: &Shop, sandbox: &Endpoint) -> String {
    assert_eq!(allocate(shop, 0, 0, 6).await.status, 200);
    send(sandbox, &invoice_of(shop, 0)).await.json()["id"].as_str().unwrap().to_owned()
}

async fn refused(sandbox: &Endpoint, event: &Event, status: u16, error: &str) {
    let reply = send(sandbox, event).await;
    assert_eq!((reply.status, reply.error().as_deref()), (status, Some(error)), "{}", reply.json());
}

async fn allocate(shop: &Shop, order: usize, sku: usize, qty: i64) -> Reply {
    let event = shop.allocate(order).key(&fresh_key()).json(&shop.one(sku, qty));
    Reply::from(allocate::handle(&shop.db.endpoint(), event.request()).await)
}

async fn exposure(shop: &Shop) -> i64 {
    let sql = format!("select holdfast.exposure('{}', '{}')::bigint", shop.tenant.id, shop.tenant.customer);
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut shop.db.owner().await).await.unwrap()
}

#[tokio::test]
async fn what_is_allocated_is_invoiced_once_and_the_exposure_stays_the_same() {
    let shop =
        Shop::open(Seed { skus: 2, on_hand: 10, credit_limit_minor: Some(8_000), ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    assert_eq!(allocate(&shop, 0, 0, 3).await.status, 200);
    assert_eq!(allocate(&shop, 0, 1, 2).await.status, 200);
    assert_eq!(exposure(&shop).await, 5_000);
    let event = invoice_of(&shop, 0);
    let reply = send(&sandbox, &event).await;
    assert_eq!(reply.status, 201, "{}", reply.json());
    let invoice = reply.json();
    let id = invoice["id"].as_str().unwrap();
    assert_eq!(reply.header("location"), Some(format!("/invoices/{id}").as_str()));
    assert_eq!(
        invoice,
        json!({"id": id, "orderId": shop.tenant.orders[0], "totalMinor": 5_000, "currency": "USD", "status": "awaiting_payment"})
    );
    assert_eq!(exposure(&shop).await, 5_000);
    assert_eq!(shop.db.count("order_line where qty_invoiced = qty_allocated and qty_invoiced > 0").await, 2);
    assert_eq!(shop.db.count("invoice_line where unit_price_minor = 1000 and qty in (2, 3)").await, 2);
    let payload: String =
        shop.db.scalar("select payload from outbox where event_type = 'invoice.created'").await;
    let told: Value = serde_json::from_str(&payload).unwrap();
    assert_eq!(
        (&told["data"], &told["aggregate"]["id"]),
        (&json!({"totalMinor": 5_000, "paidMinor": 0, "currency": "USD"}), &json!(id))
    );

    assert_eq!(send(&sandbox, &event).await.body, reply.body, "the same request again");
    let again = send(&sandbox, &invoice_of(&shop, 0)).await;
    assert_eq!((again.status, again.error().as_deref()), (422, Some("nothing_to_invoice")));
    // Units allocated later go on another invoice.
    assert_eq!(allocate(&shop, 0, 0, 1).await.status, 200);
    assert_eq!(send(&sandbox, &invoice_of(&shop, 0)).await.json()["totalMinor"], 1_000);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn two_invoices_at_once_invoice_once() {
    let shop = Shop::open(Seed { orders: 20, on_hand: 1_000, ..Seed::default() }).await;
    let sandboxes: Vec<Endpoint> = (0..4).map(|_| shop.db.endpoint()).collect();
    for order in 0..20 {
        assert_eq!(allocate(&shop, order, 0, 6).await.status, 200);
        let events: Vec<Event> = sandboxes.iter().map(|_| invoice_of(&shop, order)).collect();
        let replies =
            join_all(sandboxes.iter().zip(&events).map(|(sandbox, event)| send(sandbox, event))).await;
        let mut statuses: Vec<u16> = replies.iter().map(|r| r.status).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 422, 422, 422]);
    }
    assert_eq!(shop.db.count("invoice").await, 20);
    assert_eq!(shop.db.count("order_line where qty_invoiced <> qty_allocated").await, 0);
}

#[tokio::test]
async fn invoiced_units_can_be_released_and_allocated_again_while_the_invoice_stands() {
    let shop = Shop::open(Seed { credit_limit_minor: Some(6_000), ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    assert_eq!(allocate(&shop, 0, 0, 6).await.status, 200);
    assert_eq!(send(&sandbox, &invoice_of(&shop, 0)).await.status, 201);
    let event = shop.release(0).key(&fresh_key()).json(&shop.one(0, 6));
    assert_eq!(Reply::from(release::handle(&sandbox, event.request()).await).status, 200);
    assert_eq!(exposure(&shop).await, 6_000, "the invoice stands");
    let nothing = send(&sandbox, &invoice_of(&shop, 0)).await;
    assert_eq!(nothing.error().as_deref(), Some("nothing_to_invoice"));
    // Units that were invoiced before do not count twice against the limit.
    assert_eq!(allocate(&shop, 0, 0, 6).await.status, 200);
    assert_eq!(exposure(&shop).await, 6_000);
}

#[tokio::test]
async fn a_size_that_was_dropped_and_comes_back_is_not_invoiced_again() {
    let shop = Shop::open(Seed { skus: 2, credit_limit_minor: Some(6_000), ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let [a, b] = shop.tenant.skus[..].try_into().unwrap();
    assert_eq!(allocate(&shop, 0, 0, 6).await.status, 200);
    assert_eq!(send(&sandbox, &invoice_of(&shop, 0)).await.status, 201);
    let event = shop.release(0).key(&fresh_key()).json(&shop.one(0, 6));
    assert_eq!(Reply::from(release::handle(&sandbox, event.request()).await).status, 200);
    for run in [json!([{"skuId": b, "qty": 1}]), json!([{"skuId": a, "qty": 6, "unitPriceMinor": 1_000}])] {
        let path = format!("/orders/{}", shop.tenant.orders[0]);
        let event = Event::new("PATCH", &path).bearer(&shop.tenant.token()).key(&fresh_key());
        let event = event.header("if-match", "*").json(&json!({"lines": run}));
        assert_eq!(Reply::from(order_save::handle(&sandbox, event.request()).await).status, 200);
    }
    assert_eq!(allocate(&shop, 0, 0, 6).await.status, 200, "its units are in the invoice, within the limit");
    assert_eq!(exposure(&shop).await, 6_000);
    let nothing = send(&sandbox, &invoice_of(&shop, 0)).await;
    assert_eq!(nothing.error().as_deref(), Some("nothing_to_invoice"));
}

#[tokio::test]
async fn a_users_whole_day_create_edit_allocate_release_invoice_or_cancel() {
    let shop = Shop::open(Seed { skus: 2, on_hand: 50, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let token = shop.tenant.token();
    let save = async |event: Event| Reply::from(order_save::handle(&sandbox, event.request()).await);
    let [a, b] = shop.tenant.skus[..].try_into().unwrap();
    let body = json!({"customerId": shop.tenant.customer, "lines": [{"skuId": a, "qty": 10, "unitPriceMinor": 250}]});
    let order = save(Event::post("/orders").bearer(&token).key(&fresh_key()).json(&body)).await.json();
    let path = format!("/orders/{}", order["id"].as_str().unwrap());
    let lines = json!({"baseVersion": 1, "lines": [{"skuId": a, "qty": 10}, {"skuId": b, "qty": 5, "unitPriceMinor": 100}]});
    assert_eq!(
        save(Event::new("PATCH", &path).bearer(&token).key(&fresh_key()).json(&lines)).await.status,
        200
    );
    let post = |verb: &str, body: Value| {
        Event::post(&format!("{path}/{verb}")).bearer(&token).key(&fresh_key()).json(&body)
    };
    let take = post("allocate", json!({"lines": [{"skuId": a, "qty": 10}, {"skuId": b, "qty": 5}]}));
    assert_eq!(Reply::from(allocate::handle(&sandbox, take.request()).await).status, 200);
    let give = post("release", json!({"skuId": b, "qty": 2}));
    assert_eq!(Reply::from(release::handle(&sandbox, give.request()).await).status, 200);
    let invoice = send(&sandbox, &post("invoices", json!({}))).await.json();
    assert_eq!(invoice["totalMinor"], 10 * 250 + 3 * 100);
    let cancelled = save(post("cancel", json!({}))).await;
    assert_eq!(
        (cancelled.status, cancelled.json()["version"].as_i64()),
        (200, Some(3)),
        "allocation and release leave the version"
    );
    let late = send(&sandbox, &post("invoices", json!({}))).await;
    assert_eq!((late.status, late.error().as_deref()), (409, Some("order_not_open")));
    assert_eq!(shop.db.count("sku_position where allocated <> 0").await, 0);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn what_is_not_there_or_not_asked_right_is_refused() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let other = shop.db.seed(Seed::default()).await;
    let path = format!("/orders/{}/invoices", shop.tenant.orders[0]);
    for (event, status, error) in [
        (Event::post(&path).bearer(&other.token()).key("a").json(&json!({})), 404, "order_not_found"),
        (
            Event::post("/orders/x/invoices").bearer(&shop.tenant.token()).key("b").json(&json!({})),
            404,
            "order_not_found",
        ),
        (
            Event::post(&path).bearer(&shop.tenant.token()).key("c").json(&json!({"totalMinor": 1})),
            400,
            "invalid_body",
        ),
        (Event::post(&path).bearer(&shop.tenant.token()).key("d"), 400, "invalid_body"),
        (
            Event::post(&path).bearer(&shop.tenant.token()).key("e").json(&json!({})),
            422,
            "nothing_to_invoice",
        ),
    ] {
        let reply = send(&sandbox, &event).await;
        assert_eq!((reply.status, reply.error().as_deref()), (status, Some(error)));
    }
    assert_eq!(shop.db.count("invoice").await, 0);
}

#[tokio::test]
async fn what_is_worth_nothing_is_not_invoiced() {
    let shop = Shop::open(Seed { unit_price_minor: 0, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    assert_eq!(allocate(&shop, 0, 0, 3).await.status, 200);
    refused(&sandbox, &invoice_of(&shop, 0), 422, "nothing_to_invoice").await;
    assert_eq!(shop.db.count("invoice").await, 0);
}

#[tokio::test]
async fn what_was_shipped_of_a_cancelled_order_can_be_invoiced_once() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let order = shop.tenant.orders[0];
    shop.db.execute(format!("update wholesale_order set status = 'cancelled' where id = '{order}'")).await;
    refused(&sandbox, &invoice_of(&shop, 0), 409, "order_not_open").await;
    shop.db.execute(format!("update order_line set qty_shipped = 2 where order_id = '{order}'")).await;
    let reply = send(&sandbox, &invoice_of(&shop, 0)).await;
    assert_eq!((reply.status, reply.json()["totalMinor"].as_i64()), (201, Some(2_000)));
    let by = format!("user:{}", shop.tenant.users[0]);
    assert_eq!(shop.db.count(&format!("invoice where created_by = '{by}'")).await, 1);
    refused(&sandbox, &invoice_of(&shop, 0), 409, "order_not_open").await;
}

#[tokio::test]
async fn a_line_that_was_repriced_is_billed_for_new_units_only() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    assert_eq!(allocate(&shop, 0, 0, 2).await.status, 200);
    assert_eq!(send(&sandbox, &invoice_of(&shop, 0)).await.json()["totalMinor"], 2_000);
    let path = format!("/orders/{}", shop.tenant.orders[0]);
    let lines = json!({"lines": [{"skuId": shop.tenant.skus[0], "qty": 6, "unitPriceMinor": 3_000}]});
    let event = Event::new("PATCH", &path).bearer(&shop.tenant.token()).key(&fresh_key());
    let saved = order_save::handle(&sandbox, event.header("if-match", "*").json(&lines).request()).await;
    assert_eq!(saved.status(), 200);
    refused(&sandbox, &invoice_of(&shop, 0), 422, "nothing_to_invoice").await;
    assert_eq!(allocate(&shop, 0, 0, 1).await.status, 200);
    assert_eq!(send(&sandbox, &invoice_of(&shop, 0)).await.json()["totalMinor"], 3_000);
}
