//! Listing, requeuing and discarding events.

use serde_json::{Value, json};

use crate::Desk;

/// Ten events for one webhook: 1 … 3 dead, 4 … 6 delivered, 7 discarded, the others pending.
async fn ten(desk: &Desk) -> String {
    let destination = desk.webhook().await;
    desk.shop.db.emit(&desk.shop.tenant, 10).await;
    desk.shop
        .db
        .execute(
            "update outbox set attempts = 12, dead_lettered_at = now(), last_error = 'HTTP 500' where id <= 3;
             update outbox set attempts = 1, processed_at = now() where id between 4 and 6;
             update outbox set discarded_at = now() where id = 7",
        )
        .await;
    destination
}

#[tokio::test]
async fn the_list_is_newest_first_filtered_and_paged() {
    let desk = Desk::open().await;
    let destination = ten(&desk).await;
    assert_eq!(desk.ids("/admin/outbox").await, ["10", "9", "8", "7", "6", "5", "4", "3", "2", "1"]);
    for (query, ids) in [
        ("state=dead", vec!["3", "2", "1"]),
        ("state=delivered", vec!["6", "5", "4"]),
        ("state=discarded", vec!["7"]),
        ("state=pending", vec!["10", "9", "8"]),
        ("state=dead&limit=2", vec!["3", "2"]),
        ("state=dead&limit=2&after=2", vec!["1"]),
        ("type=order.saved", vec![]),
        ("type=inbox.exception&state=discarded", vec!["7"]),
        ("to=2020-01-01T00:00:00Z", vec![]),
        ("from=2020-01-01T00:00:00%2B01:00&state=discarded", vec!["7"]),
        ("state=&destination=&state_is=", vec![]),
    ] {
        let path = format!("/admin/outbox?{query}");
        if query.contains("state_is") {
            assert_eq!(desk.get(&path).await.error().as_deref(), Some("invalid_query"));
            continue;
        }
        assert_eq!(desk.ids(&path).await, ids, "{query}");
    }
    assert_eq!(desk.ids(&format!("/admin/outbox?destination={destination}&limit=1")).await, ["10"]);
    let page = desk.read("/admin/outbox?state=dead&limit=2").await;
    assert_eq!(page["next"], "2");
    assert_eq!(desk.read("/admin/outbox?state=dead&limit=3").await["next"], Value::Null);
    let dead = &page["items"][0];
    assert_eq!(
        (&dead["state"], &dead["attempts"], &dead["lastError"], &dead["destinationName"]),
        (&json!("dead"), &json!(12), &json!("HTTP 500"), &json!("Partner"))
    );
    assert_eq!(dead["attemptCount"], 12);
    for query in [
        "state=lost",
        "destination=x",
        "from=yesterday",
        "after=x",
        "after=00",
        "after=99",
        "limit=0",
        "limit=201",
        "to=-009999-01-01T00:00:00Z",
    ] {
        let reply = desk.get(&format!("/admin/outbox?{query}")).await;
        assert_eq!((reply.status, reply.error().as_deref()), (400, Some("invalid_query")), "{query}");
    }
}

#[tokio::test]
async fn one_event_is_shown_with_the_document_that_is_sent() {
    let desk = Desk::open().await;
    ten(&desk).await;
    let attempt = r#"{"at":"2026-01-01T00:00:00.000Z","status":500,"ms":3,"said":"HTTP 500"}"#;
    desk.shop.db.execute(format!("update outbox set attempt_log = '[{attempt}]' where id = 2")).await;
    let event = desk.read("/admin/outbox/2").await;
    assert_eq!(
        (&event["id"], &event["state"], &event["attemptCount"]),
        (&json!("2"), &json!("dead"), &json!(12))
    );
    assert_eq!(event["attempts"], json!([serde_json::from_str::<Value>(attempt).unwrap()]));
    assert_eq!(desk.read("/admin/outbox/5").await["attempts"], json!([]), "none is told of");
    assert_eq!(event["payload"]["data"], json!({"n": 2}));
    assert_eq!(event["payload"]["id"], event["eventId"]);
    assert_eq!(event["aggregate"]["sequence"], event["payload"]["aggregate"]["sequence"]);
    assert_eq!(event["history"], json!([]));
    for path in
        ["/admin/outbox/11", "/admin/outbox/x", "/admin/outbox/02", "/admin/outbox/9223372036854775808"]
    {
        assert_eq!(desk.get(path).await.error().as_deref(), Some("not_found"), "{path}");
    }
}

#[tokio::test]
async fn a_dead_letter_sent_again_begins_anew_under_its_id_once_however_often_the_button_is_pressed() {
    let desk = Desk::open().await;
    ten(&desk).await;
    let click = desk.posting("/admin/outbox/2/requeue", &json!({}));
    let first = desk.send(&click).await;
    assert_eq!((first.status, first.json()), (200, json!({"id": "2", "state": "pending", "attempts": 0})));
    assert_eq!(desk.send(&click).await.body, first.body, "the same click again");
    let second = desk.post("/admin/outbox/2/requeue", &json!({})).await;
    assert_eq!((second.status, second.error().as_deref()), (409, Some("outbox_state")));
    assert_eq!(second.json()["state"], "pending");
    let row = desk.read("/admin/outbox/2").await;
    assert_eq!(
        (&row["state"], &row["attemptCount"], &row["requeues"], &row["deadLetteredAt"]),
        (&json!("pending"), &json!(0), &json!(1), &Value::Null)
    );
    assert_eq!(row["history"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&row["history"][0]["action"], &row["history"][0]["byName"]),
        (&json!("requeued"), &json!("Ann"))
    );
    // A delivered one may be requeued, too; a pending or discarded one may not.
    assert_eq!(desk.post("/admin/outbox/5/requeue", &json!({})).await.status, 200);
    for id in [7, 8] {
        let refused = desk.post(&format!("/admin/outbox/{id}/requeue"), &json!({})).await;
        assert_eq!((refused.status, refused.error().as_deref()), (409, Some("outbox_state")));
    }
    assert_eq!(desk.post("/admin/outbox/99/requeue", &json!({})).await.error().as_deref(), Some("not_found"));
    assert_eq!(
        desk.post("/admin/outbox/2/requeue", &json!({"x": 1})).await.error().as_deref(),
        Some("invalid_body")
    );
}

#[tokio::test]
async fn a_filter_sends_dead_letters_again_and_delivered_ones_only_when_asked() {
    let desk = Desk::open().await;
    ten(&desk).await;
    let click = desk.posting("/admin/outbox/requeue", &json!({"type": "inbox.exception"}));
    assert_eq!(desk.send(&click).await.json(), json!({"requeued": 3, "next": null}));
    assert_eq!(
        desk.send(&click).await.json(),
        json!({"requeued": 3, "next": null}),
        "a replay of the same click"
    );
    assert_eq!(
        desk.post("/admin/outbox/requeue", &json!({})).await.json(),
        json!({"requeued": 0, "next": null})
    );
    assert_eq!(desk.shop.db.count("outbox_audit where action = 'requeued'").await, 3);
    assert_eq!(desk.ids("/admin/outbox?state=pending").await, ["10", "9", "8", "3", "2", "1"]);
    let delivered =
        json!({"state": "delivered", "from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00+02:00"});
    assert_eq!(
        desk.post("/admin/outbox/requeue", &delivered).await.json(),
        json!({"requeued": 3, "next": null})
    );
    for state in ["pending", "discarded"] {
        let refused = desk.post("/admin/outbox/requeue", &json!({ "state": state })).await;
        assert_eq!((refused.status, refused.error().as_deref()), (409, Some("outbox_state")));
    }
    for body in [
        json!({"state": "x"}),
        json!({"destination": 1}),
        json!({"from": "now"}),
        json!({"limit": 1}),
        json!([]),
    ] {
        let refused = desk.post("/admin/outbox/requeue", &body).await;
        assert_eq!(refused.error().as_deref(), Some("invalid_body"), "{body}");
    }
}

#[tokio::test]
async fn a_filter_by_destination_and_time_sends_again_what_lies_within_and_nothing_else() {
    let desk = Desk::open().await;
    let first = ten(&desk).await;
    let second = desk.webhook().await;
    desk.shop.db.emit(&desk.shop.tenant, 2).await; // one for each destination, twice
    desk.shop
        .db
        .execute(
            "update outbox set dead_lettered_at = null, discarded_at = null, processed_at = now(),
               created_at = '2026-01-01T00:00:00Z'::timestamptz + make_interval(mins => id::int)",
        )
        .await;
    let of = |destination: &str, from: &str, to: &str| json!({"state": "delivered", "destination": destination, "from": from, "to": to});
    // `from` is inclusive, `to` exclusive; an offset is understood.
    let some = of(&first, "2026-01-01T00:02:00Z", "2026-01-01T02:05:00+02:00");
    assert_eq!(desk.post("/admin/outbox/requeue", &some).await.json(), json!({"requeued": 3, "next": null}));
    assert_eq!(desk.ids("/admin/outbox?state=pending").await, ["4", "3", "2"]);
    let whole_year = of(&second, "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    assert_eq!(
        desk.post("/admin/outbox/requeue", &whole_year).await.json(),
        json!({"requeued": 2, "next": null})
    );
    assert_eq!(desk.ids(&format!("/admin/outbox?state=pending&destination={first}")).await, ["4", "3", "2"]);
    let audited =
        "outbox_audit where action = 'requeued' and details -> 'filter' ->> 'destination' is not null";
    assert_eq!(desk.shop.db.count(audited).await, 5);
}

#[tokio::test]
async fn what_is_discarded_stays_so_with_its_reason() {
    let desk = Desk::open().await;
    ten(&desk).await;
    for id in [1, 8] {
        let reply = desk
            .post(&format!("/admin/outbox/{id}/discard"), &json!({"reason": "told them \"by\" phone"}))
            .await;
        assert_eq!((reply.status, &reply.json()["state"]), (200, &json!("discarded")), "{}", reply.json());
    }
    let row = desk.read("/admin/outbox/1").await;
    assert_eq!(
        (&row["state"], &row["discardReason"]),
        (&json!("discarded"), &json!("told them \"by\" phone"))
    );
    assert_eq!(row["history"][0]["reason"], row["discardReason"]);
    for id in [1, 4, 7] {
        let refused = desk.post(&format!("/admin/outbox/{id}/discard"), &json!({"reason": "x"})).await;
        assert_eq!((refused.status, refused.error().as_deref()), (409, Some("outbox_state")), "{id}");
    }
    for body in
        [json!({}), json!({"reason": " "}), json!({"reason": null}), json!({"reason": "x".repeat(2001)})]
    {
        assert_eq!(
            desk.post("/admin/outbox/2/discard", &body).await.error().as_deref(),
            Some("invalid_body")
        );
    }
}

#[tokio::test]
async fn an_event_without_a_subscriber_cannot_be_requeued() {
    let desk = Desk::open().await;
    desk.shop.db.emit(&desk.shop.tenant, 1).await;
    let refused = desk.post("/admin/outbox/1/requeue", &json!({})).await;
    assert_eq!((refused.status, refused.error().as_deref()), (409, Some("outbox_state")));
    assert_eq!(
        desk.post("/admin/outbox/requeue", &json!({"state": "delivered"})).await.json(),
        json!({"requeued": 0, "next": null})
    );
}

#[tokio::test]
async fn health_tells_backlog_age_and_dead_letters_of_each_destination() {
    let desk = Desk::open().await;
    assert_eq!(
        desk.read("/admin/health").await,
        json!({"backlog": 0, "exact": true, "oldestPendingAgeSeconds": null, "deadLetters": 0, "destinations": []})
    );
    let destination = ten(&desk).await;
    let idle = desk.webhook().await;
    desk.shop.db.execute("update outbox set created_at = created_at - interval '90 s' where id = 9").await;
    let health = desk.read("/admin/health").await;
    assert_eq!((&health["backlog"], &health["deadLetters"]), (&json!(3), &json!(3)));
    let age_secs = health["oldestPendingAgeSeconds"].as_f64().unwrap();
    assert!((90.0..150.0).contains(&age_secs), "{age_secs}");
    let of =
        |id: &str| health["destinations"].as_array().unwrap().iter().find(|d| d["id"] == id).unwrap().clone();
    assert_eq!((&of(&destination)["backlog"], &of(&destination)["deadLetters"]), (&json!(3), &json!(3)));
    assert_eq!((&of(&idle)["backlog"], &of(&idle)["deadLetters"]), (&json!(0), &json!(0)));
    assert_eq!(of(&idle)["oldestPendingAgeSeconds"], Value::Null);
}

#[tokio::test]
async fn two_clicks_at_once_are_one_cycle() {
    let desk = Desk::open().await;
    ten(&desk).await;
    let others: Vec<_> = (0..4).map(|_| desk.shop.db.endpoint()).collect();
    let clicks = others.into_iter().map(|endpoint| {
        let event = desk.posting("/admin/outbox/1/requeue", &json!({}));
        async move {
            let console = console::Console {
                endpoint,
                guard: shared::delivery::address::Guard::default(),
                page: Default::default(),
                sealer: testing::sealer(),
            };
            console::handle(&console, event.request()).await.status().as_u16()
        }
    });
    let mut statuses = futures_util::future::join_all(clicks).await;
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409]);
    assert_eq!(desk.read("/admin/outbox/1").await["requeues"], 1);
}
