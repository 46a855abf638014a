//! Destinations on AWS: what the operator has allowed, and what keeps an order.

use serde_json::{Value, json};
use shared::delivery::address::Senders;

use crate::Desk;

const BUS: &str = "arn:aws:events:eu-west-1:123456789012:event-bus/brand";
const QUEUE: &str = "https://sqs.eu-west-1.amazonaws.com/123456789012/events";
const FIFO: &str = "https://sqs.eu-west-1.amazonaws.com/123456789012/events.fifo";

fn body(kind: &str, url: &str) -> Value {
    json!({"name": "Bus", "kind": kind, "url": url, "eventTypes": ["*"]})
}

async fn allow(desk: &Desk, kind: &str, address: &str) {
    let tenant = desk.shop.tenant.id;
    desk.shop.db.execute(format!("insert into aws_target values ('{tenant}', '{kind}', '{address}')")).await;
}

#[tokio::test]
async fn only_what_the_operator_allowed_this_tenant_can_be_set() {
    let desk = Desk::open().await;
    for (kind, url) in [("eventbridge", BUS), ("sqs", QUEUE)] {
        let refused = desk.post("/admin/destinations", &body(kind, url)).await;
        assert_eq!((refused.status, refused.error().as_deref()), (400, Some("invalid_body")), "{kind}");
        assert_eq!(refused.json()["errors"][0]["path"], "/url");
        // Another tenant's.
        desk.shop
            .db
            .execute(format!(
                "with other as (insert into tenant (name) values ('other') returning id)
                 insert into aws_target select id, '{kind}', '{url}' from other"
            ))
            .await;
        assert_eq!(desk.post("/admin/destinations", &body(kind, url)).await.status, 400, "{kind}");
        allow(&desk, kind, url).await;
        let made = desk.post("/admin/destinations", &body(kind, url)).await;
        assert_eq!((made.status, &made.json()["url"]), (201, &json!(url)), "{kind}");
        let path = format!("/admin/destinations/{}", made.json()["id"].as_str().unwrap());
        let other = format!("{url}-of-others");
        let moved = desk.patch(&path, &json!({"url": other})).await;
        assert_eq!((moved.status, &moved.json()["errors"][0]["path"]), (400, &json!("/url")), "{kind}");
        assert_eq!(desk.patch(&path, &json!({"url": url, "maxAttempts": 40})).await.status, 200);
        assert_eq!(desk.post(&format!("{path}/test"), &json!({})).await.status, 200);
        assert_eq!(desk.get(&format!("{path}/secret")).await.status, 404, "nothing signs");
    }
    // An ARN is no address of a webhook.
    let webhook = desk.webhook().await;
    let moved = desk.patch(&format!("/admin/destinations/{webhook}"), &json!({"url": BUS})).await;
    assert_eq!(moved.error().as_deref(), Some("destination_kind"));
    let made = desk.post("/admin/destinations", &body("webhook", BUS)).await;
    assert_eq!(made.error().as_deref(), Some("invalid_body"));
}

#[tokio::test]
async fn a_mails_sender_must_be_one_that_the_operator_allowed_where_it_says_so() {
    let mut desk = Desk::open().await;
    let mail = |url: Option<&str>| {
        let mut body = json!({"name": "Mail", "kind": "email", "eventTypes": ["order.line_allocated"]});
        if let Some(url) = url {
            body["url"] = json!(url);
        }
        body
    };
    let path =
        |reply: &testing::Reply| format!("/admin/destinations/{}", reply.json()["id"].as_str().unwrap());
    let own = "mailto:orders@brand.example";
    // On a developer's machine any sender may be named.
    assert_eq!(desk.post("/admin/destinations", &mail(Some("mailto:ceo@other.example"))).await.status, 201);
    desk.console.guard.senders = Senders::Allowed;
    let other = "with other as (insert into tenant (name) values ('other') returning id)
                 insert into aws_target select id, 'email', 'mailto:ceo@other.example' from other";
    desk.shop.db.execute(other).await;
    for sender in [own, "mailto:ceo@other.example"] {
        let refused = desk.post("/admin/destinations", &mail(Some(sender))).await;
        assert_eq!((refused.status, &refused.json()["errors"][0]["path"]), (400, &json!("/url")), "{sender}");
    }
    // The operator's own sender needs no permission.
    let default = desk.post("/admin/destinations", &mail(None)).await;
    assert_eq!((default.status, &default.json()["url"]), (201, &json!("")));
    assert_eq!(desk.patch(&path(&default), &json!({"url": own})).await.status, 400);
    allow(&desk, "email", own).await;
    let made = desk.post("/admin/destinations", &mail(Some("mailto:Orders@Brand.example"))).await;
    assert_eq!((made.status, &made.json()["url"]), (201, &json!("mailto:Orders@Brand.example")));
    let moved = desk.patch(&path(&made), &json!({"url": "mailto:ceo@other.example"})).await;
    assert_eq!((moved.status, &moved.json()["errors"][0]["path"]), (400, &json!("/url")));
    assert_eq!(desk.patch(&path(&default), &json!({"url": own})).await.status, 200);
}

#[tokio::test]
async fn a_bus_keeps_no_order_and_of_queues_a_fifo_queue_alone_does() {
    let desk = Desk::open().await;
    for (kind, url) in [("eventbridge", BUS), ("sqs", QUEUE), ("sqs", FIFO)] {
        allow(&desk, kind, url).await;
    }
    let ordered = |kind: &str, url: &str| {
        let mut body = body(kind, url);
        body["ordered"] = json!(true);
        body
    };
    for (kind, url) in [("eventbridge", BUS), ("sqs", QUEUE)] {
        let refused = desk.post("/admin/destinations", &ordered(kind, url)).await;
        assert_eq!(refused.json()["errors"][0]["path"], "/ordered", "{kind}");
        let made = desk.post("/admin/destinations", &body(kind, url)).await.json();
        let path = format!("/admin/destinations/{}", made["id"].as_str().unwrap());
        let refused = desk.patch(&path, &json!({"ordered": true})).await;
        assert_eq!((refused.status, refused.error().as_deref()), (422, Some("destination_kind")), "{kind}");
    }
    let made = desk.post("/admin/destinations", &ordered("sqs", FIFO)).await;
    assert_eq!((made.status, &made.json()["ordered"]), (201, &json!(true)));
    let path = format!("/admin/destinations/{}", made.json()["id"].as_str().unwrap());
    assert_eq!(desk.patch(&path, &json!({"url": QUEUE})).await.error().as_deref(), Some("destination_kind"));
    assert_eq!(desk.patch(&path, &json!({"url": QUEUE, "ordered": false})).await.status, 200);
}
