//! The real binary is invoked with events that API Gateway would not make.

use std::time::Duration;

use serde_json::{Value, json};
use testing::emulator::event::{HttpAnswer, scheduled};
use testing::emulator::{Function, Sandbox, SandboxError};
use testing::{Event, Seed, Shop};

const AMPLE: Duration = Duration::from_secs(60);

async fn started(shop: &Shop) -> Sandbox {
    let function = Function::new("query", env!("CARGO_BIN_EXE_query"));
    let function = shop.db.endpoint_env().into_iter().fold(function, |f, (name, value)| f.env(name, value));
    Sandbox::start(&function).await.unwrap()
}

async fn answer(sandbox: &Sandbox, event: &Value) -> HttpAnswer {
    let invoked = sandbox.invoke(event.to_string(), AMPLE).await.unwrap();
    HttpAnswer::read(&invoked.payload).unwrap()
}

fn error(answer: &HttpAnswer) -> Value {
    serde_json::from_slice::<Value>(&answer.body).unwrap()["error"].clone()
}

#[tokio::test]
async fn a_query_that_is_no_uri_s_is_answered() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = started(&shop).await;
    let list = |query: &str| {
        let mut event = Event::get("/orders").bearer(&shop.tenant.token()).to_json();
        event["rawQueryString"] = json!(query);
        event
    };
    for query in ["q=a b", "q=\"a\"", "q=<a>", "q=a#b", "q=é", "q=%"] {
        assert_eq!(answer(&sandbox, &list(query)).await.status, 200, "{query}");
    }
    for query in
        ["q=%ff", "q=a%C3", "status=%ff", "limit=%ff", "after=%ff", "x=%ff", "%ff=1", "q=%ff&q=a", "limit= 1"]
    {
        let answer = answer(&sandbox, &list(query)).await;
        assert_eq!((answer.status, error(&answer)), (400, json!("invalid_query")), "{query}");
    }
    let mut stranger = list("q=%ff");
    stranger["headers"] = json!({});
    assert_eq!(answer(&sandbox, &stranger).await.status, 401, "credentials come first");
    let mut host = list("");
    host["headers"]["host"] = json!("a b");
    host["headers"]["x-forwarded-proto"] = json!("://");
    assert_eq!(answer(&sandbox, &host).await.status, 200);
}

#[tokio::test]
async fn what_is_no_http_event_fails_with_a_reason_and_the_sandbox_goes_on() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = started(&shop).await;
    for event in
        [json!({}), json!([]), json!("x"), scheduled("every-minute"), json!({"requestContext": {"http": {}}})]
    {
        let failed = sandbox.invoke(event.to_string(), AMPLE).await.unwrap_err();
        let SandboxError::Function(said) = failed else { panic!("{event}: {failed}") };
        assert!(said.contains("this function serves events of an API Gateway HTTP API"), "{event}: {said}");
    }
    assert!(matches!(sandbox.invoke("not JSON", AMPLE).await, Err(SandboxError::Function(_))));
    assert_eq!(answer(&sandbox, &Event::get("/health").to_json()).await.status, 200);
}
