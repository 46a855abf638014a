//! Inbox row and effect commit together or not at all.

use std::time::Duration;

use futures_util::future::join_all;
use testing::Proxy;

use super::*;

#[tokio::test]
async fn an_effect_that_failed_leaves_no_row_and_the_redelivery_runs() {
    let (shop, webhook) = open().await;
    let invoice = invoice(&shop).await;
    shop.db.execute(
        "create function fail() returns trigger language plpgsql as $$ begin raise exception 'disk full'; end $$;
         create trigger fail before insert on payment_ledger for each row execute function fail()",
    ).await;
    let event = succeeded("evt_1", "pi_1", invoice, 5_000);
    let reply = tell(&webhook, &event).await;
    assert_eq!((reply.status, reply.error().as_deref()), (500, Some("internal")));
    assert!(!String::from_utf8(reply.body).unwrap().contains("disk"));
    assert_eq!(shop.db.count("webhook_inbox").await + shop.db.count("inbox_exception").await, 0);
    shop.db.execute("drop trigger fail on payment_ledger").await;
    assert_eq!(tell(&webhook, &event).await.json(), received());
    assert_eq!(status(&shop, invoice).await, "paid");
}

#[tokio::test]
async fn a_lost_answer_makes_the_redelivery_a_duplicate() {
    let (shop, mut webhook) = open().await;
    let invoice = invoice(&shop).await;
    let proxy = Proxy::before(&shop.db).await;
    webhook.receiver = Receiver { db: proxy.endpoint(&shop.db).db, ..webhook.receiver };
    tell(&webhook, &event("evt_0", "ping", json!({}))).await;
    proxy.lose_answer(1);
    // The sandbox itself sends once more and learns that it was done.
    assert_eq!(tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 5_000)).await.json(), duplicate());
    assert!(proxy.lost_it());
    assert_eq!(tell(&webhook, &succeeded("evt_1", "pi_1", invoice, 5_000)).await.json(), duplicate());
    assert_eq!(shop.db.count("payment_ledger").await, 1);
}

#[tokio::test]
async fn fifty_deliveries_at_once_have_one_effect_and_no_failure() {
    let (shop, _) = open().await;
    let invoice = invoice(&shop).await;
    let sandboxes: Vec<Webhook> = (0..50).map(|_| webhook(&shop)).collect();
    let event = succeeded("evt_1", "pi_1", invoice, 5_000);
    let replies = join_all(sandboxes.iter().map(|sandbox| tell(sandbox, &event))).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    assert_eq!(replies.iter().filter(|reply| reply.json() == received()).count(), 1);
    // The same under fifty ids.
    let events: Vec<Value> =
        (0..50).map(|n| succeeded(&format!("evt_other_{n}"), "pi_1", invoice, 5_000)).collect();
    let replies = join_all(sandboxes.iter().zip(&events).map(|(sandbox, event)| tell(sandbox, event))).await;
    assert!(replies.iter().all(|reply| reply.status == 200), "{replies:?}");
    assert_eq!(shop.db.count("payment_ledger").await, 1);
    assert_eq!(shop.db.count("outbox where event_type = 'invoice.paid'").await, 1);
    assert_eq!(shop.db.count("inbox_exception").await, 0);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_refund_beside_its_payment_finds_it() {
    let (shop, first) = open().await;
    let second = webhook(&shop);
    for round in 0..25 {
        let (invoice, pi) = (invoice(&shop).await, format!("pi_{round}"));
        let (paid, back) = (
            succeeded(&format!("s{round}"), &pi, invoice, 5_000),
            refunded(&format!("r{round}"), &pi, 5_000, 5_000),
        );
        let replies = futures_util::join!(tell(&first, &paid), tell(&second, &back));
        assert_eq!((replies.0.status, replies.1.status), (200, 200));
        assert_eq!(status(&shop, invoice).await, "refunded", "round {round}");
    }
    assert_eq!(shop.db.count("inbox_exception where resolved_at is null").await, 0);
}

#[tokio::test]
async fn a_database_that_is_busy_or_away_is_a_503_and_nothing_is_kept() {
    let (shop, mut webhook) = open().await;
    let invoice = invoice(&shop).await;
    let event = succeeded("evt_1", "pi_1", invoice, 5_000);
    let hold = shop.db.hold(format!("select from invoice where id = '{invoice}' for update")).await;
    let reply = tokio::time::timeout(Duration::from_secs(7), tell(&webhook, &event)).await.unwrap();
    assert_eq!((reply.status, reply.error().as_deref()), (503, Some("unavailable")));
    hold.let_go().await;
    assert_eq!(shop.db.count("webhook_inbox").await, 0);
    let proxy = Proxy::before(&shop.db).await;
    proxy.refuse();
    webhook.receiver = Receiver { db: proxy.endpoint(&shop.db).db, ..webhook.receiver };
    assert_eq!(tell(&webhook, &event).await.status, 503);
    proxy.recover();
    assert_eq!(tell(&webhook, &event).await.json(), received());
    assert_eq!(status(&shop, invoice).await, "paid");
}
