//! The effect of each event on an invoice.

use testing::Seed;

use super::*;

#[tokio::test]
async fn a_payment_pays_its_invoice_once() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    let reply = tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 5_000)).await;
    assert_eq!((reply.status, reply.json()), (200, received()));
    assert_eq!(status(&shop, invoice).await, "paid");
    assert_eq!(tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 5_000)).await.json(), duplicate());
    // Another event reports the same payment; so does the first one, after the reaper.
    assert_eq!(tell(&webhook, &succeeded("evt_2", "pi_1", invoice, 5_000)).await.json(), received());
    shop.db.execute("delete from webhook_inbox").await;
    assert_eq!(tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 5_000)).await.json(), received());
    assert_eq!(
        shop.db
            .count("payment_ledger where kind = 'payment' and reference = 'pi_1' and amount_minor = 5000")
            .await,
        1
    );
    assert_eq!(shop.db.count("payment_ledger").await, 1);
    assert_eq!(shop.db.count("invoice where paid_at is not null").await, 1);
    let payload = shop.db.text("select payload from outbox where event_type = 'invoice.paid'").await;
    let told: Value = serde_json::from_str(&payload).unwrap();
    assert_eq!(told["data"], json!({"totalMinor": 5_000, "paidMinor": 5_000, "currency": "USD"}));
    assert_eq!((&told["aggregate"]["id"], &told["aggregate"]["type"]), (&json!(invoice), &json!("invoice")));
    assert_eq!(shop.db.count("outbox").await, 1);
    assert_eq!(shop.db.count("inbox_exception").await, 0);
    shop.db.assert_consistent().await;
    for sql in [
        "update payment_ledger set amount_minor = 1",
        "delete from payment_ledger",
        "truncate payment_ledger",
    ] {
        let refused = sqlx::raw_sql(sql).execute(&mut shop.db.owner().await).await.unwrap_err();
        assert!(refused.to_string().contains("append-only"), "{refused}");
    }
}

#[tokio::test]
async fn what_does_not_fit_is_kept_whole_and_told() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    let yen = invoice_in(&shop, "JPY", 5_000).await;
    let with = |id: &str, member: &str, value: Value| {
        let mut event = succeeded(id, &format!("pi_{id}"), invoice, 5_000);
        event["data"]["object"][member] = value;
        event
    };
    let wrong = [
        (with("currency", "currency", json!("eur")), true),
        (with("stranger", "metadata", json!({"invoice_id": Uuid::new_v4()})), false),
        (with("no-uuid", "metadata", json!({"invoice_id": "INV-1"})), false),
        (with("nul", "id", json!("pi_\0")), true),
        (with("text", "amount_received", json!("5000")), true),
        (with("fraction", "amount_received", json!(5_000.5)), true),
        (with("huge", "amount_received", json!(1e30)), true),
        (with("list", "metadata", json!([invoice])), false),
    ];
    for (event, _) in &wrong {
        let reply = tell(&webhook, event).await;
        assert_eq!((reply.status, reply.json()), (200, received()), "{event}");
        let id = event["id"].as_str().unwrap();
        let body = shop
            .db
            .text(format!("select convert_from(body, 'UTF8') from inbox_exception where event_id = '{id}'"))
            .await;
        assert_eq!(body, event.to_string(), "kept whole");
        assert_eq!(tell(&webhook, event).await.json(), duplicate());
    }
    assert_eq!(status(&shop, invoice).await, "awaiting_payment");
    assert_eq!(
        shop.db.count("payment_ledger").await,
        1,
        "money in another currency does not count, but was received"
    );
    assert_eq!(state(&shop, invoice).await, "awaiting_payment 0 0");
    let known = wrong.iter().filter(|(_, known)| *known).count();
    let told = "outbox where event_type = 'inbox.exception' and aggregate_type = 'inbox_exception'";
    assert_eq!(shop.db.count(told).await, i64::try_from(known).unwrap());
    let nobodys = "inbox_exception where tenant_id is null";
    assert_eq!(shop.db.count(nobodys).await, i64::try_from(wrong.len() - known).unwrap());
    // An overpayment pays, and a person looks at it; amounts in a zero-decimal currency are whole units.
    assert_eq!(tell(&webhook, &succeeded("evt_more", "pi_more", invoice, 5_001)).await.status, 200);
    let mut event = succeeded("evt_yen", "pi_yen", yen, 5_000);
    event["data"]["object"]["currency"] = json!("jpy");
    tell(&webhook, &event).await;
    assert_eq!((status(&shop, invoice).await, status(&shop, yen).await), ("paid".into(), "paid".into()));
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn refunds_failures_and_disputes_are_recorded_and_part_of_them_changes_nothing() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    let failed = event(
        "evt_f",
        "payment_intent.payment_failed",
        json!({"id": "pi_1", "amount": 5_000, "currency": "usd",
        "metadata": {"invoice_id": invoice}, "last_payment_error": {"charge": "ch_0", "code": "card_declined"}}),
    );
    tell(&webhook, &failed).await;
    assert_eq!(status(&shop, invoice).await, "awaiting_payment");
    tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 5_000)).await;
    let mut late = failed.clone();
    late["id"] = json!("evt_f2");
    tell(&webhook, &late).await;
    assert_eq!(status(&shop, invoice).await, "paid", "a failure never takes a payment back");
    tell(&webhook, &refunded("evt_2", "pi_1", 5_000, 1_200)).await;
    assert_eq!(status(&shop, invoice).await, "paid", "a partial refund is a line");
    let dispute = event(
        "evt_3",
        "charge.dispute.created",
        json!({"id": "dp_1", "charge": "ch_pi_1", "payment_intent": "pi_1",
        "amount": 5_000, "currency": "usd"}),
    );
    tell(&webhook, &dispute).await;
    assert_eq!(shop.db.count("invoice where disputed_at is not null and status = 'paid'").await, 1);
    assert_eq!(shop.db.count("inbox_exception where reason like 'the payment is disputed%'").await, 1);
    tell(&webhook, &refunded("evt_4", "pi_1", 5_000, 5_000)).await;
    assert_eq!(status(&shop, invoice).await, "refunded");
    tell(&webhook, &succeeded("evt_5", "pi_1", invoice, 5_000)).await;
    assert_eq!(status(&shop, invoice).await, "refunded", "told again, it changes nothing");
    let lines = shop.db.text("select string_agg(kind || ' ' || reference || ' ' || amount_minor, ', ' order by id) from payment_ledger").await;
    assert_eq!(
        lines,
        "failure ch_0 5000, payment pi_1 5000, refund ch_pi_1:1200 1200, dispute dp_1 5000, refund ch_pi_1:5000 3800"
    );
    let events = shop
        .db
        .text("select string_agg(event_type, ' ' order by id) from outbox where aggregate_type = 'invoice'")
        .await;
    assert_eq!(events, "invoice.paid invoice.refunded");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_second_payment_is_in_the_books_and_before_a_person() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 5_000)).await;
    tell(&webhook, &succeeded("evt_2", "pi_2", invoice, 5_000)).await;
    assert_eq!(status(&shop, invoice).await, "paid");
    assert_eq!(shop.db.count("payment_ledger where kind = 'payment'").await, 2);
    assert_eq!(
        shop.db
            .count("inbox_exception where event_id = 'evt_2' and reason like '10000 was received of 5000%'")
            .await,
        1
    );
    assert_eq!(shop.db.count("outbox where event_type = 'invoice.paid'").await, 1);
}

#[tokio::test]
async fn test_events_touch_nothing_on_a_live_stack() {
    let (shop, mut webhook) = open().await;
    let invoice = invoice(&shop).await;
    let test = succeeded("evt_1", "pi_1", invoice, 5_000);
    let mut live = test.clone();
    live["livemode"] = json!(true);
    webhook.livemode = Livemode::Live;
    assert_eq!(tell(&webhook, &test).await.json(), received());
    assert_eq!(shop.db.count("webhook_inbox").await, 0);
    webhook.livemode = Livemode::Test;
    assert_eq!(tell(&webhook, &live).await.json(), received());
    assert_eq!(
        (status(&shop, invoice).await.as_str(), shop.db.count("webhook_inbox").await),
        ("awaiting_payment", 0)
    );
    webhook.livemode = Livemode::Live;
    tell(&webhook, &live).await;
    assert_eq!(status(&shop, invoice).await, "paid");
}

#[tokio::test]
async fn the_published_events_are_read_and_those_of_other_businesses_let_be() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    let mut seen = 0;
    for name in [
        "payment_intent.succeeded",
        "payment_intent.payment_failed",
        "charge.refunded",
        "charge.succeeded",
        "checkout.session.completed",
        "invoice.paid",
    ] {
        let Some(body) = case(&format!("stripe/events/{name}.json")) else { continue };
        let mut published: Value = serde_json::from_slice(&body).unwrap();
        published["id"] = json!(format!("evt_{name}"));
        assert_eq!(tell(&webhook, &published).await.json(), received(), "{name}");
        seen += 1;
    }
    assert_eq!(shop.db.count("webhook_inbox").await, seen);
    assert_eq!(shop.db.count("payment_ledger").await, 0);
    let Some(body) = case("stripe/events/payment_intent.succeeded.json") else { return };
    let mut ours: Value = serde_json::from_slice(&body).unwrap();
    ours["data"]["object"]["metadata"] = json!({"invoice_id": invoice, "other": "x"});
    ours["data"]["object"]["amount_received"] = json!(5_000);
    tell(&webhook, &ours).await;
    assert_eq!(status(&shop, invoice).await, "paid");
}

#[tokio::test]
async fn another_tenants_invoice_is_that_tenants_affair() {
    let (shop, webhook) = open().await;
    let other = Shop { tenant: shop.db.seed(Seed::default()).await, db: shop.db };
    let invoice = invoice(&other).await;
    tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 5_000)).await;
    let tenant = other.tenant.id;
    assert_eq!(other.db.count(&format!("payment_ledger where tenant_id = '{tenant}'")).await, 1);
    assert_eq!(
        other.db.count(&format!("outbox where tenant_id = '{tenant}' and event_type = 'invoice.paid'")).await,
        1
    );
}

#[tokio::test]
async fn hostile_bodies_are_kept_or_read_and_never_break_a_sandbox() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let closed = br#"{"id":"evt_n","type":"x","a":""#.to_vec();
    let bodies: [Vec<u8>; 9] = [
        b"".to_vec(),
        b"null".to_vec(),
        b"[]".to_vec(),
        br#"["evt_1","payment_intent.succeeded",null]"#.to_vec(),
        deep.clone().into_bytes(),
        "[".repeat(100_000).into_bytes(),
        closed,
        b"\xff\xfe".to_vec(),
        "\u{feff}{}".into(),
    ];
    for body in &bodies {
        let reply = send(&webhook, &signed(body)).await;
        assert_eq!((reply.status, reply.json()), (200, received()));
        assert_eq!(send(&webhook, &signed(body)).await.json(), duplicate(), "named after its bytes");
    }
    assert_eq!(shop.db.count("inbox_exception where body = ''").await, 1);
    assert_eq!(shop.db.count("inbox_exception").await, 9);
    assert_eq!(shop.db.count("inbox_exception where reason = 'the body is not an object'").await, 5);
    // Members that are not used may have any value.
    let event = succeeded("evt_1", "pi_1", invoice, 5_000).to_string();
    let around = format!(r#"{{"deep":{deep},"lone":"\ud800","nul":"\u0000","big":1e999999,{}"#, &event[1..]);
    assert_eq!(send(&webhook, &signed(around.as_bytes())).await.json(), received());
    assert_eq!(status(&shop, invoice).await, "paid");
    // Used members may not: a lone surrogate is not valid text.
    let lone = event.replace("pi_1", r"pi_\ud800").replace("evt_1", "evt_2");
    send(&webhook, &signed(lone.as_bytes())).await;
    assert_eq!(shop.db.count("inbox_exception where event_id = 'evt_2'").await, 1);
    // Lambda accepts up to six megabytes.
    let mut large = succeeded("evt_3", "pi_3", Uuid::new_v4(), 5_000);
    large["data"]["object"]["description"] = json!("x".repeat(5_900_000));
    assert_eq!(tell(&webhook, &large).await.json(), received());
    assert_eq!(
        shop.db.count("inbox_exception where event_id = 'evt_3' and octet_length(body) > 5900000").await,
        1
    );
}
