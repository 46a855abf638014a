//! Whom a save is open to.

use serde_json::json;
use testing::{Seed, issue_api_key};
use uuid::Uuid;

use super::*;

#[tokio::test]
async fn only_who_may_set_credit_saves_a_customer_of_its_own_tenant() {
    let books = Books::open(Seed::default()).await;
    let other = books.shop.db.seed(Seed::default()).await;
    let tenant = &books.shop.tenant;
    let stranger = testing::token(other.id, other.users[0], SCOPES);
    let writer =
        testing::token(tenant.id, tenant.users[0], "orders:write orders:read outbox:admin events:read");
    let key =
        issue_api_key(&books.shop.db, tenant.id, tenant.users[0], &["orders:write", "orders:read"]).await;
    let body = json!({"baseVersion": 1, "onHold": true});
    let patch = |path: &str| Event::new("PATCH", path).json(&body);
    let nowhere = format!("/customers/{}", Uuid::new_v4());
    let state = books.shop.db.state().await;
    for (event, status, code) in [
        (patch(&books.path()).key("a"), 401, "unauthenticated"),
        (patch(&books.path()).bearer(&writer).key("b"), 403, "forbidden"),
        (patch(&books.path()).bearer(&key).key("c"), 403, "forbidden"),
        (patch("/customers/x").bearer(&writer).key("d"), 403, "forbidden"),
        (patch("/customers/x").bearer(&books.token(0)).key("e"), 404, "not_found"),
        (patch(&books.path()).bearer(&books.token(0)), 400, "idempotency_key_invalid"),
        (patch(&books.path()).bearer(&stranger).key("f"), 404, "not_found"),
        (patch(&nowhere).bearer(&books.token(0)).key("g"), 404, "not_found"),
        (Event::new("DELETE", &books.path()).bearer(&books.token(0)).key("h"), 405, "method_not_allowed"),
    ] {
        assert_eq!(refused(&books.send(&event).await), refusal(status, code), "{event:?}");
    }
    assert_eq!(books.shop.db.state().await, state);
    assert_eq!(books.shop.db.count("idempotency_key").await, 2, "the two that the work itself decided");

    let key = issue_api_key(&books.shop.db, tenant.id, tenant.users[1], &["credit:write"]).await;
    let saved = books.send(&patch(&books.path()).bearer(&key).key("i")).await;
    assert_eq!((saved.status, &saved.json()["customer"]["updatedByName"]), (200, &json!("Ben")));
}
