//! What the real binary writes to its log: nothing at start, one line per request, and no line that a caller made up.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use testing::emulator::{Function, Sandbox};
use testing::{Event, Seed, Shop, fresh_key, issue_api_key};
use uuid::Uuid;

const AMPLE: Duration = Duration::from_secs(60);

/// How long the first request waits in the database.
const HELD_FOR: Duration = Duration::from_millis(50);

/// A sandbox with a log of its own, which is removed with it.
struct Logged {
    sandbox: Sandbox,
    path: PathBuf,
}

impl Drop for Logged {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Logged {
    async fn started(shop: &Shop, format: &str) -> Self {
        let path = std::env::temp_dir().join(format!("holdfast-{}.log", Uuid::new_v4()));
        let function = Function::new("allocate", env!("CARGO_BIN_EXE_allocate"));
        let function =
            shop.db.endpoint_env().into_iter().fold(function, |f, (name, value)| f.env(name, value));
        let function = Function { log: Some(path.clone()), ..function }.env("AWS_LAMBDA_LOG_FORMAT", format);
        let sandbox = Sandbox::start(&function).await.unwrap();
        sandbox.ready().await.unwrap();
        Self { sandbox, path }
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.path).unwrap()
    }

    /// Sends it, and returns the `x-request-id` of the answer.
    async fn send(&self, event: &Event) -> Value {
        let answer = self.sandbox.invoke(event.to_json().to_string(), AMPLE).await.unwrap();
        let answer: Value = serde_json::from_slice(&answer.payload).unwrap();
        answer["headers"]["x-request-id"].clone()
    }
}

#[tokio::test]
async fn a_start_writes_nothing_and_a_request_one_line() {
    let shop = Shop::open(Seed { on_hand: 5, order_qty: 1_000, ..Seed::default() }).await;
    let logged = Logged::started(&shop, "JSON").await;
    assert_eq!(logged.text(), "");
    let (tenant, user) = (shop.tenant.id, shop.tenant.users[0]);
    let taken = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 5));
    let partner = issue_api_key(&shop.db, tenant, user, &["orders:read"]).await;
    let path = format!("/orders/{}/allocate", shop.tenant.orders[0]);
    let held = shop.hold(0).await;
    let (first, ()) = tokio::join!(logged.send(&taken), async {
        shop.db.until_blocked(1).await;
        tokio::time::sleep(HELD_FOR).await;
        held.let_go().await;
    });
    let mut ids = vec![first];
    for event in [
        taken,
        shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1)),
        Event::post(&path).bearer(&partner),
        Event::post(&path).bearer("hf_unknown"),
        Event::get(&path),
        Event::post("/orders/a%0Ab"),
    ] {
        ids.push(logged.send(&event).await);
    }
    let key_id: Uuid = shop.db.scalar("select id from api_key").await;
    let (user, key) = (json!(format!("user:{user}")), json!(format!("api_key:{key_id}")));
    let (tenant, null) = (json!(tenant), Value::Null);
    let (post, get) = ("POST /orders/{orderId}/allocate", "GET (no route)");
    let expected = [
        (post, &tenant, &user, 200, null.clone(), false),
        (post, &tenant, &user, 200, null.clone(), true),
        (post, &tenant, &user, 422, json!("insufficient_ats"), false),
        (post, &tenant, &key, 403, json!("forbidden"), false),
        (post, &null, &null, 401, json!("unauthenticated"), false),
        (get, &null, &null, 405, json!("method_not_allowed"), false),
        ("POST (no route)", &null, &null, 404, json!("not_found"), false),
    ];
    let text = logged.text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let lines: Vec<_> = lines.iter().filter(|line| line["_aws"].is_null()).collect();
    assert_eq!(lines.len(), expected.len(), "{text}");
    let waited = lines[0]["fields"]["databaseMs"].as_u64().unwrap();
    assert!(waited >= HELD_FOR.as_millis().try_into().unwrap(), "{waited} ms with the database");
    for ((line, id), (route, tenant, actor, status, code, replayed)) in
        lines.into_iter().zip(ids).zip(expected)
    {
        let fields = &line["fields"];
        let read = json!([
            fields["message"],
            fields["route"],
            fields["tenant"],
            fields["actor"],
            fields["status"],
            fields["code"],
            fields["replayed"]
        ]);
        assert_eq!(read, json!(["answered", route, tenant, actor, status, code, replayed]), "{line}");
        let (all, database) = (fields["ms"].as_u64().unwrap(), fields["databaseMs"].as_u64().unwrap());
        assert!(database <= all, "{line}");
        assert!(id.is_string() && fields["requestId"] == id, "{id}: {line}");
    }
    for counter in ["Replays", "AllocationsRefused"] {
        assert!(text.lines().any(|line| line.contains("\"_aws\"") && line.contains(counter)), "{counter}");
    }
}

#[tokio::test]
async fn a_failure_of_the_database_is_logged_with_its_sqlstate() {
    let shop = Shop::open(Seed::default()).await;
    let logged = Logged::started(&shop, "JSON").await;
    shop.db.execute("alter table order_line rename to moved").await;
    logged.send(&shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1))).await;
    let text = logged.text();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().filter(|line| line["level"] == "ERROR").collect();
    assert_eq!((told.len(), &told[0]["fields"]["sqlstate"]), (1, &json!("42P01")), "{text}");
}

#[tokio::test]
async fn nothing_that_a_caller_sends_makes_a_line_of_text() {
    let shop = Shop::open(Seed::default()).await;
    let logged = Logged::started(&shop, "Text").await;
    assert_eq!(logged.text(), "");
    let mut event = Event::post("/orders/a%0AERROR%20forged%1b[31m").to_json();
    event["requestContext"]["requestId"] = json!("1\nERROR forged");
    event["headers"]["authorization"] = json!("Bearer a\u{1b}[31m");
    logged.sandbox.invoke(event.to_string(), AMPLE).await.unwrap();
    let noevent = json!({"requestContext": {"http": {"method": "a\nERROR forged\u{1b}"}}});
    logged.sandbox.invoke(noevent.to_string(), AMPLE).await.unwrap_err();
    let text = logged.text();
    assert_eq!(text.lines().filter(|line| line.starts_with(" INFO ")).count(), 1, "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}
