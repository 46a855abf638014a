//! No lost updates, and no conflict between a user's own save and its retry.

use futures_util::future::join_all;
use serde_json::json;
use testing::{Event, Reply, Seed, Shop, fresh_key};

use crate::{patch, send, version, warm};

#[tokio::test]
async fn the_second_of_two_account_managers_sees_the_first_ones_edit_and_both_stand_after_a_rebase() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    shop.db.execute("update wholesale_order set version = 7").await;

    let first = send(&sandbox, &patch(&shop, 0, &json!({"baseVersion": 7, "customerPo": "PO-1"}))).await;
    assert_eq!((first.status, first.header("etag")), (200, Some("\"8\"")), "{}", first.json());
    assert_eq!(first.json()["version"], 8);
    assert_eq!(first.json()["order"]["customerPo"], "PO-1");

    let path = format!("/orders/{}", shop.tenant.orders[0]);
    let window = json!({"baseVersion": 7, "shipWindowStart": "2027-01-10", "shipWindowEnd": "2027-01-20"});
    let second =
        Event::new("PATCH", &path).bearer(&shop.tenant.second_token()).key(&fresh_key()).json(&window);
    let conflict = send(&sandbox, &second).await;
    assert_eq!((conflict.status, conflict.error().as_deref()), (409, Some("version_conflict")));
    let problem = conflict.json();
    assert_eq!(problem["yourBaseVersion"], 7);
    assert_eq!(problem["current"], first.json()["order"], "the whole fresh order");
    assert_eq!(problem["current"]["updatedByName"], "Ann");

    let window = json!({"baseVersion": 8, "shipWindowStart": "2027-01-10", "shipWindowEnd": "2027-01-20"});
    let rebased =
        Event::new("PATCH", &path).bearer(&shop.tenant.second_token()).key(&fresh_key()).json(&window);
    let saved = send(&sandbox, &rebased).await.json();
    assert_eq!(saved["version"], 9);
    assert_eq!(saved["order"]["customerPo"], "PO-1");
    assert_eq!(saved["order"]["shipWindowStart"], "2027-01-10");
    assert_eq!(saved["order"]["shipWindowEnd"], "2027-01-20");
    assert_eq!(saved["order"]["updatedByName"], "Ben");
}

#[tokio::test]
async fn a_retry_of_a_save_whose_answer_was_lost_gets_its_200_again() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    let save = patch(&shop, 0, &json!({"baseVersion": 1, "notes": "x"}));
    let first = send(&sandbox, &save).await;
    assert_eq!(first.status, 200);
    // Somebody else saves in between; the retry still gets the answer of the first save.
    assert_eq!(send(&sandbox, &patch(&shop, 0, &json!({"baseVersion": 2, "notes": "y"}))).await.status, 200);
    let retry = send(&sandbox, &save).await;
    assert_eq!((retry.status, &retry.body), (200, &first.body));
    assert_eq!(retry.header("etag"), Some("\"2\""));
    assert_eq!(retry.header("idempotent-replayed"), Some("true"));
    assert_eq!(version(&shop, 0).await, 3);
}

#[tokio::test]
async fn a_conflict_is_an_answer_like_any_other_and_is_replayed_though_the_order_moves_on() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    let stale = patch(&shop, 0, &json!({"baseVersion": 5, "notes": "x"}));
    let first = send(&sandbox, &stale).await;
    assert_eq!(first.status, 409);
    assert_eq!(send(&sandbox, &patch(&shop, 0, &json!({"baseVersion": 1, "notes": "y"}))).await.status, 200);
    let again = send(&sandbox, &stale).await;
    assert_eq!((again.status, again.body), (409, first.body));
}

#[tokio::test]
async fn a_hundred_savers_raise_the_version_by_exactly_the_number_of_200s() {
    let shop = Shop::open(Seed::default()).await;
    let sandboxes = join_all((0..20).map(|_| warm(&shop))).await;
    let waves = join_all(sandboxes.iter().enumerate().map(|(who, sandbox)| {
        let shop = &shop;
        async move {
            let mut replies = Vec::new();
            let mut base = 1;
            for round in 0..5 {
                let notes = format!("{who}/{round}");
                let reply =
                    send(sandbox, &patch(shop, 0, &json!({"baseVersion": base, "notes": notes}))).await;
                let body = reply.json();
                if reply.status == 200 {
                    assert_eq!(
                        body["version"].as_i64(),
                        Some(base + 1),
                        "saved on the version it was made on"
                    );
                }
                base = body["version"].as_i64().or(body["current"]["version"].as_i64()).unwrap();
                replies.push((reply, notes));
            }
            replies
        }
    }))
    .await;
    let replies: Vec<(Reply, String)> = waves.into_iter().flatten().collect();
    assert_eq!(replies.len(), 100);
    let mut saved = Vec::new();
    for (reply, notes) in &replies {
        match reply.status {
            200 => saved.push((reply.json()["version"].as_i64().unwrap(), notes)),
            409 => assert_eq!(reply.error().as_deref(), Some("version_conflict")),
            other => panic!("{other}"),
        }
    }
    saved.sort();
    let last = 1 + i64::try_from(saved.len()).unwrap();
    let versions: Vec<i64> = saved.iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, (2..=last).collect::<Vec<_>>(), "each version was given out once");
    assert_eq!(version(&shop, 0).await, last);
    let kept: String =
        shop.db.scalar("select notes from wholesale_order order by version desc limit 1").await;
    assert_eq!(&kept, saved.last().unwrap().1, "the final document is the last 200's");
    let events = shop.db.count("outbox where event_type = 'order.saved'").await;
    assert_eq!(events, last - 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn only_the_fields_present_are_written_and_null_clears() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = warm(&shop).await;
    let all = json!({"baseVersion": 1, "customerPo": "P", "notes": "n", "shipWindowStart": "2027-01-01", "shipWindowEnd": "2027-01-01"});
    assert_eq!(send(&sandbox, &patch(&shop, 0, &all)).await.status, 200);
    let cleared =
        send(&sandbox, &patch(&shop, 0, &json!({"baseVersion": 2, "customerPo": null}))).await.json();
    let order = &cleared["order"];
    assert_eq!((&order["customerPo"], &order["notes"]), (&json!(null), &json!("n")));
    assert_eq!(
        (&order["shipWindowStart"], &order["shipWindowEnd"]),
        (&json!("2027-01-01"), &json!("2027-01-01"))
    );
    let event: String = shop
        .db
        .scalar("select payload from outbox where event_type = 'order.saved' order by id desc limit 1")
        .await;
    let event: serde_json::Value = serde_json::from_str(&event).unwrap();
    assert_eq!(event["data"], json!({"version": 3, "changed": ["customerPo"]}));
}
