//! The promises of stripe-webhook, tested with the deployed handler against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod accounts;
mod any_order;
mod currencies;
mod effects;
mod facts;
mod log;
mod money;
mod official;
mod once;
mod rotation;
mod signatures;

use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::Sha256;
use shared::webhooks::inbox::Receiver;
use stripe_webhook::{Livemode, Webhook};
use testing::{Event, Reply, Seed, Shop, case};
use uuid::Uuid;

const SECRET: &str = "whsec_of_the_tests";
/// The time of all clocks in these tests.
const NOW: i64 = 1_700_000_000;

fn now() -> Timestamp {
    Timestamp::from_second(NOW).unwrap()
}

fn webhook(shop: &Shop) -> Webhook {
    let mut receiver = Receiver::new(&shop.db.app_config()).unwrap();
    receiver.now = now;
    Webhook { receiver, secrets: SECRET.into(), livemode: Livemode::Any }
}

fn sign(secret: &str, timestamp: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    hex::encode(mac.finalize().into_bytes())
}

/// A delivery signed at that time.
fn signed(body: &[u8]) -> Event {
    let header = format!("t={NOW},v1={}", sign(SECRET, &NOW.to_string(), body));
    Event::post("/webhooks/stripe").header("Stripe-Signature", &header).body(body)
}

async fn send(webhook: &Webhook, event: &Event) -> Reply {
    Reply::from(stripe_webhook::handle(webhook, event.request()).await)
}

/// Sends an event of Stripe, signed.
async fn tell(webhook: &Webhook, event: &Value) -> Reply {
    send(webhook, &signed(event.to_string().as_bytes())).await
}

fn event(id: &str, topic: &str, object: Value) -> Value {
    json!({"id": id, "object": "event", "type": topic, "livemode": false, "api_version": "2020-08-27",
        "request": {"id": null}, "data": {"object": object}})
}

fn succeeded(id: &str, intent: &str, invoice: Uuid, amount: i64) -> Value {
    event(
        id,
        "payment_intent.succeeded",
        json!({"id": intent, "amount_received": amount, "amount": amount,
        "currency": "usd", "metadata": {"invoice_id": invoice}}),
    )
}

/// An event that says when it was made.
fn at(created: i64, mut event: Value) -> Value {
    event["created"] = json!(created);
    event
}

/// An event about a refund by its own id.
fn refund(id: &str, topic: &str, intent: &str, refund: (&str, i64, &str)) -> Value {
    let (refund, amount, status) = refund;
    event(
        id,
        topic,
        json!({"id": refund, "amount": amount, "currency": "usd", "status": status, "charge": format!("ch_{intent}"),
            "payment_intent": intent, "metadata": {}}),
    )
}

/// An event about the whole dispute of a payment of 5,000.
fn disputed(id: &str, topic: &str, intent: &str, status: &str) -> Value {
    event(
        id,
        &format!("charge.dispute.{topic}"),
        json!({"id": format!("dp_{intent}"), "amount": 5_000, "currency": "usd", "status": status,
            "charge": format!("ch_{intent}"), "payment_intent": intent}),
    )
}

/// Status, received, returned, and whether it is disputed.
async fn state(shop: &Shop, invoice: Uuid) -> String {
    shop.db.text(format!(
            "select concat_ws(' ', status, paid_minor, refunded_minor, case when disputed_at is not null then 'disputed' end)
             from invoice where id = '{invoice}'"
        ),
    )
    .await
}

/// A refund that names its invoice only through the payment intent.
fn refunded(id: &str, intent: &str, amount: i64, so_far: i64) -> Value {
    event(
        id,
        "charge.refunded",
        json!({"id": format!("ch_{intent}"), "payment_intent": intent, "amount": amount,
        "amount_refunded": so_far, "refunded": so_far == amount, "currency": "usd", "metadata": {}}),
    )
}

fn received() -> Value {
    json!({"received": true})
}

fn duplicate() -> Value {
    json!({"received": true, "duplicate": true})
}

async fn open() -> (Shop, Webhook) {
    let shop = Shop::open(Seed::default()).await;
    let webhook = webhook(&shop);
    (shop, webhook)
}

/// An invoice of 5,000 USD cents awaiting payment.
async fn invoice(shop: &Shop) -> Uuid {
    invoice_in(shop, "USD", 5_000).await
}

async fn invoice_in(shop: &Shop, currency: &str, total: i64) -> Uuid {
    let (tenant, customer, id) = (shop.tenant.id, shop.tenant.customer, Uuid::new_v4());
    let sql = format!(
        "insert into invoice (tenant_id, id, customer_id, total_minor, currency, event_sequence)
        values ('{tenant}', '{id}', '{customer}', {total}, '{currency}', 0)"
    );
    shop.db.execute(sql).await;
    id
}

async fn status(shop: &Shop, invoice: Uuid) -> String {
    shop.db.text(format!("select status from invoice where id = '{invoice}'")).await
}
