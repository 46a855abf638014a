//! Payments by hand.

use super::*;

fn pay(shop: &Shop, invoice: &str, amount: i64, reference: &str) -> Event {
    about(shop, invoice, "payments", &json!({"amountMinor": amount, "reference": reference}))
}

#[tokio::test]
async fn instalments_pay_an_invoice_and_lower_the_exposure() {
    let shop = Shop::open(Seed { credit_limit_minor: Some(6_000), ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let id = invoiced(&shop, &sandbox).await;
    let first = pay(&shop, &id, 2_000, "bank 1");
    let reply = send(&sandbox, &first).await;
    assert_eq!(reply.status, 201, "{}", reply.json());
    let answer = reply.json();
    assert_eq!((&answer["status"], &answer["paidMinor"]), (&json!("awaiting_payment"), &json!(2_000)));
    let line = &answer["payments"][0];
    assert_eq!(
        line,
        &json!({"id": line["id"], "kind": "payment", "reference": "bank 1", "amountMinor": 2_000, "currency": "USD",
            "actor": format!("user:{}", shop.tenant.users[0]), "at": line["at"]})
    );
    assert!(line["id"].is_string());
    assert_eq!(exposure(&shop).await, 4_000);
    assert_eq!(send(&sandbox, &first).await.body, reply.body, "the same request again");
    assert_eq!(shop.db.count("payment_ledger").await, 1);

    refused(&sandbox, &pay(&shop, &id, 1, "bank 1"), 409, "payment_exists").await;
    refused(&sandbox, &pay(&shop, &id, 4_001, "bank 2"), 422, "exceeds_due").await;
    let paid = send(&sandbox, &pay(&shop, &id, 4_000, "bank 2")).await.json();
    assert_eq!(
        (&paid["status"], &paid["paidMinor"], paid["paidAt"].is_string()),
        (&json!("paid"), &json!(6_000), true)
    );
    assert_eq!(exposure(&shop).await, 0);
    refused(&sandbox, &pay(&shop, &id, 1, "bank 3"), 422, "exceeds_due").await;
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_payment_that_bounced_is_taken_back_and_the_invoice_reopened() {
    let shop = Shop::open(Seed { credit_limit_minor: Some(6_000), ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let id = invoiced(&shop, &sandbox).await;
    refused(&sandbox, &pay(&shop, &id, -1, "nothing yet"), 422, "exceeds_due").await;
    assert_eq!(send(&sandbox, &pay(&shop, &id, 6_000, "bank 1")).await.status, 201);
    let release = shop.release(0).key(&fresh_key()).json(&shop.one(0, 6));
    assert_eq!(Reply::from(release::handle(&sandbox, release.request()).await).status, 200);
    assert_eq!(allocate(&shop, 1, 0, 6).await.status, 200);
    refused(&sandbox, &pay(&shop, &id, -6_001, "bounced"), 422, "exceeds_due").await;
    let reply = send(&sandbox, &pay(&shop, &id, -6_000, "bounced")).await.json();
    assert_eq!(
        (&reply["status"], &reply["paidMinor"], &reply["refundedMinor"], &reply["paidAt"]),
        (&json!("awaiting_payment"), &json!(0), &json!(0), &json!(null))
    );
    assert_eq!(exposure(&shop).await, 12_000);
    let events: String = shop
        .db
        .scalar("select string_agg(event_type, ' ' order by sequence) from outbox where aggregate_type = 'invoice'")
        .await;
    assert_eq!(events, "invoice.created invoice.paid invoice.reopened");
    assert_eq!(shop.db.count("outbox where event_type = 'customer.over_limit'").await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn payments_side_by_side_never_bring_more_than_is_due() {
    let shop = Shop::open(Seed::default()).await;
    let sandboxes: Vec<Endpoint> = (0..4).map(|_| shop.db.endpoint()).collect();
    let id = invoiced(&shop, &sandboxes[0]).await;
    let events: Vec<Event> = (0..4).map(|n| pay(&shop, &id, 4_000, &format!("bank {n}"))).collect();
    let replies = join_all(sandboxes.iter().zip(&events).map(|(sandbox, event)| send(sandbox, event))).await;
    let mut statuses: Vec<u16> = replies.iter().map(|r| r.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 422, 422, 422]);
    assert_eq!(shop.db.count("invoice where paid_minor = 4000").await, 1);
}

#[tokio::test]
async fn a_payment_is_booked_by_those_who_may_and_names_its_sum_and_reference() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let id = invoiced(&shop, &sandbox).await;
    for body in [
        json!({"amountMinor": 0, "reference": "x"}),
        json!({"amountMinor": 10_000_000_001_i64, "reference": "x"}),
        json!({"amountMinor": -10_000_000_001_i64, "reference": "x"}),
        json!({"amountMinor": 1.5, "reference": "x"}),
        json!({"amountMinor": 1, "reference": ""}),
        json!({"amountMinor": 1, "reference": "x".repeat(256)}),
        json!({"amountMinor": 1}),
        json!({"reference": "x"}),
        json!({"amountMinor": 1, "reference": "x", "currency": "USD"}),
    ] {
        refused(&sandbox, &about(&shop, &id, "payments", &body), 400, "invalid_body").await;
    }
    let body = json!({"amountMinor": 1, "reference": "x"});
    let event = Event::post(&format!("/invoices/{id}/payments"))
        .bearer(&testing::token(shop.tenant.id, shop.tenant.users[0], "orders:write orders:read"))
        .key(&fresh_key())
        .json(&body);
    refused(&sandbox, &event, 403, "forbidden").await;
    let other = Shop { tenant: shop.db.seed(Seed::default()).await, db: shop.db };
    refused(&sandbox, &pay(&other, &id, 1, "x"), 404, "not_found").await;
    refused(&sandbox, &pay(&other, "x", 1, "x"), 404, "not_found").await;
    assert_eq!(other.db.count("payment_ledger").await, 0);
}
