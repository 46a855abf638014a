//! Third-party stand-ins and verifiers, run by the Python that HOLDFAST_TEST_PYTHON names.

use std::process::{Command, Stdio};
use std::time::Duration;

use aws::mailer::Mailer;
use aws::scheduler::{Scheduled, Scheduler};
use aws_config::{BehaviorVersion, Region, SdkConfig};
use relay::Helpers;
use serde_json::{Value, json};
use testing::{Moto, Seed, TestDb, python};
use tokio::time::Instant;

use crate::support::{Partner, ToStatus, drain, hasty, relay, relay_with};

/// An SDK configuration for a stand-in at this address.
pub fn aws_at(endpoint: &str) -> SdkConfig {
    let credentials = aws_sdk_scheduler::config::Credentials::new("test", "test", None, None, "test");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .credentials_provider(aws_sdk_scheduler::config::SharedCredentialsProvider::new(credentials))
        .endpoint_url(endpoint)
        .build()
}

fn scheduler(moto: &Moto) -> Scheduler {
    let arn = |what: &str| format!("arn:aws:{what}");
    Scheduler::new(
        &aws_at(&moto.url),
        arn("lambda:eu-west-1:123456789012:function:relay"),
        arn("iam::123456789012:role/scheduler"),
        None,
    )
}

async fn schedules(moto: &Moto) -> Vec<Value> {
    let client = aws_sdk_scheduler::Client::new(&aws_at(&moto.url));
    let mut all = Vec::new();
    for schedule in client.list_schedules().send().await.unwrap().schedules() {
        let whole = client.get_schedule().name(schedule.name().unwrap()).send().await.unwrap();
        all.push(json!({"name": whole.name(), "expression": whole.schedule_expression(),
            "input": whole.target().unwrap().input(), "after": whole.action_after_completion().unwrap().as_str()}));
    }
    all
}

#[tokio::test]
async fn asking_twice_under_one_name_is_asking_once() {
    let Some(moto) = Moto::start().await else { return };
    let at = jiff::Timestamp::from_second(4_102_444_800).unwrap();
    for expected in [Scheduled::Created, Scheduled::AlreadyThere] {
        let asked = scheduler(&moto).once_at("holdfast-relay-1-1", at, &json!({"helper": 1})).await.unwrap();
        assert_eq!(asked, expected);
    }
    let schedules = schedules(&moto).await;
    assert_eq!(
        schedules,
        [
            json!({"name": "holdfast-relay-1-1", "expression": "at(2100-01-01T00:00:00)", "input": "{\"helper\":1}",
            "after": "DELETE"})
        ]
    );
}

#[tokio::test]
async fn a_relay_that_runs_out_of_time_asks_for_helpers_and_only_then() {
    let Some(moto) = Moto::start().await else { return };
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::start(|_| async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        200.to_status()
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 2_000).await;
    let mut limits = hasty();
    (limits.in_flight_each, limits.in_flight_proven, limits.lease) = (4, 4, Duration::from_secs(30));
    for (max, asked) in [(0, 0), (3, 3), (3, 3)] {
        let mut relay = relay_with(&db, limits);
        relay.ambient.now = || jiff::Timestamp::from_second(1_800_000_030).unwrap();
        relay.helpers = Some(Helpers { scheduler: scheduler(&moto), max });
        relay.run_once(Duration::ZERO, Instant::now() + Duration::from_millis(900)).await.unwrap();
        assert_eq!(schedules(&moto).await.len(), asked);
    }
    assert_eq!(schedules(&moto).await[0]["expression"], "at(2027-01-15T08:01:00)");
    // A drain that finished its work schedules no helper, and one without Scheduler works as well.
    db.execute("delete from outbox").await;
    let mut relay = relay_with(&db, limits);
    relay.ambient.now = || jiff::Timestamp::from_second(1_800_000_630).unwrap();
    relay.helpers = Some(Helpers { scheduler: scheduler(&moto), max: 3 });
    drain(&relay).await;
    assert_eq!(schedules(&moto).await.len(), 3);
    // Nor does one that only waits for a destination's rate limit: helpers could not speed it up.
    db.execute("update destination set max_per_second = 1").await;
    db.emit(&tenant, 2_000).await;
    // It stops claiming between two of them: after 1.5 s.
    let paced = relay.run_once(Duration::from_secs(50), Instant::now() + Duration::from_millis(1_900)).await;
    assert!((1..4).contains(&paced.unwrap().delivered));
    assert_eq!(schedules(&moto).await.len(), 3);
    db.execute(
        "update destination set max_per_second = null; update destination_health set paced_until = null",
    )
    .await;
    // One that could not count what is left asks for all it may.
    db.execute("alter function holdfast.relay_backlog rename to relay_backlog_that_fails").await;
    relay.ambient.now = || jiff::Timestamp::from_second(1_800_001_230).unwrap();
    relay.helpers = Some(Helpers { scheduler: scheduler(&moto), max: 2 });
    relay.run_once(Duration::ZERO, Instant::now() + Duration::from_millis(900)).await.unwrap();
    assert_eq!(schedules(&moto).await.len(), 5);
    let gone = Scheduler::new(&aws_at("http://127.0.0.1:9"), "arn:aws:x".into(), "arn:aws:y".into(), None);
    relay.helpers = Some(Helpers { scheduler: gone, max: 3 });
    let summary = relay.run_once(Duration::ZERO, Instant::now() + Duration::from_secs(2)).await.unwrap();
    assert!(summary.delivered > 0 && summary.delivered < 2_000);
}

#[tokio::test]
async fn a_confirmation_is_taken_by_another_makers_ses() {
    let Some(moto) = Moto::start().await else { return };
    let aws = aws_at(&moto.url);
    let client = aws_sdk_sesv2::Client::new(&aws);
    client.create_email_identity().email_identity("orders@brand.example").send().await.unwrap();
    let mail = shared::delivery::email::Mail {
        sender_allowed: true,
        to: "ann@tenant.test".into(),
        paused: None,
        subject: "Allocated: 1 × A".into(),
        text: "text".into(),
        html: "<p>html</p>".into(),
    };
    let mailer = Mailer::new(&aws, Some("orders@brand.example".into()));
    assert_eq!(
        mailer.send(&mail, &crate::guard::event_to(String::new())).await,
        shared::delivery::attempt::Attempt::Delivered
    );
}

/// Reads cases from standard input and verifies each with the official library.
const VERIFY: &str = "
import json, sys
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
for case in json.load(sys.stdin):
    Webhook(case['secret']).verify(case['body'], case['headers'])
    try:
        Webhook(case['secret']).verify(case['body'] + ' ', case['headers'])
        sys.exit('a changed body passed')
    except WebhookVerificationError:
        pass
print('verified')
";

#[tokio::test]
async fn the_official_library_verifies_what_is_sent_with_either_of_two_live_secrets() {
    let Some(python) = python() else { return };
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    let destination = db.destination(&tenant, &partner.url, &["*"]).await;
    let newer = shared::operations::destinations::new_secret();
    db.execute(format!(
        "update destination_secret set retires_at = now() + interval '1 h';
         insert into destination_secret (tenant_id, destination_id, secret) values ('{}', '{}', '{newer}')",
        tenant.id, destination.id
    ))
    .await;
    db.emit(&tenant, 3).await;
    drain(&relay(&db)).await;
    let cases: Vec<Value> = partner
        .received()
        .iter()
        .flat_map(|received| {
            let headers: serde_json::Map<String, Value> =
                ["webhook-id", "webhook-timestamp", "webhook-signature"]
                    .map(|name| (name.to_owned(), received.header(name).into()))
                    .into_iter()
                    .collect();
            let body = String::from_utf8(received.body.to_vec()).unwrap();
            [&destination.secret, &newer]
                .map(|secret| json!({"secret": secret, "body": body, "headers": headers}))
        })
        .collect();
    assert_eq!(cases.len(), 6);
    let mut verifier = Command::new(python)
        .args(["-c", VERIFY])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    serde_json::to_writer(verifier.stdin.take().unwrap(), &cases).unwrap();
    let output = verifier.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "verified");
}
