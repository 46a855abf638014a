//! What a webhook's body may not be, and in which words an operator is told.

use serde_json::{Value, json};
use shared::webhooks::reading::Meaning;
use shared::webhooks::{shopify, stripe, threepl};

/// Reads as the sender or, for Shopify, the topic says; `None` for what is no fault.
fn fault(sender: &str, body: &[u8]) -> Option<String> {
    let meaning = match sender {
        "stripe" => stripe::read(body).reading.meaning,
        "3pl" => threepl::read(body).meaning,
        topic => shopify::read(topic, None, body),
    };
    match meaning {
        Meaning::Unreadable(why) | Meaning::UnreadableOf(why, _) => Some(why),
        Meaning::Command(_) => None,
        Meaning::Nothing => panic!("{sender} does not read it"),
    }
}

/// Bodies with an object at every place where one is read.
fn samples() -> Vec<(&'static str, Value)> {
    let metadata = json!({"invoice_id": uuid::Uuid::nil()});
    let stripe = [
        (
            "payment_intent.succeeded",
            json!({"id": "pi", "currency": "usd", "amount_received": 1, "metadata": metadata}),
        ),
        (
            "payment_intent.payment_failed",
            json!({"id": "pi", "currency": "usd", "amount": 1, "metadata": metadata, "latest_charge": {"id": "ch"},
                "last_payment_error": {"charge": "ch"}}),
        ),
        (
            "charge.refunded",
            json!({"id": "ch", "currency": "usd", "amount": 1, "amount_refunded": 1, "refunded": true,
                "payment_intent": {"id": "pi"}, "metadata": metadata}),
        ),
        (
            "charge.dispute.created",
            json!({"id": "dp", "currency": "usd", "amount": 1, "payment_intent": {"id": "pi"}, "metadata": metadata}),
        ),
    ];
    let stripe = stripe.map(|(topic, object)| {
        ("stripe", json!({"id": "evt_1", "type": topic, "livemode": true, "data": {"object": object}}))
    });
    let refunded = json!([{"id": 1, "line_item_id": 2, "quantity": 3, "restock_type": "cancel"}]);
    let others = [
        (
            "orders/cancelled",
            json!({"id": 1, "line_items": [{"id": 2, "sku": "S", "variant_id": 3, "quantity": 4}],
                "refunds": [{"refund_line_items": refunded}], "customer": {"id": 5}}),
        ),
        ("refunds/create", json!({"order_id": 1, "refund_line_items": refunded})),
        (
            "customers/redact",
            json!({"customer": {"id": 1, "email": "e", "phone": "p"}, "orders_to_redact": [1]}),
        ),
        (
            "3pl",
            json!({"type": "asn.received", "asnId": 1, "receiptId": 2, "closed": true,
                "lines": [{"lineId": 1, "sku": "S", "qty": 1}, {"lineId": 2, "sku": "S", "qty": 1}]}),
        ),
    ];
    stripe.into_iter().chain(others).collect()
}

/// The JSON pointers of all objects in a value, with their places in a sender's terms.
fn objects(value: &Value, pointer: &str, place: &str) -> Vec<(String, String)> {
    let of_member = |(name, value): (&String, &Value)| {
        let dot = if place.is_empty() { "" } else { "." };
        objects(value, &format!("{pointer}/{name}"), &format!("{place}{dot}{name}"))
    };
    let of_item =
        |(n, value): (usize, &Value)| objects(value, &format!("{pointer}/{n}"), &format!("{place}[{n}]"));
    match value {
        Value::Object(members) => {
            let this = (pointer.to_owned(), place.to_owned());
            [this].into_iter().chain(members.iter().flat_map(of_member)).collect()
        }
        Value::Array(items) => items.iter().enumerate().flat_map(of_item).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn a_list_is_no_object_wherever_one_is_read() {
    let mut seen = 0;
    for (sender, sample) in samples() {
        assert_eq!(fault(sender, sample.to_string().as_bytes()), None, "{sample}");
        for (pointer, place) in objects(&sample, "", "") {
            let mut body = sample.clone();
            let object = body.pointer_mut(&pointer).expect("the place of an object");
            *object = object.as_object().expect("an object").values().cloned().collect();
            let why = fault(sender, body.to_string().as_bytes()).unwrap_or_default();
            let place = if place.is_empty() { "the body" } else { &place };
            assert!(why.starts_with(&format!("{place} is not an")), "{body}: {why}");
            assert!(why.contains(" object"), "{body}: {why}");
            seen += 1;
        }
    }
    assert!(seen >= 32, "{seen}");
}

#[test]
fn a_fault_says_what_is_wrong_and_where_and_quotes_nothing() {
    let name = "Jo, expected Kim at line 9";
    let line = |members: &str| {
        format!(r#"{{"{name}":[],"id":1,"line_items":[{{"id":1,"quantity":1}},{{{members}}}]}}"#)
    };
    let too_long = format!(r#""id":"{}""#, "x".repeat(256));
    let no_id = "line_items[1].id is not an id: a whole number, or a text of 1 to 255 bytes without U+0000";
    for (body, why) in [
        (line(r#""id":2,"quantity":"5""#), "line_items[1].quantity is not a whole number"),
        (line(r#""id":2,"quantity":1.5"#), "line_items[1].quantity is not a whole number"),
        (line(r#""id":2,"quantity":null"#), "line_items[1].quantity is not a whole number"),
        (line(r#""id":2,"quantity":9223372036854775808"#), "line_items[1].quantity is too large a number"),
        (line(r#""id":2,"quantity":1e999"#), "line_items[1].quantity is too large a number"),
        (line(r#""id":2,"quantity":-1"#), "line_items[1].quantity is not between 0 and 1,000,000"),
        (line(&format!(r#""id":2,"quantity":"{name}""#)), "line_items[1].quantity is not a whole number"),
        (line(r#""quantity":1"#), "line_items[1].id is missing"),
        (line(r#""id":2,"id":2,"quantity":1"#), "line_items[1].id is there more than once"),
        (line(r#""id":2.5"#), no_id),
        (line(r#""id":"""#), no_id),
        (line(&too_long), no_id),
        (line(r#""sku":5"#), "line_items[1].sku is not a text of at most 255 bytes without U+0000"),
        (line(r#""sku":"a\u0000""#), "line_items[1].sku is not a text of at most 255 bytes without U+0000"),
        (line(r#""sku":"\ud800""#), "line_items[1].sku has text that is not Unicode"),
        (line(r#""\ud800":1"#), "line_items[1] has text that is not Unicode"),
        (format!(r#"{{"id":1,"line_items":"{name}"}}"#), "line_items is not a list"),
        (r#"{"id":1,"customer":"Jo"}"#.into(), "customer is not an object"),
        (r#"{"id":1,"line_items":[],"line_items":[]}"#.into(), "line_items is there more than once"),
        (format!(r#""{name}""#), "the body is not an object"),
        ("null".into(), "the body is not an object"),
        (format!(r#"{{"id":1,"{name}":{{"Kim":x}}}}"#), "the body is not JSON"),
        (format!(r#"{{"id":1}} {name}"#), "the body is not JSON"),
        (format!(r#"{{"id":1,"{name}":"#), "the body is not JSON: it ends too early"),
        (String::new(), "the body is not JSON: it ends too early"),
    ] {
        assert_eq!(fault("orders/create", body.as_bytes()).as_deref(), Some(why), "{body}");
    }
    assert_eq!(
        fault("orders/create", b"{\"id\":\"\xff\"}").as_deref(),
        Some("id has text that is not Unicode")
    );
    let refund =
        br#"{"order_id":1,"refund_line_items":[{"id":1,"line_item_id":1,"quantity":1,"restock_type":"Jo"}]}"#;
    let why = "refund_line_items[0].restock_type is not one of cancel, return, legacy_restock, no_restock";
    assert_eq!(fault("refunds/create", refund).as_deref(), Some(why));
    assert_eq!(fault("3pl", br#"{"type":5}"#).as_deref(), Some("type is not a text"));
    assert_eq!(
        fault("3pl", br#"{"type":"asn.created","closed":1}"#).as_deref(),
        Some("closed is not true or false")
    );
    assert_eq!(fault("3pl", br#"{"type":"asn.created"}"#).as_deref(), Some("asnId is missing"));
}
