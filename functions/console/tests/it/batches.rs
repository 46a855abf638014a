//! Changes by filter, and counts, of more than one call can do.

use serde_json::{Value, json};

use crate::Desk;

/// Sends a change by filter until `next` is null; returns what each call changed.
async fn until_done(desk: &Desk, path: &str, filter: &Value, member: &str) -> Vec<u64> {
    let (mut body, mut changed) = (filter.clone(), Vec::new());
    loop {
        let reply = desk.post(path, &body).await;
        assert_eq!(reply.status, 200, "{}", reply.json());
        changed.push(reply.json()[member].as_u64().unwrap());
        assert!(changed.len() < 50, "it does not end: {changed:?}");
        match reply.json()["next"].clone() {
            Value::Null => return changed,
            next => body["after"] = next,
        }
    }
}

#[tokio::test]
async fn a_filter_is_gone_through_in_bounded_calls_and_each_event_is_sent_again_once() {
    let desk = Desk::open().await;
    desk.webhook().await;
    desk.shop.db.emit(&desk.shop.tenant, 5_001).await;
    desk.shop.db.execute("analyze outbox; update outbox set dead_lettered_at = now(), attempts = 12").await;
    let calls = until_done(&desk, "/admin/outbox/requeue", &json!({"state": "dead"}), "requeued").await;
    assert_eq!(calls, [2_000, 2_000, 1_001]);
    let again = "outbox where dead_lettered_at is null and attempts = 0 and requeues = 1";
    assert_eq!(desk.shop.db.count(again).await, 5_001);
    // Delivered ones that are delivered anew meanwhile do not come up again.
    desk.shop.db.execute("update outbox set processed_at = now()").await;
    let mut body = json!({"state": "delivered"});
    for (requeued, last) in [(2_000, false), (2_000, false), (1_001, true)] {
        let reply = desk.post("/admin/outbox/requeue", &body).await.json();
        assert_eq!((&reply["requeued"], reply["next"].is_null()), (&json!(requeued), last));
        body["after"] = reply["next"].clone();
        desk.shop.db.execute("update outbox set processed_at = now() where processed_at is null").await;
    }
    assert_eq!(desk.shop.db.count("outbox where requeues = 2").await, 5_001);
}

#[tokio::test]
async fn a_filter_that_fits_few_of_many_moves_on_until_it_has_seen_all() {
    let desk = Desk::open().await;
    let (first, second) = (desk.webhook().await, desk.webhook().await);
    desk.shop.db.emit(&desk.shop.tenant, 11_000).await;
    desk.shop
        .db
        .execute(format!(
            "delete from outbox where destination_id = '{second}' and sequence > 3;
             update outbox set dead_lettered_at = now(), created_at = now() - make_interval(secs => 20000 - sequence)"
        ))
        .await;
    for (path, member) in [("/admin/outbox/requeue", "requeued"), ("/admin/outbox/discard", "discarded")] {
        let mut filter = json!({ "destination": second });
        if member == "discarded" {
            (filter["reason"], filter["state"]) =
                ("the partner went out of business".into(), "pending".into());
        }
        let calls = until_done(&desk, path, &filter, member).await;
        assert_eq!(calls.iter().sum::<u64>(), 3, "{calls:?}");
        assert!(calls.len() <= 3, "{calls:?}");
    }
    assert_eq!(
        desk.shop
            .db
            .count(&format!("outbox where destination_id = '{first}' and dead_lettered_at is null"))
            .await,
        0
    );
    let audited = "outbox_audit where action = 'discarded' and details ->> 'reason' like 'the partner%'";
    assert_eq!(desk.shop.db.count(audited).await, 3);
}

#[tokio::test]
async fn pending_events_are_discarded_by_filter_and_those_behind_them_are_woken() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    desk.patch(&format!("/admin/destinations/{id}"), &json!({"ordered": true})).await;
    desk.shop.db.emit(&desk.shop.tenant, 5).await;
    desk.shop.db.execute("update outbox set event_type = 'order.saved' where id in (1, 2, 4)").await;
    for (body, error) in [
        (json!({"type": "order.saved"}), "invalid_body"),
        (json!({"reason": "x", "after": "99"}), "invalid_body"),
        (json!({"reason": "x", "after": "y"}), "invalid_body"),
        (json!({"reason": "x", "state": "delivered"}), "outbox_state"),
    ] {
        let refused = desk.post("/admin/outbox/discard", &body).await;
        assert_eq!(refused.error().as_deref(), Some(error), "{body}");
    }
    let filter = json!({"state": "pending", "type": "order.saved", "reason": "a test that went wrong"});
    assert_eq!(until_done(&desk, "/admin/outbox/discard", &filter, "discarded").await, [3]);
    assert_eq!(desk.ids("/admin/outbox?state=pending").await, ["5", "3"]);
    assert_eq!(desk.shop.db.count("outbox where id = 3 and isfinite(next_attempt_at)").await, 1);
    assert_eq!(desk.read("/admin/outbox/4").await["discardReason"], "a test that went wrong");
}

#[tokio::test]
async fn dead_letters_of_an_ordered_destination_go_before_what_waits_there_in_bounded_calls() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    desk.patch(&format!("/admin/destinations/{id}"), &json!({"ordered": true})).await;
    desk.shop.db.emit(&desk.shop.tenant, 6_000).await;
    desk.shop
        .db
        .execute("analyze outbox; update outbox set dead_lettered_at = now() where id <= 5_000; select holdfast.wake_next(
           array[destination_id], array[aggregate_id]) from outbox where id = 6000")
        .await;
    assert_eq!(desk.shop.db.count("outbox where id = 5001 and isfinite(next_attempt_at)").await, 1);
    let calls = until_done(&desk, "/admin/outbox/requeue", &json!({}), "requeued").await;
    assert_eq!(calls.iter().sum::<u64>(), 5_000, "{calls:?}");
    assert_eq!(desk.shop.db.count("outbox where isfinite(next_attempt_at)").await, 1);
    assert_eq!(desk.shop.db.count("outbox where id = 1 and isfinite(next_attempt_at)").await, 1);
}

#[tokio::test]
async fn health_counts_up_to_a_bound_in_even_parts_and_says_so() {
    let desk = Desk::open().await;
    let (flooded, small) = (desk.webhook().await, desk.webhook().await);
    desk.shop.db.emit(&desk.shop.tenant, 10_010).await;
    desk.shop
        .db
        .execute(format!(
            "delete from outbox where destination_id = '{small}' and sequence > 5;
             update outbox set dead_lettered_at = now() where sequence <= 2"
        ))
        .await;
    let health = desk.read("/admin/health").await;
    assert_eq!(
        (&health["backlog"], &health["exact"], &health["deadLetters"]),
        (&json!(10_003), &json!(false), &json!(4))
    );
    let of =
        |id: &str| health["destinations"].as_array().unwrap().iter().find(|d| d["id"] == id).unwrap().clone();
    assert_eq!((&of(&flooded)["backlog"], &of(&flooded)["exact"]), (&json!(10_000), &json!(false)));
    assert_eq!((&of(&small)["backlog"], &of(&small)["exact"]), (&json!(3), &json!(true)));
}
