//! Inbox row and effect commit together or not at all; hostile bodies.

use futures_util::future::join_all;

use super::*;

#[tokio::test]
async fn an_effect_that_failed_leaves_no_row_and_the_redelivery_runs() {
    let (shop, webhook) = open(Seed::default()).await;
    shop.db.execute(
        "create function fail() returns trigger language plpgsql as $$ begin raise exception 'disk full'; end $$;
         create trigger fail before insert on stock_ledger for each row execute function fail()",
    ).await;
    let event = announced("A", &[("1", 0, 5)]);
    let reply = tell(&webhook, "1", &event).await;
    assert_eq!((reply.status, reply.error().as_deref()), (500, Some("internal")));
    for table in ["webhook_inbox", "inbox_exception", "asn", "threepl_line", "outbox"] {
        assert_eq!(shop.db.count(table).await, 0, "{table}");
    }
    shop.db.execute("drop trigger fail on stock_ledger").await;
    took(&webhook, "1", &event).await;
    assert_eq!(positions(&shop).await, "6 5 0");
}

#[tokio::test]
async fn fifty_deliveries_at_once_have_one_effect_and_no_failure() {
    let (shop, _) = open(Seed { on_hand: 50, ..Seed::default() }).await;
    promise(&shop, 0, 0, 6).await;
    let sandboxes: Vec<Webhook> = (0..50).map(|_| webhook(&shop)).collect();
    let event = shipped(&shop, 0, "S1", &[("1", 0, 6)]);
    let ids: Vec<String> = (0..50).map(|n| format!("m{}", n / 2)).collect();
    let replies = join_all(sandboxes.iter().zip(&ids).map(|(sandbox, id)| tell(sandbox, id, &event))).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| reply.json() == duplicate()).count(), 25);
    assert_eq!(positions(&shop).await, "44 0 0");
    assert_eq!(shop.db.count("outbox where event_type = 'order.shipped'").await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn crossing_asns_of_the_same_skus_never_deadlock() {
    let (shop, _) = open(Seed { skus: 8, on_hand: 0, ..Seed::default() }).await;
    let sandboxes: Vec<Webhook> = (0..8).map(|_| webhook(&shop)).collect();
    for round in 0..10 {
        let events: Vec<Value> = (0..8)
            .map(|n| {
                let mut of: Vec<(&str, usize, i64)> =
                    vec![("1", 0, 1), ("2", 1, 1), ("3", 2, 1), ("4", 3, 1), ("5", 4, 1)];
                if n % 2 == 1 {
                    of.reverse()
                }
                announced(&format!("A{round}-{n}"), &of)
            })
            .collect();
        let ids: Vec<String> = (0..8).map(|n| format!("m{round}-{n}")).collect();
        let all = sandboxes.iter().zip(&ids).zip(&events);
        let replies = join_all(all.map(|((sandbox, id), event)| tell(sandbox, id, event))).await;
        assert!(replies.iter().all(|reply| reply.json() == received()), "{replies:?}");
    }
    shop.db.assert_no_deadlock().await;
    assert!(positions(&shop).await.starts_with("0 80 0"));
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn hostile_bodies_are_kept_or_read_and_never_break_a_sandbox() {
    let (shop, webhook) = open(Seed::default()).await;
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (id, body) in [
        ("1", "".to_owned()),
        ("2", deep.clone()),
        ("3", "[".repeat(100_000)),
        ("4", r#"{"type":"asn.created""#.into()),
    ] {
        let reply = send(&webhook, &signed(id, body.as_bytes())).await;
        assert_eq!((reply.status, reply.json()), (200, received()), "{id}");
    }
    assert_eq!(shop.db.count("inbox_exception").await, 4);
    let event = announced("A", &[("1", 0, 5)]).to_string();
    let around = format!(r#"{{"x":{deep},"lone":"\ud800","nul":"\u0000",{}"#, &event[1..]);
    assert_eq!(send(&webhook, &signed("5", around.as_bytes())).await.json(), received());
    assert_eq!(positions(&shop).await, "6 5 0");
    // Very many lines take few statements; too many are left to a person.
    for (id, lines, after) in [("6", 5_000, "6 5005 0"), ("7", 5_001, "6 5005 0")] {
        let many: Vec<Value> =
            (0..lines).map(|n| json!({"lineId": n, "sku": "SKU-0001", "qty": 1})).collect();
        assert_eq!(
            tell(&webhook, id, &json!({"type": "asn.created", "asnId": id, "lines": many})).await.json(),
            received()
        );
        assert_eq!(positions(&shop).await, after);
    }
    assert_eq!(shop.db.count("inbox_exception where event_id = '7' and command is null").await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_document_of_five_thousand_skus_is_booked_in_time() {
    let (shop, webhook) = open(Seed { skus: 5_000, on_hand: 0, orders: 0, ..Seed::default() }).await;
    let of: Vec<Value> =
        (1..=5_000).map(|n| json!({"lineId": n, "sku": format!("SKU-{n:04}"), "qty": 2})).collect();
    for (id, event) in [
        ("1", json!({"type": "asn.created", "asnId": "A", "lines": of})),
        ("2", json!({"type": "asn.received", "asnId": "A", "receiptId": "R", "closed": true, "lines": of})),
    ] {
        // Sent again where a busy machine had no time for it; what always takes too long is never taken.
        let mut tries = 0;
        while tell(&webhook, id, &event).await.status != 200 {
            tries += 1;
            assert!(tries < 10, "{} takes too long each time", event["type"]);
        }
    }
    assert_eq!(shop.db.count("sku_position where (on_hand, on_order) = (2, 0)").await, 5_000);
    shop.db.assert_consistent().await;
}
