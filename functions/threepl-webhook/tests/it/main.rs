//! The promises of threepl-webhook, tested with the deployed handler against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod any_order;
mod asn;
mod facts;
mod once;
mod owed;
mod shipment;
mod signatures;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::Sha256;
use shared::webhooks::inbox::Receiver;
use testing::{Event, Reply, Seed, Shop};
use threepl_webhook::Webhook;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const ACCOUNT: &str = "north-3pl";
/// The time of all clocks in these tests.
const NOW: i64 = 1_614_265_330;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn webhook(shop: &Shop) -> Webhook {
    let mut receiver = Receiver::new(&shop.db.app_config()).unwrap();
    receiver.now = now;
    Webhook { receiver, sealer: testing::sealer() }
}

async fn account(shop: &Shop, name: &str, secret: &str) {
    let tenant = shop.tenant.id;
    let sql = format!(
        "insert into threepl_account (id, tenant_id, secret) values ('{name}', '{tenant}', '{secret}')
        on conflict (id) do update set secret = excluded.secret"
    );
    shop.db.execute(sql).await;
}

async fn open(seed: Seed) -> (Shop, Webhook) {
    let shop = Shop::open(seed).await;
    account(&shop, ACCOUNT, SECRET).await;
    let webhook = webhook(&shop);
    (shop, webhook)
}

fn sign(secret: &str, id: &str, timestamp: i64, body: &[u8]) -> String {
    let key = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

fn signed(id: &str, body: &[u8]) -> Event {
    Event::post(&format!("/webhooks/3pl/{ACCOUNT}"))
        .header("webhook-id", id)
        .header("webhook-timestamp", &NOW.to_string())
        .header("webhook-signature", &sign(SECRET, id, NOW, body))
        .body(body)
}

async fn send(webhook: &Webhook, event: &Event) -> Reply {
    Reply::from(threepl_webhook::handle(webhook, event.request()).await)
}

async fn tell(webhook: &Webhook, id: &str, event: &Value) -> Reply {
    send(webhook, &signed(id, event.to_string().as_bytes())).await
}

/// Sends it and asserts that it was received.
async fn took(webhook: &Webhook, id: &str, event: &Value) {
    let reply = tell(webhook, id, event).await;
    assert_eq!((reply.status, reply.json()), (200, received()), "{event}");
}

fn received() -> Value {
    json!({"received": true})
}

fn duplicate() -> Value {
    json!({"received": true, "duplicate": true})
}

/// Lines of `(id, SKU number, units)`.
fn lines(lines: &[(&str, usize, i64)]) -> Value {
    lines
        .iter()
        .map(|(id, sku, qty)| json!({"lineId": id, "sku": format!("SKU-{:04}", sku + 1), "qty": qty}))
        .collect()
}

fn announced(asn: &str, of: &[(&str, usize, i64)]) -> Value {
    json!({"type": "asn.created", "asnId": asn, "lines": lines(of)})
}

fn arrived(asn: &str, receipt: &str, of: &[(&str, usize, i64)], closed: bool) -> Value {
    json!({"type": "asn.received", "asnId": asn, "receiptId": receipt, "closed": closed, "lines": lines(of)})
}

fn cancelled(asn: &str) -> Value {
    json!({"type": "asn.cancelled", "asnId": asn, "lines": []})
}

fn shipped(shop: &Shop, order: usize, shipment: &str, of: &[(&str, usize, i64)]) -> Value {
    json!({"type": "order.shipped", "orderId": shop.tenant.orders[order], "shipmentId": shipment, "lines": lines(of)})
}

/// `on_hand on_order allocated` of each SKU, in order.
async fn positions(shop: &Shop) -> String {
    let tenant = shop.tenant.id;
    shop.db.text(format!("select string_agg(concat_ws(' ', on_hand, on_order, allocated), ', ' order by sku_id) from sku_position where tenant_id = '{tenant}'")).await
}

/// Promises units to an order, with ledger lines.
async fn promise(shop: &Shop, order: usize, sku: usize, qty: i64) {
    let (tenant, order, line) = (shop.tenant.id, shop.tenant.orders[order], shop.one(sku, qty));
    let sql = format!(
        "begin; select set_config('app.tenant_id', '{tenant}', true);
        select holdfast.promise('{tenant}', '{order}', '[{line}]', 'test'); commit"
    );
    shop.db.execute(sql).await;
}

async fn open_shortfalls(shop: &Shop) -> String {
    shop.db.text("select coalesce(string_agg(concat_ws(' ', cause, qty), ', ' order by cause), '') from shortfall where settled_at is null").await
}

/// Retries a kept event as a person does: the status, and when it was resolved.
async fn retry(shop: &Shop, event_id: &str) -> String {
    let body: Vec<u8> = sqlx::query_scalar("select body from inbox_exception where event_id = $1")
        .bind(event_id)
        .fetch_one(&mut shop.db.owner().await)
        .await
        .unwrap();
    let read = shared::webhooks::inbox::reread(&format!("3pl:{ACCOUNT}"), "", &body);
    let (tenant, read) = (shop.tenant.id, hex::encode(read.to_string()));
    let sql = format!(
        "begin; select set_config('app.tenant_id', '{tenant}', true);
         select holdfast.retry_exception(jsonb_build_object('tenantId', '{tenant}', 'id', id, 'actor', 'user:x',
           'delivery', holdfast.json('\\x{read}')))
         from inbox_exception where event_id = '{event_id}'; commit"
    );
    shop.db.execute(sql).await;
    let state =
        "select concat_ws(': ', case when resolved_at is null then 'open' else resolved_by end, reason)
        from inbox_exception where event_id =";
    shop.db.text(format!("{state} '{event_id}'")).await
}
