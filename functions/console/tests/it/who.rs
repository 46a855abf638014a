//! Who may see and change what, and that changes are audited.

use serde_json::json;
use testing::{Event, Seed, fresh_key, token};

use crate::Desk;

const READS: [&str; 9] = [
    "/admin/outbox",
    "/admin/outbox/1",
    "/admin/destinations",
    "/admin/destinations/{id}/secret",
    "/admin/health",
    "/admin/health/rates",
    "/admin/attention",
    "/admin/exceptions",
    "/admin/shortfalls",
];
const OPERATIONS: [(&str, &str); 12] = [
    ("POST", "/admin/outbox/1/requeue"),
    ("POST", "/admin/outbox/1/discard"),
    ("POST", "/admin/outbox/requeue"),
    ("POST", "/admin/destinations"),
    ("PATCH", "/admin/destinations/{id}"),
    ("POST", "/admin/destinations/{id}/rotate"),
    ("POST", "/admin/destinations/{id}/test"),
    ("POST", "/admin/exceptions/{id}/retry"),
    ("POST", "/admin/exceptions/{id}/dismiss"),
    ("POST", "/admin/exceptions/retry"),
    ("POST", "/admin/exceptions/dismiss"),
    ("POST", "/admin/shortfalls/{id}/settle"),
];

#[tokio::test]
async fn every_route_needs_a_credential_and_the_scope() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    let all = READS.iter().map(|path| ("GET", *path)).chain(OPERATIONS);
    let clerk = token(desk.shop.tenant.id, desk.shop.tenant.users[0], "orders:write orders:read");
    for (method, path) in all {
        let event = Event::new(method, &path.replace("{id}", &id));
        let nobody = desk.send(&event).await;
        assert_eq!(
            (nobody.status, nobody.error().as_deref()),
            (401, Some("unauthenticated")),
            "{method} {path}"
        );
        let clerks = desk.send(&event.bearer(&clerk)).await;
        assert_eq!((clerks.status, clerks.error().as_deref()), (403, Some("forbidden")), "{method} {path}");
    }
    for (method, path) in OPERATIONS {
        let event =
            Event::new(method, &path.replace("{id}", &id)).bearer(&desk.shop.tenant.token()).json(&json!({}));
        assert_eq!(
            desk.send(&event).await.error().as_deref(),
            Some("idempotency_key_invalid"),
            "{method} {path}"
        );
        let status = desk.get(&path.replace("{id}", &id)).await.status;
        let expected = match path {
            "/admin/destinations" => 200,
            "/admin/outbox/requeue" => 404, // read as the id of an event
            _ => 405,
        };
        assert_eq!(status, expected, "{path}");
    }
}

#[tokio::test]
async fn another_tenants_things_are_as_if_they_did_not_exist() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    desk.shop.db.emit(&desk.shop.tenant, 1).await;
    desk.shop.db.execute("update outbox set dead_lettered_at = now()").await;
    let other = desk.shop.db.seed(Seed::default()).await;
    let bodies = [
        ("POST", "/admin/outbox/1/requeue".to_owned(), json!({})),
        ("POST", "/admin/outbox/1/discard".into(), json!({"reason": "x"})),
        ("PATCH", format!("/admin/destinations/{id}"), json!({"state": "disabled"})),
        ("POST", format!("/admin/destinations/{id}/rotate"), json!({})),
        ("POST", format!("/admin/destinations/{id}/test"), json!({})),
    ];
    for (method, path, body) in bodies {
        let event = Event::new(method, &path).bearer(&other.token()).key(&fresh_key()).json(&body);
        let reply = desk.send(&event).await;
        assert_eq!((reply.status, reply.error().as_deref()), (404, Some("not_found")), "{path}");
    }
    let requeue = Event::post("/admin/outbox/requeue").bearer(&other.token()).key("k").json(&json!({}));
    assert_eq!(desk.send(&requeue).await.json(), json!({"requeued": 0, "next": null}));
    for path in ["/admin/outbox/1".to_owned(), format!("/admin/destinations/{id}/secret")] {
        assert_eq!(desk.send(&Event::get(&path).bearer(&other.token())).await.status, 404, "{path}");
    }
    for path in ["/admin/outbox", "/admin/destinations"] {
        let list = desk.send(&Event::get(path).bearer(&other.token())).await.json();
        assert_eq!(list, json!({"items": [], "next": null}), "{path}");
    }
    assert_eq!(desk.shop.db.count("outbox where dead_lettered_at is not null").await, 1);
    assert_eq!(desk.shop.db.count("destination where state = 'active'").await, 1);
}

#[tokio::test]
async fn an_operation_repeated_under_its_key_is_replayed_and_audited_once_and_another_under_it_is_refused() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    desk.shop.db.emit(&desk.shop.tenant, 3).await;
    desk.shop.db.execute("update outbox set dead_lettered_at = now()").await;
    let webhook = json!({"name": "x", "kind": "webhook", "url": "http://127.0.0.1:9/", "eventTypes": ["*"]});
    let operations = [
        ("POST", "/admin/outbox/1/requeue".to_owned(), json!({}), 200),
        ("POST", "/admin/outbox/2/discard".into(), json!({"reason": "x"}), 200),
        ("POST", "/admin/outbox/requeue".into(), json!({"state": "dead"}), 200),
        ("POST", "/admin/outbox/2/requeue".into(), json!({}), 409),
        ("POST", "/admin/destinations".into(), webhook, 201),
        ("PATCH", format!("/admin/destinations/{id}"), json!({"name": "y"}), 200),
        ("POST", format!("/admin/destinations/{id}/rotate"), json!({}), 200),
        ("POST", format!("/admin/destinations/{id}/test"), json!({}), 200),
    ];
    for (method, path, body, status) in operations {
        let key = fresh_key();
        let operation = Event::new(method, &path).bearer(&desk.shop.tenant.token()).key(&key).json(&body);
        let first = desk.send(&operation).await;
        assert_eq!((first.status, first.header("idempotent-replayed")), (status, None), "{path}");
        let audited = desk.shop.db.count("outbox_audit").await;
        let again = desk.send(&operation).await;
        assert_eq!((again.status, &again.body), (first.status, &first.body), "{path}");
        assert_eq!(again.header("idempotent-replayed"), Some("true"), "{path}");
        assert_eq!(desk.shop.db.count("outbox_audit").await, audited, "{path}");
        let other = Event::post("/admin/outbox/3/discard").bearer(&desk.shop.tenant.token()).key(&key);
        let other = desk.send(&other.json(&json!({"reason": "another intention"}))).await;
        assert_eq!((other.status, other.error().as_deref()), (422, Some("idempotency_key_reused")), "{path}");
    }
    assert_eq!(desk.shop.db.count("outbox where requeues > 1").await, 0);
    assert_eq!(desk.shop.db.count("destination_secret").await, 3, "two made, one rotated");
}

#[tokio::test]
async fn whatever_is_done_is_written_down_with_who_and_when_and_stays() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    desk.patch(&format!("/admin/destinations/{id}"), &json!({"name": "Other"})).await;
    desk.post(&format!("/admin/destinations/{id}/rotate"), &json!({})).await;
    desk.post(&format!("/admin/destinations/{id}/test"), &json!({})).await;
    desk.read(&format!("/admin/destinations/{id}/secret")).await;
    desk.post("/admin/outbox/1/discard", &json!({"reason": "a test"})).await;
    let done: String =
        desk.shop.db.scalar("select string_agg(action, ' ' order by id) from outbox_audit").await;
    assert_eq!(
        done,
        "destination_created destination_changed secret_rotated destination_tested secret_read discarded"
    );
    let user = desk.shop.tenant.users[0];
    let by = desk
        .shop
        .db
        .count(&format!(
            "outbox_audit where app_user_id = '{user}' and actor = 'user:{user}' and at <= now()"
        ))
        .await;
    assert_eq!(by, 6);
    let mut app = desk.shop.db.app().await;
    for sql in ["update outbox_audit set action = 'x'", "delete from outbox_audit", "truncate outbox_audit"] {
        assert!(sqlx::raw_sql(sql).execute(&mut app).await.is_err(), "{sql}");
    }
}

#[tokio::test]
async fn other_methods_and_addresses_are_none() {
    let desk = Desk::open().await;
    let bearer = desk.shop.tenant.token();
    for (method, path, status) in [
        ("DELETE", "/admin/outbox", 405),
        ("PUT", "/admin/destinations/x", 405),
        ("GET", "/admin/outbox/requeue", 404),
        ("POST", "/admin/health", 405),
        ("GET", "/admin", 404),
        ("GET", "/admin/nothing", 404),
        ("GET", "/other", 404),
    ] {
        let reply = desk.send(&Event::new(method, path).bearer(&bearer)).await;
        assert_eq!(reply.status, status, "{method} {path}");
    }
}
