//! Which of Stripe's objects tell of which fact, and what a person must look at.

use super::*;

fn named(invoice: Uuid, mut event: Value) -> Value {
    event["data"]["object"]["metadata"] = json!({"invoice_id": invoice});
    event
}

async fn reason(shop: &Shop, event: &str) -> String {
    shop.db
        .text(format!("select coalesce((select reason from inbox_exception where event_id = '{event}'), '')"))
        .await
}

#[tokio::test]
async fn every_object_that_can_name_the_invoice_tells_of_the_payment_and_it_counts_once() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    let charge = json!({"id": "ch_1", "amount": 2_000, "amount_captured": 2_000, "captured": true, "currency": "usd",
        "payment_intent": {"id": "pi_1"}});
    let session = json!({"id": "cs_1", "amount_total": 2_000, "payment_status": "paid", "currency": "usd", "payment_intent": "pi_1"});
    let bill = json!({"id": "in_1", "amount_paid": 2_000, "currency": "usd", "payment_intent": "pi_1"});
    for (id, topic, object) in [
        ("a", "charge.succeeded", &charge),
        ("b", "charge.captured", &charge),
        ("c", "checkout.session.completed", &session),
        ("d", "checkout.session.async_payment_succeeded", &session),
        ("e", "invoice.paid", &bill),
    ] {
        tell(&webhook, &named(invoice, event(id, topic, object.clone()))).await;
        assert_eq!(state(&shop, invoice).await, "awaiting_payment 2000 0", "{topic}");
    }
    tell(&webhook, &succeeded("f", "pi_1", invoice, 2_000)).await;
    assert_eq!(state(&shop, invoice).await, "awaiting_payment 2000 0");
    // A refund that names the charge alone finds it all the same.
    let back =
        json!({"id": "re_1", "amount": 500, "currency": "usd", "charge": "ch_1", "status": "succeeded"});
    tell(&webhook, &event("g", "refund.created", back)).await;
    assert_eq!(state(&shop, invoice).await, "awaiting_payment 2000 500");

    // Without an intent the object's own id counts.
    let mut newer = bill.clone();
    newer.as_object_mut().unwrap().remove("payment_intent");
    newer["amount_paid"] = json!(3_000);
    tell(&webhook, &named(invoice, event("h", "invoice.paid", newer.clone()))).await;
    tell(&webhook, &named(invoice, event("i", "invoice.paid", newer))).await;
    assert_eq!(state(&shop, invoice).await, "paid 5000 500");
    assert_eq!(
        shop.db.count("payment_ledger where kind = 'payment' and reference in ('pi_1', 'in_1')").await,
        2
    );

    // What is not paid yet, and what is only authorised, is nothing.
    let (mut unpaid, mut held) = (session, charge);
    (unpaid["payment_status"], unpaid["payment_intent"]) = (json!("unpaid"), json!("pi_9"));
    (held["captured"], held["payment_intent"]) = (json!(false), json!("pi_9"));
    tell(&webhook, &named(invoice, event("j", "checkout.session.completed", unpaid))).await;
    tell(&webhook, &named(invoice, event("k", "charge.succeeded", held))).await;
    assert_eq!(state(&shop, invoice).await, "paid 5000 500");
    assert_eq!(shop.db.count("inbox_exception").await, 0);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn refunds_by_id_decide_where_they_reach_the_running_total_of_their_charge() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    tell(&webhook, &succeeded("1", "pi_1", invoice, 5_000)).await;
    let told = [
        (at(10, refunded("2", "pi_1", 5_000, 2_000)), 2_000),
        (at(10, refund("3", "refund.created", "pi_1", ("re_1", 2_000, "succeeded"))), 2_000),
        (at(20, refunded("4", "pi_1", 5_000, 5_000)), 5_000),
        (at(20, refund("5", "refund.created", "pi_1", ("re_2", 3_000, "pending"))), 5_000),
        (at(30, refund("6", "refund.failed", "pi_1", ("re_2", 3_000, "failed"))), 2_000),
        (at(25, refund("7", "refund.updated", "pi_1", ("re_2", 3_000, "succeeded"))), 2_000),
        (at(40, refund("8", "refund.updated", "pi_1", ("re_1", 2_000, "canceled"))), 0),
        (at(5, refunded("9", "pi_1", 5_000, 1_000)), 0),
        (at(50, refunded("10", "pi_1", 5_000, 5_000)), 5_000),
    ];
    for (event, returned) in told {
        tell(&webhook, &event).await;
        let is = if returned == 5_000 { "refunded" } else { "paid" };
        assert_eq!(state(&shop, invoice).await, format!("{is} 5000 {returned}"), "{event}");
    }
    let summed = "select sum(amount_minor)::text from payment_ledger where kind = 'refund'";
    assert_eq!(shop.db.text(summed).await, "5000");
    assert_eq!(shop.db.count("inbox_exception").await, 0);
}

#[tokio::test]
async fn a_dispute_is_shown_while_it_is_open_and_takes_the_money_when_it_is_lost() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    tell(&webhook, &succeeded("0", "pi_1", invoice, 5_000)).await;
    let told = [
        (1, "created", "warning_needs_response", "paid 5000 0"),
        (2, "updated", "warning_under_review", "paid 5000 0"),
        (3, "updated", "needs_response", "paid 5000 0 disputed"),
        (4, "funds_withdrawn", "under_review", "paid 5000 0 disputed"),
        (6, "closed", "lost", "refunded 5000 5000"),
        (5, "updated", "under_review", "refunded 5000 5000"),
        (7, "funds_reinstated", "won", "paid 5000 0"),
        (8, "closed", "prevented", "paid 5000 0"),
    ];
    for (n, topic, status, is) in told {
        tell(&webhook, &at(n, disputed(&format!("d{n}"), topic, "pi_1", status))).await;
        assert_eq!(state(&shop, invoice).await, is, "{status}");
    }
    let lines = "select string_agg(concat_ws(' ', kind, reference, amount_minor), ', ' order by id) from payment_ledger";
    assert_eq!(
        shop.db.text(lines).await,
        "payment pi_1 5000, dispute dp_pi_1 5000, chargeback dp_pi_1 5000, chargeback dp_pi_1 -5000"
    );
    let events =
        "select string_agg(event_type, ' ' order by id) from outbox where aggregate_type = 'invoice'";
    assert_eq!(shop.db.text(events).await, "invoice.paid invoice.refunded invoice.paid");
    assert_eq!(shop.db.count("inbox_exception where reason like 'the payment is disputed%'").await, 2);
}

#[tokio::test]
async fn money_that_a_person_must_look_at_is_kept_and_told() {
    let (shop, webhook) = open().await;
    let (paid, void, euro, ended) =
        (invoice(&shop).await, invoice(&shop).await, invoice(&shop).await, invoice(&shop).await);
    let order = shop.tenant.orders[0];
    shop.db
        .execute(format!(
            "update invoice set status = 'void' where id = '{void}';
         update invoice set order_id = '{order}' where id = '{ended}';
         update wholesale_order set status = 'cancelled' where id = '{order}'"
        ))
        .await;
    tell(&webhook, &succeeded("more", "pi_1", paid, 5_001)).await;
    tell(&webhook, &succeeded("void", "pi_2", void, 5_000)).await;
    tell(&webhook, &succeeded("ended", "pi_3", ended, 5_000)).await;
    let mut foreign = succeeded("euro", "pi_4", euro, 5_000);
    foreign["data"]["object"]["currency"] = json!("eur");
    tell(&webhook, &foreign).await;
    for (event, invoice, is, why) in [
        ("more", paid, "paid 5001 0", "5001 was received of 5000: what is beyond is to be returned"),
        ("void", void, "void 5000 0", "the invoice is void: the money is to be returned"),
        ("ended", ended, "paid 5000 0", "the order is cancelled: see whether the money is to be returned"),
        (
            "euro",
            euro,
            "awaiting_payment 0 0",
            "the invoice is in USD: what is in another currency does not count for it",
        ),
    ] {
        assert_eq!(state(&shop, invoice).await, is);
        assert_eq!(reason(&shop, event).await, why);
    }
    assert_eq!(shop.db.count("payment_ledger where kind = 'payment'").await, 4);
    assert_eq!(shop.db.count("outbox where event_type = 'invoice.paid'").await, 2);
    shop.db.assert_consistent().await;
}
