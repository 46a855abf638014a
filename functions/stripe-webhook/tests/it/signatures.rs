//! Signatures: the published vectors and variations of them.

use serde_json::{Value, json};
use shared::webhooks::signature::Secrets;
use stripe_webhook::Webhook;
use testing::{Event, Shop};

use super::*;

async fn nothing_is_stored(shop: &Shop) {
    assert_eq!(shop.db.count("webhook_inbox").await + shop.db.count("inbox_exception").await, 0);
}

#[tokio::test]
async fn every_published_vector_is_answered_as_it_was_meant() {
    let Some(cases) = case("stripe/signature-cases.json") else { return };
    let (shop, base) = open().await;
    let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
    let mut accepted = 0;
    for case in &cases {
        let [name, expect, secret, header, body] =
            ["name", "expect", "secret", "header", "body"].map(|member| case[member].as_str().unwrap());
        // The tolerance is a constant here; white space separates secrets and is not part of them.
        if case["tolerance_s"] != 300 || name == "secret with trailing blank" {
            continue;
        }
        let webhook = Webhook {
            secrets: secret.into(),
            receiver: super::webhook(&shop).receiver,
            livemode: base.livemode,
        };
        let event = Event::post("/webhooks/stripe").header("Stripe-Signature", header).body(body.as_bytes());
        for event in [event.clone(), event.base64()] {
            let reply = send(&webhook, &event).await;
            // A future timestamp is refused, too: it could be replayed until then.
            let refused = expect == "reject" || expect.starts_with("policy");
            assert_eq!(reply.status, if refused { 401 } else { 200 }, "{name}: {}", reply.json());
            assert_eq!(reply.error().as_deref(), refused.then_some("bad_signature"), "{name}");
            accepted += u32::from(!refused);
        }
    }
    assert!(accepted >= 20, "{accepted}");
    // Signed, but not JSON, or without a type: kept for a person, once each.
    assert_eq!(shop.db.count("inbox_exception where reason = 'the body is not JSON'").await, 2);
    assert_eq!(shop.db.count("inbox_exception where reason = 'type is missing'").await, 2);
    assert_eq!(shop.db.count("inbox_exception").await, 4);
}

#[tokio::test]
async fn a_published_signature_holds_at_its_time() {
    let Some(cases) = case("stripe/published-signatures.json") else { return };
    let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
    for case in &cases {
        let body = case["body"].as_str().unwrap();
        let timestamp = case["timestamp"].as_i64().unwrap();
        let header = format!("t={timestamp},v1={}", case["v1"].as_str().unwrap());
        let headers = http::HeaderMap::from_iter([(
            http::HeaderName::from_static("stripe-signature"),
            header.parse().unwrap(),
        )]);
        let secrets = Secrets::plain(case["secret"].as_str().unwrap());
        let at = |seconds| jiff::Timestamp::from_second(seconds).unwrap();
        for (seconds, holds) in [(0, true), (300, true), (-300, true), (301, false), (-301, false)] {
            let found = shared::webhooks::signature::stripe(
                &secrets,
                &headers,
                body.as_bytes(),
                at(timestamp + seconds),
            );
            assert_eq!(found, holds, "{seconds} s");
        }
    }
}

#[tokio::test]
async fn without_a_signature_that_holds_nothing_is_parsed_or_stored() {
    let (shop, webhook) = open().await;
    let body = br#"{"id":"evt_1","type":"x"}"#;
    let good = sign(SECRET, &NOW.to_string(), body);
    let t = NOW.to_string();
    for header in [
        None,
        Some(String::new()),
        Some(format!("v1={good}")),
        Some(format!("t={t}")),
        Some(format!("t={t},v0={good}")),
        Some(format!("t=+{t},v1={}", sign(SECRET, &format!("+{t}"), body))),
        Some(format!("t={t}.0,v1={}", sign(SECRET, &format!("{t}.0"), body))),
        Some(format!("t=-1,v1={}", sign(SECRET, "-1", body))),
        Some(format!("t=99999999999999999999,v1={}", sign(SECRET, "99999999999999999999", body))),
        Some(format!("t={t},v1={}", sign("whsec_other", &t, body))),
        Some(format!("t={t},v1={}", sign("", &t, body))),
        Some(format!("t={t},v1={}", &good[..62])),
        Some(format!("t={t},v1={good}00")),
    ] {
        let mut event = Event::post("/webhooks/stripe").body(body);
        if let Some(header) = &header {
            event = event.header("stripe-signature", header);
        }
        let reply = send(&webhook, &event).await;
        assert_eq!((reply.status, reply.error().as_deref()), (401, Some("bad_signature")), "{header:?}");
        assert!(reply.header("x-request-id").is_some());
    }
    // Not parsed: a body that is not JSON gets the same answer.
    let reply =
        send(&webhook, &Event::post("/webhooks/stripe").header("stripe-signature", "t=1,v1=00").body(b"{"))
            .await;
    assert_eq!(reply.status, 401);
    nothing_is_stored(&shop).await;
}

#[tokio::test]
async fn any_of_several_secrets_will_do_and_an_upper_case_signature_too() {
    let (shop, mut webhook) = open().await;
    for (index, configured) in ["old,new", " old\n new ", "new", "old, ,new"].iter().enumerate() {
        webhook.secrets = (*configured).into();
        let body = json!({"id": format!("evt_{index}"), "type": "x"}).to_string();
        let signature = sign("new", &NOW.to_string(), body.as_bytes());
        for signature in [signature.clone(), signature.to_uppercase()] {
            let header =
                format!("t={NOW},v1={}, v1={signature}", sign("elder", &NOW.to_string(), body.as_bytes()));
            let event =
                Event::post("/webhooks/stripe").header("STRIPE-SIGNATURE", &header).body(body.as_bytes());
            assert_eq!(send(&webhook, &event).await.status, 200, "{configured:?}");
        }
    }
    assert_eq!(shop.db.count("webhook_inbox").await, 4);
    let printed = format!("{:?}", webhook.secrets);
    assert!(!printed.contains("old") && !printed.contains("new"), "a secret is printed: {printed}");
}

#[tokio::test]
async fn other_addresses_and_methods_are_refused() {
    let (_shop, webhook) = open().await;
    assert_eq!(send(&webhook, &Event::post("/webhooks/stripe/x")).await.status, 404);
    assert_eq!(send(&webhook, &Event::get("/webhooks/stripe")).await.status, 405);
    let body = br#"{"id":"evt_1","type":"x"}"#;
    assert_eq!(send(&webhook, &signed(body).stage("prod")).await.status, 200);
}
