//! Trying a destination out, and what is told of a shop before it stops working.

use serde_json::{Value, json};

use crate::Desk;

#[tokio::test]
async fn a_test_event_goes_to_that_destination_only() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    desk.webhook().await;
    let sent = desk.post(&format!("/admin/destinations/{id}/test"), &json!({})).await;
    assert_eq!(sent.status, 200, "{}", sent.json());
    let events = desk.read("/admin/outbox").await;
    assert_eq!(events["items"].as_array().unwrap().len(), 1);
    let event = &events["items"][0];
    assert_eq!(
        (&event["type"], &event["destinationId"], &event["id"]),
        (&json!("destination.test"), &json!(id), &sent.json()["outboxId"])
    );
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn every_kind_can_be_tried_out_and_mail_goes_to_who_asks() {
    let desk = Desk::open().await;
    for (kind, url, types) in [
        ("webhook", "https://partner.example/", "*"),
        ("shopify_inventory", "https://shop.example/admin/api/2026-04/graphql.json", "sku.ats_changed"),
        ("email", "mailto:orders@brand.example", "order.line_allocated"),
    ] {
        let body = json!({"name": "x", "kind": kind, "url": url, "eventTypes": [types]});
        let id = desk.post("/admin/destinations", &body).await.json()["id"].as_str().unwrap().to_owned();
        let sent = desk.post(&format!("/admin/destinations/{id}/test"), &json!({})).await;
        assert_eq!(sent.status, 200, "{kind}: {}", sent.json());
        let event = desk.read(&format!("/admin/outbox/{}", sent.json()["outboxId"].as_str().unwrap())).await;
        assert_eq!(
            (&event["type"], &event["destinationId"]),
            (&json!("destination.test"), &json!(id)),
            "{kind}"
        );
        let user = (kind == "email").then_some(desk.shop.tenant.users[0]);
        assert_eq!(event["payload"]["data"]["userId"], json!(user), "{kind}");
    }
}

#[tokio::test]
async fn the_version_of_a_shops_api_is_told_and_three_months_before_its_end_a_warning() {
    let desk = Desk::open().await;
    let shop = |version: &str| {
        json!({"name": "Shop", "kind": "shopify_inventory", "eventTypes": ["sku.ats_changed"],
            "url": format!("https://shop.example/admin/api/{version}/graphql.json")})
    };
    let made = desk.post("/admin/destinations", &shop("2099-07")).await.json();
    assert_eq!(
        made["apiVersion"],
        json!({"version": "2099-07", "endsOn": "2100-07-01", "endsSoon": false}),
        "{made}"
    );
    let path = format!("/admin/destinations/{}", made["id"].as_str().unwrap());
    for none in ["unstable", "2099-13", "2099-02"] {
        let changed = desk.patch(&path, &json!({"url": shop(none)["url"]})).await.json();
        assert_eq!(changed["apiVersion"], Value::Null, "{none}");
    }
    let changed = desk.patch(&path, &json!({"url": shop("2024-01")["url"]})).await.json();
    assert_eq!(
        changed["apiVersion"],
        json!({"version": "2024-01", "endsOn": "2025-01-01", "endsSoon": true})
    );
    for (today, soon) in [("2026-12-31", false), ("2027-01-01", true)] {
        let told = format!(
            "holdfast.api_version('https://x/admin/api/2026-04/graphql.json', '{today}') v where (v::jsonb ->> 'endsSoon')::boolean = {soon}"
        );
        assert_eq!(desk.shop.db.count(&told).await, 1, "{today}");
    }
}
