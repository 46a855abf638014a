//! The real binary, under a Lambda Runtime API that the test emulates.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use testing::{Seed, TestDb};
use tokio::sync::{Mutex, mpsc};

use crate::support::{PATIENCE, Partner, ToStatus, until};

/// Hands out one invocation and collects its answer.
struct Lambda {
    address: String,
    answers: mpsc::UnboundedReceiver<Bytes>,
}

struct Invocations {
    event: std::sync::Mutex<Option<Value>>,
    answers: mpsc::UnboundedSender<Bytes>,
}

async fn next(State(invocations): State<Arc<Invocations>>) -> Response {
    let event = invocations.event.lock().unwrap().take();
    let Some(event) = event else {
        return std::future::pending().await;
    };
    let headers = [
        ("lambda-runtime-aws-request-id", "8476a536-e9f4-11e8-9739-2dfe598c3fcd"),
        // What `cargo lambda watch` sends.
        ("lambda-runtime-deadline-ms", "600000"),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:us-east-1:123456789012:function:relay"),
    ];
    (headers, event.to_string()).into_response()
}

impl Lambda {
    async fn start(event: Value) -> Self {
        let (sender, answers) = mpsc::unbounded_channel();
        let invocations =
            Arc::new(Invocations { event: std::sync::Mutex::new(Some(event)), answers: sender });
        let router = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route(
                "/2018-06-01/runtime/invocation/{id}/{how}",
                post(async |State(invocations): State<Arc<Invocations>>, body: Bytes| {
                    invocations.answers.send(body).unwrap();
                    202.to_status()
                }),
            )
            .with_state(invocations);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, answers }
    }

    async fn answer(&mut self) -> Value {
        let answer = tokio::time::timeout(PATIENCE, self.answers.recv()).await.unwrap().unwrap();
        serde_json::from_slice(&answer).unwrap()
    }
}

/// The relay's process; killed when dropped.
struct Process(Child);

impl Process {
    fn start(db: &TestDb, lambda: &Lambda) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_relay"))
            .env("AWS_LAMBDA_RUNTIME_API", &lambda.address)
            .env("AWS_LAMBDA_FUNCTION_NAME", "relay")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "256")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
            .env("AWS_LAMBDA_LOG_STREAM_NAME", "log")
            .env("AWS_LAMBDA_LOG_GROUP_NAME", "log")
            .env("WORKER_DATABASE_URL", &db.worker_url)
            .env("SECRETS_KEYS", testing::SECRETS_KEYS)
            .env("DESTINATION_ALLOW", "127.0.0.1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Ends it and returns its output.
    fn written(&mut self) -> String {
        self.kill();
        let mut written = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut written).unwrap();
        written
    }

    /// SIGKILL.
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn an_invocation_answers_with_what_it_did() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 45).await;
    let mut lambda = Lambda::start(json!({"watchSeconds": 0})).await;
    let mut process = Process::start(&db, &lambda);
    assert_eq!(
        lambda.answer().await,
        json!({"claimed": 45, "delivered": 45, "failed": 0, "deadLettered": 0})
    );
    assert_eq!(partner.received().len(), 45);
    let written = process.written();
    let metrics: Value =
        serde_json::from_str(written.lines().find(|line| line.contains("\"_aws\"")).unwrap()).unwrap();
    let told = [
        "Delivered",
        "Failed",
        "DeadLettered",
        "DestinationsDisabled",
        "DestinationsRecovered",
        "OldestPendingAge",
    ]
    .map(|name| metrics[name].as_f64().unwrap_or_else(|| panic!("no {name}: {metrics}")));
    assert_eq!(told, [45.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    assert!(written.contains("\"OldestSnapshotAge\":"), "{written}");
    let batches = metrics["BatchTime"].as_array().unwrap();
    assert!(
        (3..=45).contains(&batches.len()) && batches.iter().all(|ms| ms.as_f64().unwrap() > 0.0),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_result_that_is_refused_is_logged_with_its_event() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let owner_url = db.owner_url.clone();
    // A person discards the event while it is sent.
    let partner = Partner::start(move |_| {
        let owner_url = owner_url.clone();
        async move {
            let mut owner = PgConnection::connect(&owner_url).await.unwrap();
            sqlx::raw_sql(
                "select holdfast.set_aside(array[2], 'x') from outbox where id = 2 and discarded_at is null",
            )
            .execute(&mut owner)
            .await
            .unwrap();
            200.to_status()
        }
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 3).await;
    let mut lambda = Lambda::start(json!({"watchSeconds": 0})).await;
    let mut process = Process::start(&db, &lambda);
    assert_eq!(lambda.answer().await["delivered"], 2);
    let written = process.written();
    let told: Vec<_> = written.lines().filter(|line| line.contains("results refused")).collect();
    assert!(told.len() == 1 && told[0].contains("[2]"), "{written}");
}

#[tokio::test]
async fn a_drain_whose_backlog_could_not_be_counted_tells_what_it_did_and_leaves_out_what_it_does_not_know() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.execute("alter function holdfast.relay_backlog rename to relay_backlog_that_fails").await;
    db.emit(&tenant, 1).await;
    let mut lambda = Lambda::start(json!({"watchSeconds": 0})).await;
    let mut process = Process::start(&db, &lambda);
    assert_eq!(lambda.answer().await["delivered"], 1);
    let written = process.written();
    let line = written.lines().find(|line| line.contains("\"_aws\"")).expect("metrics");
    let metrics: Value = serde_json::from_str(line).unwrap();
    assert_eq!((&metrics["Delivered"], &metrics["OldestPendingAge"]), (&json!(1.0), &Value::Null));
}

#[tokio::test]
async fn a_relay_killed_between_the_partners_200_and_its_settlement_leads_to_one_more_delivery_under_the_same_id()
 {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    // While the partner answers, another session locks the row: the settlement waits, and there the relay is killed.
    let lock: Arc<Mutex<Option<PgConnection>>> = Arc::default();
    let (owner_url, held) = (db.owner_url.clone(), Arc::clone(&lock));
    let partner = Partner::start(move |_| {
        let (owner_url, held) = (owner_url.clone(), Arc::clone(&held));
        async move {
            let mut owner = PgConnection::connect(&owner_url).await.unwrap();
            sqlx::raw_sql("begin; select from outbox for update").execute(&mut owner).await.unwrap();
            *held.lock().await = Some(owner);
            200.to_status()
        }
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 1).await;
    let lambda = Lambda::start(json!({"source": "aws.events", "detail-type": "Scheduled Event"})).await;
    let mut process = Process::start(&db, &lambda);
    until(
        &db,
        "select exists (select from pg_stat_activity where datname = current_database()
         and usename = 'holdfast_worker' and wait_event_type = 'Lock')",
    )
    .await;
    process.kill();
    // The server notices within 2 s that the client is gone, while the settlement still waits for the lock.
    until(
        &db,
        "select not exists (select from pg_stat_activity where datname = current_database() and usename = 'holdfast_worker')",
    )
    .await;
    drop(lock.lock().await.take());
    assert_eq!(partner.received().len(), 1);
    let processed: bool = db.scalar("select processed_at is not null from outbox").await;
    assert!(!processed);

    partner.answer(|_| async { 200.to_status() });
    db.execute("update outbox set leased_until = now(), next_attempt_at = now()").await; // half a minute later
    let mut lambda = Lambda::start(json!({"watchSeconds": 0})).await;
    let _process = Process::start(&db, &lambda);
    assert_eq!(lambda.answer().await["delivered"], 1);
    tokio::time::sleep(Duration::from_millis(50)).await;
    let ids: Vec<String> = partner.received().iter().map(|r| r.header("webhook-id").to_owned()).collect();
    assert_eq!(ids, ["outbox-1", "outbox-1"]);
}
