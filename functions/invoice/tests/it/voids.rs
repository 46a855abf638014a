//! Invoices that are taken back.

use super::*;

#[tokio::test]
async fn a_voided_invoice_is_final_and_its_units_can_be_invoiced_again() {
    let shop = Shop::open(Seed { credit_limit_minor: Some(6_000), ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let id = invoiced(&shop, &sandbox).await;
    let event = about(&shop, &id, "void", &json!({"reason": "wrong address"}));
    let reply = send(&sandbox, &event).await;
    assert_eq!(reply.status, 200, "{}", reply.json());
    let at = reply.json()["createdAt"].clone();
    assert_eq!(
        reply.json(),
        json!({"id": id, "orderId": shop.tenant.orders[0], "customerId": shop.tenant.customer, "status": "void",
            "totalMinor": 6_000, "paidMinor": 0, "refundedMinor": 0, "disputed": false, "payments": [],
            "currency": "USD", "paidAt": null, "createdAt": at})
    );
    assert_eq!(exposure(&shop).await, 6_000, "the units are held, and no longer invoiced");
    assert_eq!(send(&sandbox, &event).await.body, reply.body, "the same request again");
    let by = format!("user:{}", shop.tenant.users[0]);
    let kept = format!(
        "invoice where voided_by = '{by}' and void_reason = 'wrong address' and voided_at is not null"
    );
    assert_eq!(shop.db.count(&kept).await, 1);
    let payload: String =
        shop.db.scalar("select payload from outbox where event_type = 'invoice.voided'").await;
    let told: Value = serde_json::from_str(&payload).unwrap();
    assert_eq!(told["data"], json!({"totalMinor": 6_000, "paidMinor": 0, "currency": "USD"}));
    assert_eq!(told["aggregate"]["sequence"], json!(2));

    refused(&sandbox, &about(&shop, &id, "void", &json!({"reason": "again"})), 409, "invoice_state").await;
    let pay = json!({"amountMinor": 1, "reference": "x"});
    refused(&sandbox, &about(&shop, &id, "payments", &pay), 409, "invoice_state").await;
    assert_eq!(send(&sandbox, &invoice_of(&shop, 0)).await.json()["totalMinor"], 6_000);
    assert_eq!(shop.db.count("outbox where event_type = 'customer.over_limit'").await, 0);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn an_invoice_that_holds_money_is_not_voided() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let id = invoiced(&shop, &sandbox).await;
    let pay = |amount: i64, reference: &str| {
        about(&shop, &id, "payments", &json!({"amountMinor": amount, "reference": reference}))
    };
    let void = || about(&shop, &id, "void", &json!({"reason": "x"}));
    assert_eq!(send(&sandbox, &pay(1, "bank 1")).await.status, 201);
    refused(&sandbox, &void(), 409, "invoice_state").await;
    assert_eq!(send(&sandbox, &pay(-1, "bank 1 bounced")).await.status, 201);
    assert_eq!(send(&sandbox, &void()).await.status, 200);
}

#[tokio::test]
async fn a_void_after_a_higher_price_tells_that_the_limit_is_passed() {
    let shop = Shop::open(Seed { credit_limit_minor: Some(6_000), ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let id = invoiced(&shop, &sandbox).await;
    shop.db.execute("update order_line set unit_price_minor = 2000").await;
    assert_eq!(send(&sandbox, &about(&shop, &id, "void", &json!({"reason": "x"}))).await.status, 200);
    assert_eq!(exposure(&shop).await, 12_000);
    let payload: String =
        shop.db.scalar("select payload from outbox where event_type = 'customer.over_limit'").await;
    let told: Value = serde_json::from_str(&payload).unwrap();
    assert_eq!((&told["data"]["limit"], &told["data"]["exposure"]), (&json!(6_000), &json!(12_000)));
}

#[tokio::test]
async fn a_line_that_was_dropped_meanwhile_is_nothing_to_a_void() {
    let shop = Shop::open(Seed { orders: 1, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let id = invoiced(&shop, &sandbox).await;
    shop.db.execute("update order_line set qty_invoiced = 4").await;
    assert_eq!(send(&sandbox, &about(&shop, &id, "void", &json!({"reason": "x"}))).await.status, 200);
    assert_eq!(shop.db.count("order_line where qty_invoiced = 0").await, 1, "never below 0");
    let id = send(&sandbox, &invoice_of(&shop, 0)).await.json()["id"].as_str().unwrap().to_owned();
    let release = shop.release(0).key(&fresh_key()).json(&shop.one(0, 6));
    assert_eq!(Reply::from(release::handle(&sandbox, release.request()).await).status, 200);
    let path = format!("/orders/{}", shop.tenant.orders[0]);
    let event = Event::new("PATCH", &path).bearer(&shop.tenant.token()).key(&fresh_key());
    let dropped = event.header("if-match", "*").json(&json!({"lines": []}));
    assert_eq!(order_save::handle(&sandbox, dropped.request()).await.status(), 200);
    assert_eq!(send(&sandbox, &about(&shop, &id, "void", &json!({"reason": "x"}))).await.status, 200);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_void_is_asked_by_those_who_may_and_says_why() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let id = invoiced(&shop, &sandbox).await;
    let reason = json!({"reason": "x"});
    let other = Shop { tenant: shop.db.seed(Seed::default()).await, db: shop.db };
    refused(&sandbox, &about(&other, &id, "void", &reason), 404, "not_found").await;
    refused(&sandbox, &about(&other, "x", "void", &reason), 404, "not_found").await;
    let path = format!("/invoices/{id}/void");
    let event = Event::post(&path)
        .bearer(&testing::token(other.tenant.id, other.tenant.users[0], "orders:write"))
        .key(&fresh_key())
        .json(&reason);
    refused(&sandbox, &event, 403, "forbidden").await;
    for body in [
        json!({}),
        json!({"reason": " "}),
        json!({"reason": "x".repeat(2_001)}),
        json!({"reason": "x", "y": 1}),
    ] {
        refused(&sandbox, &about(&other, &id, "void", &body), 400, "invalid_body").await;
    }
    assert_eq!(other.db.count("invoice where status = 'void'").await, 0);
}
