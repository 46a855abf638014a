//! What an operator can end: a destination, a secret that others have seen.

use std::time::Duration;

use serde_json::{Value, json};
use shared::delivery::outbox;
use testing::{Event, Reply, fresh_key};

use crate::Desk;

async fn delete(desk: &Desk, id: &str, body: Option<&Value>) -> Reply {
    let event = Event::new("DELETE", &format!("/admin/destinations/{id}")).bearer(&desk.shop.tenant.token());
    let event = event.key(&fresh_key());
    desk.send(&match body {
        Some(body) => event.json(body),
        None => event,
    })
    .await
}

#[tokio::test]
async fn a_deleted_destination_gets_nothing_more_and_what_was_pending_is_discarded_with_the_reason() {
    let desk = Desk::open().await;
    let (db, id, other) = (&desk.shop.db, desk.webhook().await, desk.webhook().await);
    db.emit(&desk.shop.tenant, 3).await;
    db.execute(format!(
        "update outbox set dead_lettered_at = now() where sequence = 1;
         update outbox set lease_token = gen_random_uuid(), leased_until = now() + interval '1 h' where sequence = 2 and destination_id = '{id}'"
    ))
    .await;
    assert_eq!(
        delete(&desk, &id, Some(&json!({"reason": ""}))).await.error().as_deref(),
        Some("invalid_body")
    );
    let reply = delete(&desk, &id, Some(&json!({"reason": "the partner went out of business"}))).await;
    assert_eq!((reply.status, reply.json()), (200, json!({"id": id, "discarded": 2, "more": false})));
    assert_eq!(delete(&desk, &id, None).await.error().as_deref(), Some("not_found"));
    assert_eq!(desk.ids("/admin/destinations").await, std::slice::from_ref(&other));
    assert_eq!(db.count(&format!("destination_secret where destination_id = '{id}'")).await, 0);
    let discarded = format!(
        "outbox where destination_id = '{id}' and discard_reason like 'the partner%' and lease_token is null"
    );
    assert_eq!(db.count(&discarded).await, 2);
    // The dead letter can be read, not sent again; and nothing is written for it any more.
    let dead: i64 = db.scalar("select min(id) from outbox where dead_lettered_at is not null").await;
    let again = desk.post(&format!("/admin/outbox/{dead}/requeue"), &json!({})).await;
    let of_other = desk.read(&format!("/admin/outbox/{dead}")).await["destinationId"] == other.as_str();
    assert_eq!(again.error().as_deref(), if of_other { None } else { Some("outbox_state") });
    let all = desk.post("/admin/outbox/requeue", &json!({"destination": id})).await;
    assert_eq!(all.json(), json!({"requeued": 0, "next": null}));
    db.emit(&desk.shop.tenant, 1).await;
    assert_eq!(db.count(&format!("outbox where destination_id = '{id}'")).await, 3);
    let audited = "outbox_audit where action = 'destination_deleted' and details ->> 'name' = 'Partner'";
    assert_eq!(db.count(audited).await, 1);
}

#[tokio::test]
async fn a_large_backlog_of_a_deleted_destination_is_discarded_by_the_relay_and_so_is_what_was_written_meanwhile()
 {
    let desk = Desk::open().await;
    let (db, id) = (&desk.shop.db, desk.webhook().await);
    db.emit(&desk.shop.tenant, 2_500).await;
    // An event whose transaction still sees the destination.
    let late = desk.late_event().await;
    assert_eq!(delete(&desk, &id, None).await.json(), json!({"id": id, "discarded": 1_000, "more": true}));
    let worker = db.worker();
    let mut steps = 0;
    while outbox::end_destination(&worker, 500).await.unwrap() {
        steps += 1;
    }
    assert_eq!(steps, 3);
    let pending = "outbox where processed_at is null and discarded_at is null";
    assert_eq!((db.count(pending).await, db.count("destination_end where done_at is null").await), (0, 1));
    late.let_go().await;
    assert_eq!(db.count(pending).await, 1);
    for _ in 0..100 {
        outbox::end_destination(&worker, 500).await.unwrap();
        if db.count("destination_end where done_at is null").await == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!((db.count(pending).await, db.count("destination_end where done_at is null").await), (0, 0));
}

#[tokio::test]
async fn a_secret_that_others_have_seen_ends_at_once() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    let path = format!("/admin/destinations/{id}");
    let secrets = async || {
        let read = desk.read(&format!("{path}/secret")).await;
        read["secrets"].as_array().unwrap().iter().map(|s| s["secret"].clone()).collect::<Vec<_>>()
    };
    let first = secrets().await;
    assert_eq!(desk.post(&format!("{path}/rotate"), &json!({})).await.status, 200);
    assert_eq!(secrets().await.len(), 2);
    let wrong = desk.post(&format!("{path}/rotate"), &json!({"immediate": "yes"})).await;
    assert_eq!(wrong.error().as_deref(), Some("invalid_body"));
    assert_eq!(desk.post(&format!("{path}/rotate"), &json!({"immediate": true})).await.status, 200);
    let now = secrets().await;
    assert!(now.len() == 1 && now != first, "{now:?}");
    // Nor is it kept.
    assert_eq!(desk.shop.db.count("destination_secret").await, 1);
}
