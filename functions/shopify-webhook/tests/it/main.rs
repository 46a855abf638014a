//! The promises of shopify-webhook, tested with the deployed handler against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod any_history;
mod any_order;
mod beside;
mod exceptions;
mod facts;
mod history;
mod once;
mod orders;
mod people;
mod published;
mod rules;
mod shortage;
mod signatures;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use shared::webhooks::inbox::Receiver;
use shopify_webhook::Webhook;
use testing::{Event, Reply, Seed, Shop, blocks, case};

const SECRET: &str = "client_secret_of_the_tests";
const DOMAIN: &str = "alder.myshopify.com";

fn webhook(shop: &Shop) -> Webhook {
    Webhook {
        receiver: Receiver::new(&shop.db.app_config()).unwrap(),
        secrets: SECRET.into(),
        sealer: testing::sealer(),
    }
}

async fn open(seed: Seed) -> (Shop, Webhook) {
    let shop = Shop::open(seed).await;
    let tenant = shop.tenant.id;
    shop.db
        .execute(format!("insert into shopify_shop (domain, tenant_id) values ('{DOMAIN}', '{tenant}')"))
        .await;
    let webhook = webhook(&shop);
    (shop, webhook)
}

fn sign(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    STANDARD.encode(mac.finalize().into_bytes())
}

fn signed(domain: &str, id: &str, topic: &str, body: &[u8]) -> Event {
    Event::post("/webhooks/shopify")
        .header("X-Shopify-Shop-Domain", domain)
        .header("X-Shopify-Webhook-Id", id)
        .header("X-Shopify-Event-Id", "the same for several topics")
        .header("X-Shopify-Topic", topic)
        .header("X-Shopify-Hmac-Sha256", &sign(SECRET, body))
        .body(body)
}

async fn send(webhook: &Webhook, event: &Event) -> Reply {
    Reply::from(shopify_webhook::handle(webhook, event.request()).await)
}

async fn tell(webhook: &Webhook, id: &str, topic: &str, body: &Value) -> Reply {
    send(webhook, &signed(DOMAIN, id, topic, body.to_string().as_bytes())).await
}

/// Sends it and asserts that it was received.
async fn took(webhook: &Webhook, id: &str, topic: &str, body: &Value) {
    let reply = tell(webhook, id, topic, body).await;
    assert_eq!((reply.status, reply.json()), (200, received()), "{topic} {body}");
}

fn received() -> Value {
    json!({"received": true})
}

fn duplicate() -> Value {
    json!({"received": true, "duplicate": true})
}

/// Beyond 2^53: a double would round it to another number.
const BIG: i64 = 9_007_199_254_740_993;

/// An order of `(line, SKU number, units)`.
fn order(id: i64, lines: &[(i64, usize, i64)]) -> Value {
    let lines: Vec<Value> = lines
        .iter()
        .map(|(line, sku, qty)| {
            json!({"id": line, "variant_id": 1, "sku": format!("SKU-{:04}", sku + 1),
        "quantity": qty, "current_quantity": qty, "title": "Parka"})
        })
        .collect();
    json!({"id": id, "name": "#1001", "email": "jo@buyer.test", "cancelled_at": null, "line_items": lines,
        "customer": {"id": 77, "first_name": "Jo", "email": "jo@buyer.test"}})
}

/// The order as it stands at that second of a minute.
fn order_at(second: u32, id: i64, lines: &[(i64, usize, i64)]) -> Value {
    let mut body = order(id, lines);
    body["updated_at"] = json!(format!("2026-01-15T09:30:{second:02}+01:00"));
    body
}

/// Refund lines of `(id, line, units, restock type)`.
fn refund_lines(lines: &[(i64, i64, i64, &str)]) -> Value {
    lines.iter().map(|(id, line, qty, how)| json!({"id": id, "line_item_id": line, "quantity": qty, "restock_type": how})).collect()
}

fn refund(order: i64, lines: &[(i64, i64, i64, &str)]) -> Value {
    json!({"id": 1, "order_id": order, "refund_line_items": refund_lines(lines), "note": "too small"})
}

/// `on_hand allocated` of each SKU, in order.
async fn positions(shop: &Shop) -> String {
    let tenant = shop.tenant.id;
    shop.db.text(format!("select string_agg(concat_ws(' ', on_hand, allocated), ', ' order by sku_id) from sku_position where tenant_id = '{tenant}'")).await
}

async fn open_shortfalls(shop: &Shop) -> String {
    shop.db.text("select coalesce(string_agg(concat_ws(' ', cause, qty), ', '), '') from shortfall where settled_at is null").await
}
