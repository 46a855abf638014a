//! Inbox row and effect commit together or not at all; hostile bodies.

use futures_util::future::join_all;

use super::*;

#[tokio::test]
async fn an_effect_that_failed_leaves_no_row_and_the_redelivery_runs() {
    let (shop, webhook) = open(Seed::default()).await;
    shop.db.execute(
        "create function fail() returns trigger language plpgsql as $$ begin raise exception 'disk full'; end $$;
         create trigger fail before insert on outbox for each row execute function fail()",
    ).await;
    let body = order(1, &[(11, 0, 2)]);
    let reply = tell(&webhook, "1", "orders/create", &body).await;
    assert_eq!((reply.status, reply.error().as_deref()), (500, Some("internal")));
    for table in ["webhook_inbox", "inbox_exception", "channel_order", "allocation_ledger"] {
        assert_eq!(shop.db.count(table).await, 0, "{table}");
    }
    shop.db.execute("drop trigger fail on outbox").await;
    took(&webhook, "1", "orders/create", &body).await;
    assert_eq!(positions(&shop).await, "6 2");
}

#[tokio::test]
async fn fifty_deliveries_at_once_have_one_effect_and_no_failure() {
    let (shop, _) = open(Seed::default()).await;
    let sandboxes: Vec<Webhook> = (0..50).map(|_| webhook(&shop)).collect();
    let body = order(1, &[(11, 0, 2)]);
    let replies = join_all(sandboxes.iter().map(|sandbox| tell(sandbox, "1", "orders/create", &body))).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| reply.json() == received()).count(), 1);
    assert_eq!(positions(&shop).await, "6 2");
    // More orders at once than there is stock for.
    let bodies: Vec<Value> = (2..52).map(|n| order(n, &[(n * 10, 0, 1)])).collect();
    let ids: Vec<String> = (2..52).map(|n| n.to_string()).collect();
    let all = sandboxes.iter().zip(&ids).zip(&bodies);
    let replies = join_all(all.map(|((sandbox, id), body)| tell(sandbox, id, "orders/create", body))).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    assert_eq!(
        (positions(&shop).await, open_shortfalls(&shop).await),
        ("6 6".into(), "channel_order 46".into())
    );
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn hostile_bodies_are_kept_or_read_and_never_break_a_sandbox() {
    let (shop, webhook) = open(Seed::default()).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let good = order(1, &[(11, 0, 2)]).to_string();
    let bad = [
        String::new(),
        deep.clone(),
        "[".repeat(100_000),
        good.replace("SKU-0001", r"SKU\u0000"),
        good.replace("SKU-0001", r"SKU\ud800"),
        good.replace("\"id\":11", "\"id\":11.5"),
        good.replace("\"id\":11", "\"id\":99999999999999999999999"),
        good.replace("\"quantity\":2", "\"quantity\":-2"),
        good.replace("\"quantity\":2", "\"quantity\":99999999"),
        good.replace("\"line_items\"", r#""id":2,"line_items""#),
        good.replace("\"id\":11", r#""id":"a\u0000""#).replace("\"quantity\":2", "\"quantity\":-2"),
        good.replace("\"id\":11", &format!("\"id\":\"{}\"", "9".repeat(300_000)))
            .replace("\"quantity\":2", "\"quantity\":-2"),
    ];
    for (index, body) in bad.iter().enumerate() {
        let event = signed(DOMAIN, &format!("bad{index}"), "orders/create", body.as_bytes());
        assert_eq!(send(&webhook, &event).await.json(), received(), "{index}");
        let kept = format!("inbox_exception where event_id = 'bad{index}' and tenant_id is not null");
        assert_eq!(shop.db.count(&kept).await, 1, "{index}: {}", &body[..body.len().min(300)]);
    }
    assert_eq!(shop.db.count("inbox_exception where char_length(reason) > 500").await, 0);
    assert_eq!(positions(&shop).await, "6 0");
    let unknown = refund(1, &[(91, 11, 1, "burnt")]);
    took(&webhook, "r", "refunds/create", &unknown).await;
    assert_eq!(
        shop.db
            .count("inbox_exception where reason like 'refund_line_items[0].restock_type is not one of %'")
            .await,
        1
    );
    let many: Vec<(i64, i64, i64, &str)> = (0..1_001).map(|n| (n, 11, 1, "cancel")).collect();
    took(&webhook, "many", "refunds/create", &refund(1, &many)).await;
    assert_eq!(
        shop.db.count("inbox_exception where reason = 'refund_line_items holds more than 1000 lines'").await,
        1
    );
    let long = format!("{}.myshopify.com", "x".repeat(3_000));
    assert_eq!(send(&webhook, &signed(&long, "l", "orders/create", good.as_bytes())).await.status, 401);
    let around = format!(r#"{{"x":{deep},"note":"\u0000 \ud800",{}"#, &good[1..]);
    assert_eq!(
        send(&webhook, &signed(DOMAIN, "1", "orders/create", around.as_bytes())).await.json(),
        received()
    );
    assert_eq!(positions(&shop).await, "6 2");
}
