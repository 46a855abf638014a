//! The real program as CodeDeploy calls it, with the real handlers of allocate and release behind a stand-in of Lambda.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use shared::http::serve::HttpEvent;
use shared::idempotency::endpoint::Endpoint;
use testing::emulator::{Function, Sandbox};
use testing::{Reply, Seed, Shop};

const PATIENCE: Duration = Duration::from_secs(60);

/// What Lambda does with an event for a version, beside handing it on.
type Twist = fn(&mut Value) -> Option<Value>;

/// Lambda and CodeDeploy.
struct Cloud {
    endpoint: tokio::sync::Mutex<Endpoint>,
    twist: Twist,
    refuses_reports: bool,
    /// Function and version of each invocation, and what CodeDeploy was told.
    asked: Mutex<Vec<String>>,
    told: Mutex<Vec<Value>>,
}

async fn invoke(
    State(cloud): State<Arc<Cloud>>,
    Path(function): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    Json(mut event): Json<Value>,
) -> Json<Value> {
    assert!(headers["authorization"].to_str().unwrap().contains("/eu-west-1/lambda/aws4_request"));
    cloud.asked.lock().unwrap().push(format!("{function}:{}", query["Qualifier"]));
    if let Some(answer) = (cloud.twist)(&mut event) {
        return Json(answer);
    }
    let request = serde_json::from_value::<HttpEvent>(event).unwrap().into_request();
    let endpoint = cloud.endpoint.lock().await;
    let response = match function.as_str() {
        "prod-allocate" => allocate::handle(&endpoint, request).await,
        "prod-release" => release::handle(&endpoint, request).await,
        other => panic!("{other}"),
    };
    let reply = Reply::from(response);
    let headers: HashMap<_, _> = reply.headers.into_iter().collect();
    Json(
        json!({"statusCode": reply.status, "headers": headers, "body": String::from_utf8(reply.body).unwrap()}),
    )
}

async fn report(State(cloud): State<Arc<Cloud>>, headers: HeaderMap, body: String) -> StatusCode {
    assert_eq!(headers["x-amz-target"], "CodeDeploy_20141006.PutLifecycleEventHookExecutionStatus");
    assert!(headers["authorization"].to_str().unwrap().contains("/eu-west-1/codedeploy/aws4_request"));
    cloud.told.lock().unwrap().push(serde_json::from_str(&body).unwrap());
    if cloud.refuses_reports { StatusCode::FORBIDDEN } else { StatusCode::OK }
}

struct Stage {
    shop: Shop,
    cloud: Arc<Cloud>,
    sandbox: Sandbox,
}

impl Stage {
    async fn open(twist: Twist, refuses_reports: bool, with_tenant: bool) -> Self {
        let shop = Shop::open(Seed::default()).await;
        let cloud = Arc::new(Cloud {
            endpoint: shop.db.endpoint().into(),
            twist,
            refuses_reports,
            asked: Mutex::default(),
            told: Mutex::default(),
        });
        let router = Router::new()
            .route("/2015-03-31/functions/{function}/invocations", post(invoke))
            .route("/", post(report))
            .with_state(cloud.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let arn = |name: &str, version: u32| {
            format!("arn:aws:lambda:eu-west-1:123456789012:function:{name}:{version}")
        };
        let mut function = Function::new("smoke", env!("CARGO_BIN_EXE_smoke"))
            .env("AWS_REGION", "eu-west-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_ENDPOINT_URL", &url)
            .env("ALLOCATE_VERSION", arn("prod-allocate", 7))
            .env("RELEASE_VERSION", arn("prod-release", 3));
        if with_tenant {
            let tenant = &shop.tenant;
            let named =
                json!({"apiKey": tenant.token(), "orderId": tenant.orders[0], "skuId": tenant.skus[0]});
            function = function.env("SMOKE_TENANT", named.to_string());
        }
        let sandbox = Sandbox::start(&function).await.unwrap();
        Self { shop, cloud, sandbox }
    }

    async fn hooked(&self) -> Result<Value, String> {
        let event = json!({"DeploymentId": "d-7", "LifecycleEventHookExecutionId": "hook-1"}).to_string();
        let answer = self.sandbox.invoke(event, PATIENCE).await.map_err(|error| error.to_string())?;
        Ok(serde_json::from_slice(&answer.payload).unwrap())
    }

    fn told(&self) -> Vec<Value> {
        self.cloud.told.lock().unwrap().clone()
    }

    async fn moved(&self) -> (i64, i64) {
        let of = async |kind: &str| {
            self.shop.db.count(&format!("allocation_ledger where entry_type = '{kind}'")).await
        };
        (of("allocate").await, of("release").await)
    }
}

fn told(status: &str) -> Value {
    json!({"deploymentId": "d-7", "lifecycleEventHookExecutionId": "hook-1", "status": status})
}

fn nothing(_: &mut Value) -> Option<Value> {
    None
}

#[tokio::test]
async fn a_promise_is_made_once_repeated_and_given_back_by_the_new_versions() {
    let stage = Stage::open(nothing, false, true).await;
    let summary = stage.hooked().await.unwrap();
    assert_eq!(summary, json!({"status": "Succeeded", "error": null, "promised": true}));
    assert_eq!(stage.told(), [told("Succeeded")]);
    assert_eq!(*stage.cloud.asked.lock().unwrap(), ["prod-allocate:7", "prod-allocate:7", "prod-release:3"]);
    assert_eq!(stage.moved().await, (1, 1));
    // Called again, it finds the same and moves nothing.
    assert_eq!(stage.hooked().await.unwrap()["status"], "Succeeded");
    assert_eq!(stage.moved().await, (1, 1));
    stage.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_version_that_executes_a_repeat_is_not_let_through() {
    fn new_key(event: &mut Value) -> Option<Value> {
        static CALLS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let call = CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        event["headers"]["idempotency-key"] = format!("key-{call}").into();
        None
    }
    let stage = Stage::open(new_key, false, true).await;
    let summary = stage.hooked().await.unwrap();
    assert_eq!(summary["status"], "Failed");
    assert!(summary["error"].as_str().unwrap().starts_with("allocate, repeated, answers 200"), "{summary}");
    assert_eq!(stage.told(), [told("Failed")]);
    // The promise was given back all the same.
    assert_eq!(stage.moved().await.1, 1);
}

#[tokio::test]
async fn a_version_that_refuses_or_crashes_is_not_let_through() {
    for (twist, error) in [
        (
            (|_| Some(json!({"errorType": "Runtime.ExitError", "errorMessage": "exit status 1"}))) as Twist,
            "prod-allocate version 7 fails: ",
        ),
        (|_| Some(json!({"statusCode": 503, "headers": {}, "body": "busy"})), "allocate answers 503: busy"),
        (
            |event| {
                event["headers"]["authorization"] = "Bearer x".into();
                None
            },
            "allocate answers 401: ",
        ),
    ] {
        let stage = Stage::open(twist, false, true).await;
        let summary = stage.hooked().await.unwrap();
        assert!(summary["error"].as_str().unwrap().starts_with(error), "{summary}");
        assert_eq!(stage.told(), [told("Failed")]);
        assert_eq!(stage.moved().await, (0, 0));
    }
}

#[tokio::test]
async fn without_a_tenant_both_must_start_and_refuse_whoever_names_nobody() {
    let stage = Stage::open(nothing, false, false).await;
    let summary = stage.hooked().await.unwrap();
    assert_eq!(summary, json!({"status": "Succeeded", "error": null, "promised": false}));
    assert_eq!(*stage.cloud.asked.lock().unwrap(), ["prod-allocate:7", "prod-release:3"]);
}

#[tokio::test]
async fn where_the_result_cannot_be_told_the_invocation_fails() {
    let stage = Stage::open(nothing, true, true).await;
    let error = stage.hooked().await.unwrap_err();
    assert!(error.contains("CodeDeploy cannot be told Succeeded: 403"), "{error}");
}
