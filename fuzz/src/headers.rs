//! Headers.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, HeaderName, HeaderValue};
use jiff::Timestamp;
use sha2::Sha256;
use shared::delivery::attempt;
use shared::idempotency::key;
use shared::idempotency::precondition::Precondition;
use shared::webhooks::signature::{self, Secrets};

/// 2026-12-01T00:00:00Z.
fn now() -> Timestamp {
    Timestamp::from_second(1_796_083_200).expect("a moment")
}

/// A key has 1 to 255 characters; bare it is the header without outer blanks; quoted in its one form it is the same key.
pub fn idempotency_key(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(found) = key::parse(text) else { return };
    assert!((1..=255).contains(&found.len()) && found.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
    if !text.trim_matches([' ', '\t']).starts_with('"') {
        assert_eq!(found, text.trim_matches([' ', '\t']));
    }
    let quoted = format!("\"{}\"", found.replace('\\', "\\\\").replace('"', "\\\""));
    assert_eq!(key::parse(&quoted).as_ref(), Ok(&found), "{quoted}");
}

/// Whatever the header holds, it is `*`, or a list of tags that can be written down and read again. Weak tags and malformed
/// headers match nothing; `yours` is a version, and the only tag.
pub fn if_match(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let headers = |value| HeaderMap::from_iter([(http::header::IF_MATCH, value)]);
    let read = Precondition::optional(&headers(value)).expect("the header was sent").to_json();
    let tags: Vec<&str> =
        read["tags"].as_array().expect("tags").iter().map(|tag| tag.as_str().expect("text")).collect();
    if read["any"] == true {
        assert!(tags.is_empty() && bytes.trim_ascii() == b"*");
        return;
    }
    if let Some(version) = read["yours"].as_i64() {
        assert!(version > 0 && tags == [version.to_string()], "{read}");
    }
    if tags.is_empty() {
        return;
    }
    let list = tags.iter().map(|tag| format!("\"{tag}\"")).collect::<Vec<_>>().join(", ");
    let again = headers(list.parse().expect("tags can stand in a header"));
    assert_eq!(Precondition::optional(&again).expect("sent").to_json(), read, "{list}");
}

/// A wait is at most an hour.
pub fn retry_after(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    if let Some(wait) = attempt::retry_after(text, now()) {
        assert!(wait <= Duration::from_secs(3600), "{text}: {wait:?}");
    }
}

/// Nothing that the secret did not make proves a sender, whatever stands around it; what it made does. The first byte says
/// where a true signature is put in, the rest are the headers, a line each, and behind a blank line the body.
pub fn signatures(bytes: &[u8]) {
    let Some((&place, rest)) = bytes.split_first() else { return };
    let end = rest.windows(2).position(|pair| pair == b"\n\n");
    let (head, body) = end.map_or((rest, &b""[..]), |end| (&rest[..end], &rest[end + 2..]));
    let mut lines = head.split(|&byte| byte == b'\n').map(|line| HeaderValue::from_bytes(line).ok());
    let mut headers = HeaderMap::new();
    for name in
        ["stripe-signature", "x-shopify-hmac-sha256", "webhook-id", "webhook-timestamp", "webhook-signature"]
    {
        if let Some(Some(value)) = lines.next() {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
    let (secret, now) = (b"a secret of 32 bytes, as all are", now());
    let plain = Secrets::plain("secret-that-nobody-told");
    let encoded = Secrets::base64(&STANDARD.encode(secret));
    assert!(!signature::stripe(&plain, &headers, body, now));
    assert!(!signature::shopify(&plain, &headers, body));
    assert!(signature::standard_webhooks(&encoded, &headers, body, now).is_none());

    let mac = |secret: &[u8], parts: &[&[u8]]| {
        let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("any length");
        parts.iter().for_each(|part| mac.update(part));
        mac.finalize().into_bytes()
    };
    let seconds = now.as_second().to_string();
    let of = |headers: &HeaderMap, name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    match place % 3 {
        0 => {
            let made = hex::encode(mac(b"secret-that-nobody-told", &[seconds.as_bytes(), b".", body]));
            // What stands behind it, a sender may add; a second time does not count.
            let header = format!("t={seconds},v1={made},{}", of(&headers, "stripe-signature"));
            headers.insert("stripe-signature", header.parse().expect("a header"));
            assert!(signature::stripe(&plain, &headers, body, now), "{header}");
        }
        1 => {
            let made = STANDARD.encode(mac(b"secret-that-nobody-told", &[body]));
            headers.insert("x-shopify-hmac-sha256", made.parse().expect("a header"));
            assert!(signature::shopify(&plain, &headers, body));
        }
        _ => {
            let id = of(&headers, "webhook-id");
            if id.is_empty() || id.contains('.') {
                return;
            }
            let made = STANDARD.encode(mac(secret, &[id.as_bytes(), b".", seconds.as_bytes(), b".", body]));
            headers.insert("webhook-timestamp", seconds.parse().expect("a header"));
            let header = format!("{} v1,{made}", of(&headers, "webhook-signature"));
            headers.insert("webhook-signature", header.parse().expect("a header"));
            assert_eq!(
                signature::standard_webhooks(&encoded, &headers, body, now),
                Some(id.as_str()),
                "{header}"
            );
        }
    }
}
