//! API Gateway's published example events: path, stage, query, headers and body are read correctly.

use serde_json::{Value, json};
use shared::http::event::Incoming;
use shared::http::serve::HttpEvent;
use testing::Event;

use crate::case_json;

fn read(event: &Value) -> Incoming {
    Incoming::read(serde_json::from_str::<HttpEvent>(&event.to_string()).unwrap().into_request())
}

fn path(incoming: &Incoming) -> String {
    format!("/{}", incoming.segments.join("/"))
}

#[test]
fn published_events_are_read_correctly() {
    for file in [
        "events-example-apigw-v2-request-jwt-authorizer.json",
        "events-example-apigw-v2-request-no-authorizer.json",
        "http-apigw_v2_proxy_request.json",
        "http-apigw_v2_proxy_request_minimal.json",
        "http-apigw_v2_proxy_request_with_stage_in_path.json",
    ] {
        let Some(event) = case_json(&format!("apigw/{file}")) else {
            return;
        };
        let incoming = read(&event);
        let context = &event["requestContext"];
        assert_eq!(incoming.method.as_str(), context["http"]["method"].as_str().unwrap(), "{file}");
        let (raw, stage) =
            (event["rawPath"].as_str().unwrap(), context["stage"].as_str().unwrap_or("$default"));
        let prefix = format!("/{stage}");
        let without = if stage == "$default" { raw } else { raw.strip_prefix(&prefix).unwrap_or(raw) };
        assert_eq!(path(&incoming), without, "{file}");
        if let Some(id) = context["requestId"].as_str() {
            assert_eq!(incoming.request_id, id, "{file}");
        }
        for (name, value) in event["headers"].as_object().into_iter().flatten() {
            let got = incoming.headers.get(name.to_lowercase()).map(|v| v.to_str().unwrap());
            assert_eq!(got, value.as_str(), "{file}: {name}");
        }
        let body = event["body"].as_str().unwrap_or_default();
        if event["isBase64Encoded"] != json!(true) {
            assert_eq!(incoming.body, body.as_bytes(), "{file}");
        }
    }
}

#[test]
fn a_body_is_the_same_as_text_and_as_base64() {
    for body in ["", "{}", "{\"a\":\"é€😀\"}", "\u{feff}x", "a\r\nb\0c"] {
        let event = Event::post("/orders/1/allocate").body(body.as_bytes());
        assert_eq!(Incoming::read(event.request()).body, body.as_bytes());
        assert_eq!(Incoming::read(event.base64().request()).body, body.as_bytes());
    }
    let bytes: Vec<u8> = (0..=255).collect();
    assert_eq!(Incoming::read(Event::post("/x").body(&bytes).request()).body, bytes);
}

#[test]
fn the_path_is_decoded_segment_by_segment_and_without_its_stage() {
    for (stage, given, segments) in [
        ("$default", "/orders/a%2Fb/allocate", vec!["orders", "a/b", "allocate"]),
        ("$default", "/orders/%C3%A9", vec!["orders", "é"]),
        ("$default", "/orders/a+b", vec!["orders", "a+b"]),
        ("prod", "/orders/1", vec!["orders", "1"]),
        ("orders", "/orders/1", vec!["orders", "1"]),
    ] {
        assert_eq!(
            Incoming::read(Event::get(given).stage(stage).request()).segments,
            segments,
            "{stage} {given}"
        );
    }
}

#[test]
fn query_parameters_are_decoded_once() {
    let incoming = Incoming::read(Event::get("/orders?q=a%2Bb%20c&status=open&empty=").request());
    for pair in [("q", "a+b c"), ("status", "open"), ("empty", "")] {
        assert!(incoming.query.contains(&(pair.0.into(), pair.1.into())), "{:?}", incoming.query);
    }
}

/// The smallest event, with `member` set to `value`.
fn with(member: &str, value: Value) -> Value {
    let mut event = json!({"requestContext": {"http": {"method": "POST"}}});
    event[member] = value;
    event
}

#[test]
fn a_query_that_no_uri_may_hold_is_read_as_what_it_says() {
    for (raw, q) in [
        ("q=a b", "a b"),
        ("q=\"a\"", "\"a\""),
        ("q=<a>", "<a>"),
        ("q=a#b", "a#b"),
        ("q=a\nb\0", "a\nb\0"),
        ("q=é", "é"),
        ("q=\u{7f}", "\u{7f}"),
        ("q=%", "%"),
        ("q=%ff", "\u{fffd}"),
        ("q=a=b?c", "a=b?c"),
    ] {
        assert_eq!(read(&with("rawQueryString", json!(raw))).query, [("q".into(), q.into())], "{raw}");
    }
    let long = format!("q={}", "x".repeat(100_000));
    assert_eq!(read(&with("rawQueryString", json!(long))).query[0].1.len(), 100_000);
    let given = with("queryStringParameters", json!({"b": "2", "a": "1 & 2"}));
    assert_eq!(read(&given).query, [("a".into(), "1 & 2".into()), ("b".into(), "2".into())]);
}

#[test]
fn a_body_that_is_not_base64_is_a_mistake_in_the_body() {
    for body in ["{}", "e30", "e30=\n", "%%%", "é", " "] {
        let mut event = with("body", json!(body));
        event["isBase64Encoded"] = json!(true);
        let incoming = read(&event);
        assert_eq!(incoming.body, b"", "{body}");
        let told = incoming.json().unwrap_err();
        assert_eq!(told.message, "isBase64Encoded is true, but the body is not base64", "{body}");
    }
    let mut event = with("body", json!("e30="));
    event["isBase64Encoded"] = json!(true);
    assert_eq!(read(&event).json(), Ok(json!({})));
}

#[test]
fn strange_members_of_an_event_do_no_harm() {
    let headers = json!({"host": "a b", "x-forwarded-proto": "1 2", "a b": "c", "idempotency-key": "a\nb", "n": 7,
        "Authorization": "Bearer 1", "authorization": "Bearer 2", "x": "é"});
    let incoming = read(&with("headers", headers));
    assert_eq!(incoming.headers.get_all("authorization").iter().count(), 2);
    assert!(incoming.headers.get("idempotency-key").is_none());
    assert!(incoming.headers.get("n").is_none());
    assert_eq!(incoming.headers["x"].as_bytes(), "é".as_bytes());
    for path in ["", "orders", "//", "/a b/\"<>", "/%ff/%", "http://x y/", "/\n"] {
        let incoming = read(&with("rawPath", json!(path)));
        assert_eq!(incoming.segments.len(), path.matches('/').count(), "{path}");
    }
    for event in [with("body", json!(null)), with("headers", json!(null)), with("timeEpoch", json!("now"))] {
        assert_eq!(read(&event).method, "POST");
    }
    for id in ["", "a b", "a\r\nx: y", "é"] {
        let mut event = with("body", json!(""));
        event["requestContext"]["requestId"] = json!(id);
        assert_eq!(read(&event).request_id.len(), 36, "a new one instead of {id:?}");
    }
}

#[test]
fn what_is_no_http_event_is_told_so() {
    let rest = json!({"httpMethod": "GET", "path": "/", "requestContext": {"stage": "prod"}});
    let mut no_method = with("body", json!(""));
    no_method["requestContext"]["http"]["method"] = json!("GE T");
    for (event, why) in [
        (json!({}), "missing field `requestContext`"),
        (json!(7), "invalid type"),
        (json!([]), "invalid length"),
        (rest, "missing field `http`"),
        (testing::emulator::event::scheduled("every-minute"), "missing field `requestContext`"),
        (with("body", json!({"qty": 1})), "invalid type: map, expected a string"),
        (no_method, "invalid HTTP method"),
    ] {
        let told = serde_json::from_value::<HttpEvent>(event.clone()).unwrap_err().to_string();
        let expected =
            "this function serves events of an API Gateway HTTP API (payload format 2.0), and this is none: ";
        assert!(told.starts_with(expected) && told.contains(why), "{event}: {told}");
    }
}
