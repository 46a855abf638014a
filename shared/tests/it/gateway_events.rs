//! API Gateway's published example events: path, stage, query, headers and body are read correctly.

use serde_json::{Value, json};
use shared::http::event::Incoming;
use testing::Event;

use crate::case_json;

fn read(event: &Value) -> Incoming {
    Incoming::read(lambda_http::request::from_str(&event.to_string()).unwrap())
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
