//! The real binary is invoked with events that API Gateway would not make.

use std::time::Duration;

use serde_json::{Value, json};
use testing::emulator::event::HttpAnswer;
use testing::emulator::{Function, Sandbox};
use testing::{Seed, Shop, fresh_key};

const AMPLE: Duration = Duration::from_secs(60);

async fn answer(sandbox: &Sandbox, event: &Value) -> (u16, Value) {
    let invoked = sandbox.invoke(event.to_string(), AMPLE).await.unwrap();
    let answer = HttpAnswer::read(&invoked.payload).unwrap();
    (answer.status, serde_json::from_slice(&answer.body).unwrap())
}

#[tokio::test]
async fn a_body_that_is_not_base64_is_refused_and_the_key_stays_unused() {
    let shop = Shop::open(Seed::default()).await;
    let function = Function::new("allocate", env!("CARGO_BIN_EXE_allocate"));
    let function = shop.db.endpoint_env().into_iter().fold(function, |f, (name, value)| f.env(name, value));
    let sandbox = Sandbox::start(&function).await.unwrap();
    let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1));
    for body in [json!("%%%"), json!("e30"), shop.one(0, 1).to_string().into()] {
        let mut odd = event.to_json();
        odd["isBase64Encoded"] = json!(true);
        odd["body"] = body;
        let (status, problem) = answer(&sandbox, &odd).await;
        assert_eq!((status, &problem["error"]), (400, &json!("invalid_body")), "{odd}");
        assert!(problem["errors"][0]["message"].as_str().unwrap().contains("not base64"), "{problem}");
        odd["headers"] = json!({});
        assert_eq!(answer(&sandbox, &odd).await.0, 401, "credentials come first");
    }
    let mut query = event.to_json();
    query["rawQueryString"] = json!("a=\" <b>");
    let mut null = event.to_json();
    null["body"] = json!(null);
    assert_eq!(answer(&sandbox, &null).await.0, 400);
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    assert_eq!(answer(&sandbox, &query).await.0, 200, "the query is of no meaning here");
    assert_eq!(shop.db.count("idempotency_key").await, 1);
}
