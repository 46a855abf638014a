//! The real binary with the deadlines of Lambda, and moto in place of EventBridge Scheduler.

use std::time::Duration;

use serde_json::{Value, json};
use testing::Moto;
use testing::emulator::{Function, Sandbox};

use reconcile::{Limits, Request};

use crate::support::{ANY, PATIENCE, Stage, hasty};

/// The function stops 20 s before its time is up: so long does it work.
const TIMEOUT: Duration = Duration::from_secs(23);

/// The one-time schedules of the job: what Scheduler would send, and when; taken out.
async fn fired(moto: &Moto) -> Vec<Value> {
    let client = aws_sdk_scheduler::Client::new(&aws_at(&moto.url));
    let mut inputs = Vec::new();
    for schedule in client.list_schedules().send().await.unwrap().schedules() {
        let name = schedule.name().unwrap();
        assert!(name.starts_with("holdfast-reconcile-"), "{name}");
        let whole = client.get_schedule().name(name).send().await.unwrap();
        assert_eq!(whole.action_after_completion().unwrap().as_str(), "DELETE");
        assert!(whole.schedule_expression().unwrap().starts_with("at("));
        let target = whole.target().unwrap();
        assert_eq!(target.arn(), "arn:aws:lambda:eu-west-1:123456789012:function:reconcile");
        inputs.push(serde_json::from_str(target.input().unwrap()).unwrap());
        client.delete_schedule().name(name).send().await.unwrap();
    }
    inputs
}

fn aws_at(endpoint: &str) -> aws_config::SdkConfig {
    let credentials = aws_sdk_scheduler::config::Credentials::new("test", "test", None, None, "test");
    aws_config::SdkConfig::builder()
        .behavior_version(aws_config::BehaviorVersion::latest())
        .region(aws_config::Region::new("eu-west-1"))
        .credentials_provider(aws_sdk_scheduler::config::SharedCredentialsProvider::new(credentials))
        .endpoint_url(endpoint)
        .build()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_in_mid_run_leads_to_a_continuation_until_the_end() {
    let Some(moto) = Moto::start().await else { return };
    let stage = Stage::open(40, 10).await;
    stage.counts(&[11; 40]);
    // One SKU a page: the walk takes longer than one invocation may.
    stage.warehouse.delay(Duration::from_millis(200));
    stage.warehouse.answer(|_, asked, page| {
        let from: usize = asked.cursor.as_deref().map_or(0, |cursor| cursor.parse().unwrap());
        let next = (from + 1 < 40).then(|| (from + 1).to_string());
        axum::Json(json!({"items": [page["items"][0]], "next": next}))
    });
    let function = Function::new("reconcile", env!("CARGO_BIN_EXE_reconcile"))
        .env("WORKER_DATABASE_URL", &stage.shop.db.worker_url)
        .env("DESTINATION_ALLOW", "127.0.0.1")
        .env("AWS_REGION", "eu-west-1")
        .env("AWS_ACCESS_KEY_ID", "test")
        .env("AWS_SECRET_ACCESS_KEY", "test")
        .env("AWS_ENDPOINT_URL_SCHEDULER", &moto.url)
        .env("SCHEDULER_TARGET_ARN", "arn:aws:lambda:eu-west-1:123456789012:function:reconcile")
        .env("SCHEDULER_ROLE_ARN", "arn:aws:iam::123456789012:role/scheduler");
    let sandbox = Sandbox::start(&function).await.unwrap();
    let mut event = json!({});
    let (mut invocations, mut completed) = (0, 0);
    loop {
        let answer = sandbox.invoke(event.to_string(), TIMEOUT).await.unwrap();
        let summary: Value = serde_json::from_slice(&answer.payload).unwrap();
        invocations += 1;
        let asked = fired(&moto).await;
        // An invocation whose time is up just when the run ends asks for another, which finds nothing.
        completed += summary["completed"].as_u64().unwrap();
        if summary["more"] == false {
            assert_eq!((asked.as_slice(), completed), (&[][..], 1), "{summary}");
            break;
        }
        assert_eq!(asked, [json!({"resume": true})], "{summary}");
        assert!(invocations < 40, "it does not come to an end");
        event = asked[0].clone();
    }
    assert!(invocations > 1, "the deadline did not fall into the run");
    // No page was skipped, and of each invocation at most the page ahead was asked for again.
    let asked = stage.warehouse.asked().len();
    assert!((40..40 + invocations).contains(&asked), "{asked} pages asked for in {invocations} invocations");
    assert_eq!(stage.on_hand().await, [11; 40]);
    stage.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn without_scheduler_the_next_tick_goes_on() {
    let stage = Stage::open(8, 10).await;
    stage.counts(&[11; 8]);
    stage.warehouse.delay(Duration::from_millis(300));
    let limits = Limits { page: 1, margin: Duration::ZERO, ..hasty() };
    let reconciler = stage.reconciler(limits, ANY);
    let deadline = || tokio::time::Instant::now() + Duration::from_millis(700);
    let summary = reconciler.run_once(Request::default(), deadline()).await.unwrap();
    assert!(summary.more && summary.completed == 0, "{summary:?}");
    let tick = Request { tenant: None, resume: true };
    let summary = reconciler.run_once(tick, tokio::time::Instant::now() + PATIENCE).await.unwrap();
    assert_eq!((summary.more, summary.completed), (false, 1));
    assert_eq!(stage.on_hand().await, [11; 8]);
}

#[tokio::test]
async fn an_event_that_names_no_tenant_is_an_error_and_not_everybody() {
    let stage = Stage::open(1, 10).await;
    let function = Function::new("reconcile", env!("CARGO_BIN_EXE_reconcile"))
        .env("WORKER_DATABASE_URL", &stage.shop.db.worker_url);
    let sandbox = Sandbox::start(&function).await.unwrap();
    let failed = sandbox.invoke(json!({"tenantId": "nobody"}).to_string(), TIMEOUT).await.unwrap_err();
    assert!(failed.to_string().contains("tenantId is not a UUID"), "{failed}");
    assert_eq!(stage.shop.db.count("reconcile_run").await, 0);
}
