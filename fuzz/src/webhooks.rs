//! Bodies of webhooks, whose signature holds: lenient, but what is made of them can be stored.

use serde_json::Value;
use shared::webhooks::reading::{Meaning, Reading};
use shared::webhooks::{shopify, stripe, threepl};

const TOPICS: [&str; 14] = [
    "orders/create",
    "orders/updated",
    "orders/fulfilled",
    "orders/cancelled",
    "orders/edited",
    "orders/delete",
    "orders/anything",
    "refunds/create",
    "fulfillments/create",
    "reverse_fulfillment_orders/dispose",
    "customers/redact",
    "shop/redact",
    "app/uninstalled",
    "products/create",
];

/// The first byte chooses the topic.
pub fn shopify_body(bytes: &[u8]) {
    let Some((&topic, body)) = bytes.split_first() else { return };
    let topic = TOPICS[usize::from(topic) % TOPICS.len()];
    let meaning = shopify::read(topic, Some("2026-12-01T00:00:00Z"), body);
    storable(&meaning);
    // A command's order replaces the body when personal data is erased: it then says the same.
    if let Meaning::Command(command) = &meaning
        && let Some(order) = command.get("order").filter(|order| order.is_object())
    {
        let again = shopify::read(topic, Some("2026-12-01T00:00:00Z"), order.to_string().as_bytes());
        let Meaning::Command(again) = again else {
            panic!("the erased body {order} cannot be read again: {again:?}")
        };
        assert_eq!(again["lines"], command["lines"], "{order}");
    }
}

/// Any body is an event.
pub fn stripe_body(bytes: &[u8]) {
    reading(&stripe::read(bytes).reading);
}

/// Any body is an event.
pub fn threepl_body(bytes: &[u8]) {
    reading(&threepl::read(bytes));
}

fn reading(reading: &Reading) {
    assert!(!reading.topic.contains('\0') || matches!(reading.meaning, Meaning::Unreadable(_)));
    storable(&reading.meaning);
}

/// PostgreSQL's text takes no NUL.
fn storable(meaning: &Meaning) {
    match meaning {
        Meaning::Command(command) => without_nul(command),
        Meaning::Unreadable(why) | Meaning::UnreadableOf(why, _) => assert!(!why.is_empty()),
        Meaning::Nothing => {}
    }
}

fn without_nul(value: &Value) {
    match value {
        Value::String(text) => assert!(!text.contains('\0'), "{text:?}"),
        Value::Array(items) => items.iter().for_each(without_nul),
        Value::Object(members) => members.iter().for_each(|(name, value)| {
            assert!(!name.contains('\0'), "{name:?}");
            without_nul(value);
        }),
        _ => {}
    }
}
