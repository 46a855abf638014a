//! What the real binary writes of a delivery: one line with what became of it, and the counters.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use testing::emulator::{Function, Sandbox};
use testing::{Event, Seed, Shop};
use uuid::Uuid;

use crate::{SECRET, event, sign, succeeded};

#[tokio::test]
async fn a_delivery_is_one_line_and_what_went_wrong_is_counted() {
    let shop = Shop::open(Seed::default()).await;
    let path = std::env::temp_dir().join(format!("holdfast-{}.log", Uuid::new_v4()));
    let function = Function::new("stripe-webhook", env!("CARGO_BIN_EXE_stripe-webhook"));
    let function = shop.db.endpoint_env().into_iter().fold(function, |f, (name, value)| f.env(name, value));
    let function = function.env("STRIPE_WEBHOOK_SECRET", SECRET).env("STRIPE_LIVEMODE", "any");
    let function = Function { log: Some(path.clone()), ..function }.env("AWS_LAMBDA_LOG_FORMAT", "JSON");
    let sandbox = Sandbox::start(&function).await.unwrap();
    let unused = event("evt_1", "customer.created", json!({"id": "cus_1"}));
    let unmatched = succeeded("evt_2", "pi_1", Uuid::new_v4(), 5_000);
    for (body, secret) in [(&unused, SECRET), (&unused, SECRET), (&unmatched, SECRET), (&unused, "another")] {
        let (body, time) = (body.to_string(), Timestamp::now().as_second().to_string());
        let signature = format!("t={time},v1={}", sign(secret, &time, body.as_bytes()));
        let event =
            Event::post("/webhooks/stripe").header("Stripe-Signature", &signature).body(body.as_bytes());
        sandbox.invoke(event.to_json().to_string(), Duration::from_secs(60)).await.unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (counted, told): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line["_aws"].is_object());
    let told: Vec<_> = told
        .iter()
        .map(|line| &line["fields"])
        .map(|f| json!([f["route"], f["status"], f["code"], f["provider"], f["topic"], f["verdict"]]))
        .collect();
    let line =
        |topic: &str, verdict: &str| json!(["POST /webhooks/stripe", 200, null, "stripe", topic, verdict]);
    let refused = json!(["POST /webhooks/stripe", 401, "bad_signature", null, null, null]);
    let [created, paid] = ["customer.created", "payment_intent.succeeded"];
    let expected = [line(created, "processed"), line(created, "duplicate"), line(paid, "unclaimed"), refused];
    assert_eq!(told, expected, "{text}");
    let names: Vec<_> =
        counted.iter().map(|line| &line["_aws"]["CloudWatchMetrics"][0]["Metrics"][0]["Name"]).collect();
    assert_eq!(names, ["Duplicates", "ExceptionsKept", "BadSignatures"], "{text}");
}
