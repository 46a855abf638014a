//! Secrets that are kept in Secrets Manager and rotated while the real binary runs.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::json;
use testing::emulator::event::HttpAnswer;
use testing::emulator::{Function, Sandbox};
use testing::{Event, Moto, Seed, Shop};

use crate::{event, sign};

const AMPLE: Duration = Duration::from_secs(60);

/// A sandbox whose secrets are both kept at the stand-in.
async fn sandbox(shop: &Shop, moto: &Moto, database: &str, signing: &str) -> Sandbox {
    let function = Function::new("stripe-webhook", env!("CARGO_BIN_EXE_stripe-webhook"))
        .env("APP_DATABASE_URL_ARN", database)
        .env("DATABASE_POOLER", if shop.db.is_pooled() { "transaction" } else { "none" })
        .env("STRIPE_WEBHOOK_SECRET_ARN", signing)
        .env("STRIPE_LIVEMODE", "any");
    let function = moto.env().into_iter().fold(function, |f, (name, value)| f.env(name, value));
    let sandbox = Sandbox::start(&function).await.unwrap();
    sandbox.ready().await.unwrap();
    sandbox
}

async fn status(sandbox: &Sandbox, id: &str, secret: &str) -> u16 {
    let body = event(id, "customer.created", json!({"id": "cus_1"})).to_string();
    let time = Timestamp::now().as_second().to_string();
    let signature = format!("t={time},v1={}", sign(secret, &time, body.as_bytes()));
    let event = Event::post("/webhooks/stripe").header("Stripe-Signature", &signature).body(body.as_bytes());
    let answer = sandbox.invoke(event.to_json().to_string(), AMPLE).await.unwrap();
    HttpAnswer::read(&answer.payload).unwrap().status
}

/// Sends until the answer is `expected`: how soon a sandbox may ask again is a matter of seconds.
async fn until(expected: u16, sandbox: &Sandbox, id: &str, secret: &str) {
    let begun = Instant::now();
    loop {
        let answered = status(sandbox, id, secret).await;
        if answered == expected {
            return;
        }
        assert!(begun.elapsed() < AMPLE, "still {answered}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// As RDS writes it.
fn rds_secret(shop: &Shop, user: &str) -> String {
    let url = shop.db.app_config().url;
    let url = reqwest::Url::parse(url.given().unwrap()).unwrap();
    json!({"engine": "postgres", "username": user, "password": url.password().unwrap_or_default(),
        "host": url.host_str().unwrap(), "port": url.port().unwrap(), "dbname": shop.db.name()})
    .to_string()
}

#[tokio::test]
async fn a_rotated_signing_secret_is_read_again_where_a_signature_fails_and_forged_ones_are_refused() {
    let Some(moto) = Moto::start().await else { return };
    let shop = Shop::open(Seed::default()).await;
    let database = moto.secret("database", &rds_secret(&shop, "holdfast_app")).await;
    let signing = moto.secret("signing", "whsec_old").await;
    let sandbox = sandbox(&shop, &moto, &database, &signing).await;
    assert_eq!(status(&sandbox, "evt_1", "whsec_old").await, 200);
    assert_eq!(status(&sandbox, "evt_2", "whsec_forged").await, 401);
    moto.rotate(&signing, "whsec_new, whsec_old").await;
    until(200, &sandbox, "evt_3", "whsec_new").await;
    assert_eq!(status(&sandbox, "evt_4", "whsec_old").await, 200, "both live during the rotation");
    assert_eq!(status(&sandbox, "evt_5", "whsec_forged").await, 401);
    assert_eq!(shop.db.count("webhook_inbox").await, 3);
}

#[tokio::test]
async fn a_login_that_is_refused_is_tried_with_the_secret_of_that_moment_and_is_503_until_then() {
    let Some(moto) = Moto::start().await else { return };
    let shop = Shop::open(Seed::default()).await;
    if shop.db.is_pooled() {
        return testing::left_out(
            "the pooler of the tests knows its users and refuses others in words of its own",
        );
    }
    let database = moto.secret("database", &rds_secret(&shop, "holdfast_of_yesterday")).await;
    let signing = moto.secret("signing", "whsec_of_the_tests").await;
    let sandbox = sandbox(&shop, &moto, &database, &signing).await;
    assert_eq!(status(&sandbox, "evt_1", "whsec_of_the_tests").await, 503);
    moto.rotate(&database, &rds_secret(&shop, "holdfast_app")).await;
    until(200, &sandbox, "evt_1", "whsec_of_the_tests").await;
    assert_eq!(shop.db.count("webhook_inbox").await, 1);
}

#[tokio::test]
async fn without_secrets_manager_a_request_is_503_and_works_as_soon_as_it_answers() {
    let Some(moto) = Moto::start().await else { return };
    let shop = Shop::open(Seed::default()).await;
    let database = moto.secret("database", &rds_secret(&shop, "holdfast_app")).await;
    let sandbox = sandbox(&shop, &moto, &database, "signing").await;
    assert_eq!(status(&sandbox, "evt_1", "whsec_late").await, 503);
    moto.secret("signing", "whsec_late").await;
    until(200, &sandbox, "evt_1", "whsec_late").await;
}

/// A program that computes signatures again with AWS's own library; killed when dropped.
struct Checker {
    process: Child,
    lines: BufReader<std::process::ChildStdout>,
    ports: [String; 2],
}

impl Checker {
    fn start(secret: &str) -> Option<Self> {
        const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/aws_stand_in.py");
        let mut process = Command::new(testing::python()?)
            .args([SCRIPT, testing::emulator::event::REGION, secret])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let (secrets_manager, postgres) = line.trim().split_once(' ').unwrap();
        let ports = [secrets_manager.to_owned(), postgres.to_owned()];
        Some(Self { process, lines, ports })
    }
}

impl Drop for Checker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test]
async fn what_is_signed_for_aws_is_what_its_own_library_signs() {
    let Some(mut checker) = Checker::start("whsec_of_the_tests") else { return };
    let [secrets_manager, postgres] = checker.ports.clone();
    let shop = Shop::open(Seed::default()).await;
    let url = shop.db.app_config().url;
    let function = |url: &str| {
        Function::new("stripe-webhook", env!("CARGO_BIN_EXE_stripe-webhook"))
            .env("APP_DATABASE_URL", url)
            .env("DATABASE_POOLER", if shop.db.is_pooled() { "transaction" } else { "none" })
            .env("STRIPE_WEBHOOK_SECRET_ARN", "arn:aws:secretsmanager:eu-west-1:1:secret:a-b")
            .env("STRIPE_LIVEMODE", "any")
            .env("AWS_ENDPOINT_URL_SECRETS_MANAGER", format!("http://127.0.0.1:{secrets_manager}"))
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_SESSION_TOKEN", "test/+=")
    };
    let sandbox = Sandbox::start(&function(url.given().unwrap())).await.unwrap();
    assert_eq!(status(&sandbox, "evt_1", "whsec_of_the_tests").await, 200, "the signature of a call");
    // With IAM authentication the password is a token, made for host, port and user.
    let iam = function(&format!("postgres://holdfast_app@127.0.0.1:{postgres}/holdfast"))
        .env("DATABASE_AUTH", "iam");
    let sandbox = Sandbox::start(&iam).await.unwrap();
    sandbox.ready().await.unwrap();
    let mut line = String::new();
    checker.lines.read_line(&mut line).unwrap();
    assert_eq!(line.trim(), "token");
}
