//! Which payment, refund and amount counts for which invoice.

use testing::Seed;

use super::*;

async fn reasons(shop: &Shop) -> String {
    let told = "select coalesce(string_agg(event_id || ': ' || reason, '; ' order by event_id), '') from inbox_exception";
    shop.db.text(told).await
}

#[tokio::test]
async fn a_payment_pays_one_invoice_whatever_its_metadata_say_later() {
    let (shop, webhook) = open().await;
    let (first, second) = (invoice(&shop).await, invoice(&shop).await);
    tell(&webhook, &succeeded("evt_1", "pi_1", first, 5_000)).await;
    tell(&webhook, &succeeded("evt_2", "pi_1", second, 5_000)).await;
    let other = Shop { tenant: shop.db.seed(Seed::default()).await, db: shop.db };
    let third = invoice(&other).await;
    tell(&webhook, &succeeded("evt_3", "pi_1", third, 5_000)).await;
    for (invoice, is) in [(first, "paid"), (second, "awaiting_payment"), (third, "awaiting_payment")] {
        assert_eq!(status(&other, invoice).await, is);
    }
    assert_eq!(other.db.count("payment_ledger").await, 1);
    let why = "this payment has paid another invoice already";
    assert_eq!(reasons(&other).await, format!("evt_2: {why}; evt_3: {why}"));
    other.db.assert_consistent().await;
}

#[tokio::test]
async fn a_refund_of_what_did_not_pay_the_invoice_leaves_it_to_be_paid() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 4_999)).await;
    let mut back = refunded("evt_2", "pi_1", 4_999, 4_999);
    back["data"]["object"]["metadata"] = json!({"invoice_id": invoice});
    tell(&webhook, &back).await;
    assert_eq!(status(&shop, invoice).await, "awaiting_payment");
    assert_eq!(shop.db.count("payment_ledger where kind = 'refund' and amount_minor = 4999").await, 1);
    tell(&webhook, &succeeded("evt_3", "pi_3", invoice, 5_000)).await;
    assert_eq!(status(&shop, invoice).await, "paid");
    assert_eq!(state(&shop, invoice).await, "paid 9999 4999");
    assert_eq!(reasons(&shop).await, "");
}

#[tokio::test]
async fn a_refund_that_names_its_invoice_need_not_wait_for_the_payment() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    // An event with as few members as possible.
    let back = event(
        "evt_1",
        "charge.refunded",
        json!({"id": "ch_1", "refunded": true, "metadata": {"invoice_id": invoice}}),
    );
    tell(&webhook, &back).await;
    assert_eq!(
        status(&shop, invoice).await,
        "awaiting_payment",
        "nothing was brought that could be returned"
    );
    tell(&webhook, &succeeded("evt_2", "pi_1", invoice, 5_000)).await;
    assert_eq!(state(&shop, invoice).await, "refunded 5000 5000");
    let lines = "select string_agg(concat_ws(' ', kind, amount_minor, currency), ', ' order by id) from payment_ledger";
    assert_eq!(shop.db.text(lines).await, "payment 5000 USD, refund 5000 USD");
    assert_eq!(shop.db.count("invoice where paid_at is not null").await, 1);
    let events = "select string_agg(event_type, ' ' order by id) from outbox";
    assert_eq!(shop.db.text(events).await, "invoice.paid invoice.refunded");
    // Under another id the payment is no news.
    tell(&webhook, &succeeded("evt_3", "pi_1", invoice, 5_000)).await;
    assert_eq!(shop.db.text(events).await, "invoice.paid invoice.refunded");
    let payload = shop.db.text("select payload from outbox where event_type = 'invoice.paid'").await;
    let told: Value = serde_json::from_str(&payload).unwrap();
    assert_eq!(told["data"], json!({"totalMinor": 5_000, "paidMinor": 5_000, "currency": "USD"}));
    assert_eq!(told["aggregate"]["sequence"], json!(1));
    assert_eq!(reasons(&shop).await, "");
}

#[tokio::test]
async fn partial_refunds_that_add_up_are_a_full_one_and_each_is_a_line() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    tell(&webhook, &succeeded("evt_0", "pi_1", invoice, 5_000)).await;
    for (id, so_far, is) in [("evt_1", 2_000, "paid"), ("evt_2", 3_000, "paid"), ("evt_3", 5_000, "refunded")]
    {
        // The amounts also show whether the whole charge was refunded.
        let mut back = refunded(id, "pi_1", 5_000, so_far);
        back["data"]["object"].as_object_mut().unwrap().remove("refunded");
        tell(&webhook, &back).await;
        assert_eq!(status(&shop, invoice).await, is);
        // The same fact under another id.
        back["id"] = json!(format!("{id}_again"));
        tell(&webhook, &back).await;
    }
    assert_eq!(
        shop.db.count("payment_ledger where kind = 'refund' and amount_minor in (2000, 1000)").await,
        3,
        "lines that add up"
    );
    assert_eq!(shop.db.count("outbox where event_type = 'invoice.refunded'").await, 1);
    assert_eq!(reasons(&shop).await, "");
}

#[tokio::test]
async fn an_invoice_that_was_paid_twice_and_refunded_once_is_paid() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 5_000)).await;
    tell(&webhook, &succeeded("evt_2", "pi_2", invoice, 5_000)).await;
    tell(&webhook, &refunded("evt_3", "pi_2", 5_000, 5_000)).await;
    tell(&webhook, &refunded("evt_4", "pi_2", 5_000, 5_000)).await;
    assert_eq!(state(&shop, invoice).await, "paid 10000 5000");
    assert_eq!(reasons(&shop).await, "evt_2: 10000 was received of 5000: what is beyond is to be returned");
}

#[tokio::test]
async fn an_amount_or_a_currency_that_cannot_be_is_kept_and_told() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    let named = |id: &str, topic: &str, mut object: Value| {
        object["metadata"] = json!({"invoice_id": invoice});
        event(id, topic, object)
    };
    let charge = json!({"id": "ch_1", "amount": 5_000, "amount_refunded": -1, "currency": "usd"});
    let mut euro = charge.clone();
    (euro["amount_refunded"], euro["currency"]) = (json!(5_000), json!("eur"));
    let dispute = json!({"id": "dp_1", "amount": -1, "currency": "usd"});
    let told = [
        succeeded("a", "pi_1", invoice, -1),
        named("b", "charge.refunded", charge),
        named("c", "charge.refunded", json!({"id": "ch_1", "currency": "usd"})),
        named("d", "charge.refunded", euro),
        named("e", "charge.dispute.created", dispute.clone()),
        named("f", "payment_intent.payment_failed", json!({"id": "pi_1", "amount": -1, "currency": "usd"})),
        named("g", "payment_intent.succeeded", json!({"id": "pi_1", "amount_received": 5_000})),
        named(
            "h",
            "charge.dispute.created",
            json!({"id": "jo@buyer.test", "amount": "jo@buyer.test", "currency": ""}),
        ),
        named("i", "charge.dispute.created", json!({"id": "x".repeat(256), "amount": 1, "currency": "usd"})),
    ];
    for event in &told {
        assert_eq!(tell(&webhook, event).await.json(), received(), "{event}");
    }
    let tenant = shop.tenant.id;
    let kept = format!("inbox_exception where tenant_id = '{tenant}' and char_length(reason) < 100");
    assert_eq!(shop.db.count(&kept).await, 9, "whose it is can be read all the same");
    assert_eq!(shop.db.count("outbox where event_type = 'inbox.exception'").await, 9);
    assert_eq!(shop.db.count("outbox where payload like '%buyer.test%'").await, 0, "a reason quotes nobody");
    assert_eq!(shop.db.count("payment_ledger").await, 0);
    assert_eq!(state(&shop, invoice).await, "awaiting_payment 0 0");
    // Members of a type that is not processed are not read.
    tell(&webhook, &named("j", "customer.updated", dispute)).await;
    assert_eq!(shop.db.count("webhook_inbox where provider = 'stripe' and event_id = 'j'").await, 1);
    assert_eq!(shop.db.count("inbox_exception").await, 9);
}

#[tokio::test]
async fn a_payment_for_something_else_is_none_of_ours() {
    let (shop, webhook) = open().await;
    for (id, topic, metadata) in [
        ("a", "payment_intent.succeeded", json!(null)),
        ("b", "payment_intent.succeeded", json!({})),
        ("c", "payment_intent.payment_failed", json!({"invoice": "5"})),
    ] {
        let object =
            json!({"id": "pi_1", "amount_received": 1, "amount": 1, "currency": "usd", "metadata": metadata});
        assert_eq!(tell(&webhook, &event(id, topic, object)).await.json(), received());
    }
    assert_eq!(shop.db.count("webhook_inbox").await, 3);
    assert_eq!(shop.db.count("inbox_exception").await, 0);
}

#[tokio::test]
async fn whose_an_event_is_can_be_told_by_its_payment_and_nobody_elses_is_woken() {
    let (shop, webhook) = open().await;
    let (first, second) = (invoice(&shop).await, invoice(&shop).await);
    // An unknown invoice does not wait for its payment: that of another invoice would not help.
    tell(&webhook, &succeeded("evt_1", "pi_1", Uuid::new_v4(), 5_000)).await;
    tell(&webhook, &refunded("evt_2", "pi_2", 5_000, 5_000)).await;
    let waiting = "select string_agg(concat_ws(' ', event_id, reason, waits_for), '; ' order by event_id) from inbox_exception where tenant_id is null";
    assert_eq!(
        shop.db.text(waiting).await,
        "evt_1 no invoice of ours is meant; evt_2 no invoice of ours is meant payment_intent:pi_2"
    );
    tell(&webhook, &succeeded("evt_3", "pi_1", first, 5_000)).await;
    assert_eq!(
        (status(&shop, first).await.as_str(), status(&shop, second).await.as_str()),
        ("paid", "awaiting_payment")
    );
    assert_eq!(shop.db.count("inbox_exception where tenant_id is null and resolved_at is null").await, 2);
    tell(&webhook, &succeeded("evt_4", "pi_2", second, 5_000)).await;
    assert_eq!(status(&shop, second).await, "refunded");
    let woken = "inbox_exception where event_id = 'evt_2' and tenant_id is not null and attempts = 2 and resolved_by = 'stripe/evt_4' and waits_for is null";
    assert_eq!(shop.db.count(woken).await, 1);
    // It names an unknown invoice and a known payment.
    let mut astray = refunded("evt_5", "pi_1", 5_000, 1_000);
    astray["data"]["object"]["metadata"] = json!({"invoice_id": Uuid::new_v4()});
    tell(&webhook, &astray).await;
    assert_eq!(
        shop.db
            .count("inbox_exception where reason = 'there is no such invoice' and tenant_id is not null")
            .await,
        1
    );
    assert_eq!(status(&shop, first).await, "paid");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_delivery_is_received_under_read_committed_and_no_other_way() {
    let (shop, _) = open().await;
    let mut app = shop.db.app().await;
    sqlx::raw_sql("set default_transaction_isolation = 'repeatable read'").execute(&mut app).await.unwrap();
    let sql =
        "select holdfast.receive('{\"provider\":\"stripe\",\"eventId\":\"evt_1\",\"topic\":\"x\"}', '')";
    let refused = sqlx::raw_sql(sql).execute(&mut app).await.unwrap_err().to_string();
    assert!(refused.contains("READ COMMITTED"), "{refused}");
}

#[tokio::test]
async fn a_refund_of_the_total_is_no_full_one_where_more_was_paid() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 6_000)).await;
    tell(&webhook, &refunded("evt_2", "pi_1", 6_000, 5_000)).await;
    assert_eq!(status(&shop, invoice).await, "paid");
    tell(&webhook, &refunded("evt_3", "pi_1", 6_000, 6_000)).await;
    assert_eq!(status(&shop, invoice).await, "refunded");
    // An event that moves no money may have any currency: it is recorded as it came.
    let mut lost = event(
        "evt_4",
        "charge.dispute.created",
        json!({"id": "dp_1", "payment_intent": "pi_1", "amount": 5_500, "currency": "eur"}),
    );
    tell(&webhook, &lost).await;
    (lost["id"], lost["type"]) = (json!("evt_5"), json!("payment_intent.payment_failed"));
    lost["data"]["object"]["metadata"] = json!({"invoice_id": invoice});
    tell(&webhook, &lost).await;
    assert_eq!(shop.db.count("payment_ledger where currency = 'EUR' and amount_minor = 5500").await, 2);
    assert_eq!(reasons(&shop).await.matches("what is beyond is to be returned").count(), 1);
}
