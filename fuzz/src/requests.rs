//! Requests on our own routes.

use serde_json::Value;
use shared::http::event::Incoming;
use shared::http::json;
use shared::http::serve::HttpEvent;

/// What the strict reader takes, any reader takes, as the same value; its canonical form is that of the value, and reads as the
/// same value again, also as the fingerprint sees it.
pub fn canonical_body(bytes: &[u8]) {
    let Ok(value) = json::parse(bytes) else { return };
    let lenient: Value = serde_json::from_slice(bytes).expect("strict JSON is JSON");
    assert!(same(&value, &lenient), "{value} and {lenient}");
    let canonical = json::canonical(&value);
    let again = json::parse(&canonical).expect("the canonical form is strict");
    assert_eq!(again, value);
    assert_eq!(json::canonical(&again), canonical);
    assert_eq!(
        json::fingerprint("POST", "/orders", "", &value),
        json::fingerprint("POST", "/orders", "", &again)
    );
    assert_ne!(
        json::fingerprint("POST", "/orders", "", &value),
        json::fingerprint("POST", "/orders", "7", &value)
    );
}

/// Equal, but for the notation of integers.
fn same(strict: &Value, lenient: &Value) -> bool {
    match (strict, lenient) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| same(a, b)))
        }
        _ => strict == lenient,
    }
}

/// An event of the gateway becomes a request, or is refused; its request id can be answered in a header.
pub fn gateway_event(bytes: &[u8]) {
    let Ok(event) = serde_json::from_slice::<HttpEvent>(bytes) else { return };
    let incoming = Incoming::read(event.into_request());
    assert!(http::HeaderValue::from_str(&incoming.request_id).is_ok());
    assert!(incoming.query.is_sorted_by(|a, b| a.0 <= b.0));
    _ = incoming.json();
}
