//! The promises of style-save, tested with the deployed handler against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

use futures_util::future::join_all;
use serde_json::{Value, json};
use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply, Seed, Shop, fresh_key};

async fn send(sandbox: &Endpoint, event: &Event) -> Reply {
    Reply::from(style_save::handle(sandbox, event.request()).await)
}

/// The tenant's one style, and a save of it under a fresh key.
async fn style(shop: &Shop) -> String {
    shop.db.scalar("select id::text from style order by created_at limit 1").await
}

fn patch(shop: &Shop, style: &str, body: &Value) -> Event {
    Event::new("PATCH", &format!("/styles/{style}")).bearer(&shop.tenant.token()).key(&fresh_key()).json(body)
}

#[tokio::test]
async fn prices_are_saved_by_the_protocol_of_orders() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let id = style(&shop).await;
    let save = patch(&shop, &id, &json!({"baseVersion": 1, "wholesaleMinor": 1200}));
    let saved = send(&sandbox, &save).await;
    assert_eq!((saved.status, saved.header("etag")), (200, Some("\"2\"")), "{}", saved.json());
    let style = &saved.json()["style"];
    assert_eq!((&style["wholesaleMinor"], &style["msrpMinor"]), (&json!(1200), &json!(2000)));
    assert_eq!((&saved.json()["version"], &style["updatedByName"]), (&json!(2), &json!("Ann")));
    assert_eq!(send(&sandbox, &save).await.body, saved.body, "the same request again");

    let stale = send(&sandbox, &patch(&shop, &id, &json!({"baseVersion": 1, "msrpMinor": 1}))).await;
    assert_eq!((stale.status, stale.error().as_deref()), (409, Some("version_conflict")));
    assert_eq!((&stale.json()["yourBaseVersion"], &stale.json()["current"]), (&json!(1), style));
    let failed =
        send(&sandbox, &patch(&shop, &id, &json!({"msrpMinor": 1})).header("If-Match", "W/\"2\"")).await;
    assert_eq!((failed.status, failed.error().as_deref()), (412, Some("version_conflict")));
    let by_header =
        send(&sandbox, &patch(&shop, &id, &json!({"msrpMinor": 0})).header("If-Match", "\"2\"")).await;
    assert_eq!((by_header.status, &by_header.json()["style"]["msrpMinor"]), (200, &json!(0)));
    let payload: String = shop
        .db
        .scalar("select payload from outbox where event_type = 'style.saved' order by id limit 1")
        .await;
    let told: Value = serde_json::from_str(&payload).unwrap();
    assert_eq!(told["data"], json!({"version": 2, "wholesaleMinor": 1200, "msrpMinor": 2000}));
    assert_eq!(told["aggregate"], json!({"type": "style", "id": id, "sequence": 1}));
}

#[tokio::test]
async fn of_many_savers_on_one_version_one_wins() {
    let shop = Shop::open(Seed::default()).await;
    let id = style(&shop).await;
    let sandboxes: Vec<Endpoint> = (0..20).map(|_| shop.db.endpoint()).collect();
    let events: Vec<Event> =
        (0..20).map(|n| patch(&shop, &id, &json!({"baseVersion": 1, "wholesaleMinor": n}))).collect();
    let replies = join_all(sandboxes.iter().zip(&events).map(|(sandbox, event)| send(sandbox, event))).await;
    assert_eq!(replies.iter().filter(|r| r.status == 200).count(), 1);
    assert_eq!(replies.iter().filter(|r| r.error().as_deref() == Some("version_conflict")).count(), 19);
}

#[tokio::test]
async fn what_is_not_there_or_not_asked_right_is_refused() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let id = style(&shop).await;
    let other = shop.db.seed(Seed::default()).await;
    let save = json!({"baseVersion": 1, "wholesaleMinor": 1});
    let path = format!("/styles/{id}");
    for (event, status, error) in [
        (Event::new("PATCH", &path).bearer(&other.token()).key("a").json(&save), 404, "not_found"),
        (
            Event::new("PATCH", "/styles/x").bearer(&shop.tenant.token()).key("b").json(&save),
            404,
            "not_found",
        ),
        (patch(&shop, &id, &json!({"wholesaleMinor": 1})), 428, "version_required"),
        (
            patch(&shop, &id, &json!({"baseVersion": 1, "wholesaleMinor": 10_000_000_001_i64})),
            400,
            "invalid_body",
        ),
        (patch(&shop, &id, &json!({"baseVersion": 1, "msrpMinor": null})), 400, "invalid_body"),
        (patch(&shop, &id, &json!({"baseVersion": 1, "name": "x"})), 400, "invalid_body"),
    ] {
        let reply = send(&sandbox, &event).await;
        assert_eq!((reply.status, reply.error().as_deref()), (status, Some(error)));
    }
    assert_eq!(shop.db.count("style where version > 1").await, 0);
}
