//! The promises of ses-events: what SNS has signed for our topic pauses an address, and nothing else does.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use axum::Router;
use axum::http::{StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, date_time_ymd};
use serde_json::{Value, json};
use ses_events::{Failure, SesEvents, Summary, Topic, handle};
use shared::delivery::address::Guard;
use testing::TestDb;
use testing::emulator::{Function, Sandbox};

const ARN: &str = "arn:aws:sns:eu-west-1:123456789012:ses";

/// A key of SNS, and its certificate, valid in these years.
struct Signer {
    key: KeyPair,
    pem: String,
}

impl Signer {
    fn valid(from: i32, to: i32) -> Self {
        let key = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
        let mut params = CertificateParams::new(["sns.test".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(from, 1, 1), date_time_ymd(to, 1, 1));
        let pem = params.self_signed(&key).unwrap().pem();
        Self { key, pem }
    }

    fn sign(&self, text: &str) -> String {
        let key = RsaKeyPair::from_pkcs8(self.key.serialized_der()).unwrap();
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature).unwrap();
        STANDARD.encode(signature)
    }
}

/// Where certificates are served, in place of AWS: what it answers, and what it was asked for.
struct Aws {
    url: String,
    answer: Arc<Mutex<(StatusCode, String)>>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Aws {
    async fn serving(pem: &str) -> Self {
        let answer = Arc::new(Mutex::new((StatusCode::OK, pem.to_owned())));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (says, seen) = (Arc::clone(&answer), Arc::clone(&asked));
        let router = Router::new().fallback(async move |uri: Uri| {
            seen.lock().unwrap().push(uri.to_string());
            says.lock().unwrap().clone()
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, answer, asked }
    }

    fn certificate(&self) -> String {
        format!("{}/SimpleNotificationService-1.pem", self.url)
    }

    fn function(&self, db: &TestDb) -> SesEvents {
        let topic =
            Topic { arn: ARN.into(), certificates: format!("{}/SimpleNotificationService-", self.url) };
        SesEvents::new(db.worker(), topic, Guard::allowing("127.0.0.1").unwrap()).unwrap()
    }
}

fn signed(notification: &Value) -> String {
    ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"]
        .iter()
        .filter_map(|name| notification[*name].as_str().map(|value| format!("{name}\n{value}\n")))
        .collect()
}

/// A notification of this message, as Lambda gets it.
fn notification(signer: &Signer, certificate: &str, message: &Value) -> Value {
    let mut sent = json!({"Type": "Notification", "MessageId": "1", "TopicArn": ARN, "Subject": null,
        "Message": message.to_string(), "Timestamp": "2026-11-30T10:00:00.000Z", "SignatureVersion": "2",
        "SigningCertUrl": certificate, "UnsubscribeUrl": "https://sns.eu-west-1.amazonaws.com/", "MessageAttributes": {}});
    sent["Signature"] = json!(signer.sign(&signed(&sent)));
    sent
}

fn bounce(address: &str, kind: &str, at: &str) -> Value {
    json!({"eventType": "Bounce", "bounce": {"bounceType": kind, "bounceSubType": "General", "timestamp": at,
        "bouncedRecipients": [{"emailAddress": address, "diagnosticCode": "smtp; 550 5.1.1 user unknown"}]}})
}

fn event(notification: &Value) -> Value {
    json!({"Records": [{"EventSource": "aws:sns", "EventVersion": "1.0", "Sns": notification}]})
}

async fn tell(function: &SesEvents, notification: &Value) -> Summary {
    handle(function, event(notification)).await.unwrap()
}

const PAUSED: Summary = Summary { refused: 0, ignored: 0, paused: 1 };
const IGNORED: Summary = Summary { refused: 0, ignored: 1, paused: 0 };
const REFUSED: Summary = Summary { refused: 1, ignored: 0, paused: 0 };

async fn paused(db: &TestDb) -> String {
    db.scalar("select coalesce(string_agg(address || ': ' || reason, ', ' order by address), '') from paused_address where resumed_at is null").await
}

#[tokio::test]
async fn a_permanent_bounce_pauses_its_address_once_and_what_comes_again_does_not() {
    let (db, signer) = (TestDb::create().await, Signer::valid(2020, 2090));
    let aws = Aws::serving(&signer.pem).await;
    let function = aws.function(&db);
    let of = |kind: &str, at: &str| {
        notification(&signer, &aws.certificate(), &bounce("Ann@Tenant.test", kind, at))
    };
    assert_eq!(tell(&function, &of("Transient", "2026-11-30T09:00:00Z")).await, IGNORED);
    assert_eq!(paused(&db).await, "");
    let first = of("Permanent", "2026-11-30T10:00:00Z");
    assert_eq!(tell(&function, &first).await, PAUSED);
    let told = "ann@tenant.test: a mail bounced for good (General): smtp; 550 5.1.1 user unknown";
    assert_eq!(paused(&db).await, told);
    assert_eq!(tell(&function, &first).await, IGNORED);
    // An operator lets it: what is told again changes nothing, what happens afterwards does.
    db.execute("update paused_address set resumed_at = '2026-12-01T00:00:00Z'").await;
    assert_eq!(tell(&function, &first).await, IGNORED);
    assert_eq!(tell(&function, &of("Permanent", "2026-11-30T23:00:00Z")).await, IGNORED);
    assert_eq!(paused(&db).await, "");
    assert_eq!(tell(&function, &of("Permanent", "2026-12-02T00:00:00Z")).await, PAUSED);
    assert_eq!(paused(&db).await, told);
    assert_eq!(aws.asked.lock().unwrap().len(), 1, "a sandbox asks for a certificate once");
    let several = json!({"Records": [{"Sns": of("Permanent", "2026-12-03T00:00:00Z")}, {"Sns": first}]});
    assert_eq!(handle(&function, several).await.unwrap(), Summary { refused: 0, ignored: 1, paused: 1 });
}

/// Signed by OpenSSL, in the form of both versions.
#[tokio::test]
async fn both_versions_of_the_signature_hold() {
    let db = TestDb::create().await;
    let aws = Aws::serving(include_str!("signed/certificate.pem")).await;
    for sample in [include_str!("signed/v1.json"), include_str!("signed/v2.json")] {
        let mut sent: Value = serde_json::from_str(sample).unwrap();
        // The address is not signed. Over HTTP its name ends otherwise.
        sent.as_object_mut().unwrap().remove("SigningCertUrl");
        sent["SigningCertURL"] = json!(aws.certificate());
        let function = aws.function(&db);
        db.execute("delete from paused_address").await;
        assert_eq!(tell(&function, &sent).await, PAUSED);
        assert_eq!(paused(&db).await, "ann@tenant.test: its owner complained of a mail (abuse)");
        for (member, value) in [("SignatureVersion", "3"), ("MessageId", "2"), ("Signature", "AAAA")] {
            let mut changed = sent.clone();
            changed[member] = json!(value);
            assert_eq!(tell(&function, &changed).await, REFUSED, "{member}");
        }
    }
}

#[tokio::test]
async fn what_sns_has_not_signed_for_our_topic_is_refused_and_pauses_nothing() {
    let (db, signer) = (TestDb::create().await, Signer::valid(2020, 2090));
    let aws = Aws::serving(&signer.pem).await;
    let elsewhere = Aws::serving(&signer.pem).await;
    let function = aws.function(&db);
    let good = notification(
        &signer,
        &aws.certificate(),
        &bounce("ann@tenant.test", "Permanent", "2026-11-30T10:00:00Z"),
    );
    let resigned = |member: &str, value: Value| {
        let mut sent = good.clone();
        sent[member] = value;
        sent["Signature"] = json!(signer.sign(&signed(&sent)));
        sent
    };
    let changed = |member: &str, value: Value| {
        let mut sent = good.clone();
        sent[member] = value;
        sent
    };
    let forged = bounce("bo@tenant.test", "Permanent", "2026-11-30T10:00:00Z").to_string();
    for (sent, why) in [
        (changed("Message", json!(forged)), "another message"),
        (changed("Timestamp", json!("2026-12-30T10:00:00.000Z")), "another time"),
        (changed("Subject", json!("x")), "a subject that was not signed"),
        (changed("Signature", json!("")), "no signature"),
        (changed("Signature", json!("!")), "a signature that is no base64"),
        (resigned("TopicArn", json!("arn:aws:sns:eu-west-1:999999999999:ses")), "another topic"),
        (resigned("Type", json!("SubscriptionConfirmation")), "another type"),
        (changed("SigningCertUrl", json!(elsewhere.certificate())), "a certificate of somebody else"),
        (
            changed("SigningCertUrl", json!(format!("{}/SimpleNotificationService-1.pem?x", aws.url))),
            "no certificate",
        ),
        (notification(&Signer::valid(2020, 2090), &aws.certificate(), &json!({})), "another key"),
        (json!({"Message": forged}), "no notification"),
        (Value::Null, "nothing"),
    ] {
        assert_eq!(tell(&function, &sent).await, REFUSED, "{why}");
    }
    assert_eq!(handle(&function, json!({})).await.unwrap(), REFUSED);
    assert_eq!(paused(&db).await, "");
    assert!(elsewhere.asked.lock().unwrap().is_empty(), "nobody else's address is called");
    assert_eq!(tell(&function, &good).await, PAUSED);
}

#[tokio::test]
async fn a_certificate_that_is_not_valid_now_or_is_none_is_refused_and_one_that_cannot_be_read_is_asked_for_again()
 {
    let db = TestDb::create().await;
    let told = bounce("ann@tenant.test", "Permanent", "2026-11-30T10:00:00Z");
    for (from, to) in [(2020, 2021), (2080, 2090)] {
        let signer = Signer::valid(from, to);
        let aws = Aws::serving(&signer.pem).await;
        assert_eq!(
            tell(&aws.function(&db), &notification(&signer, &aws.certificate(), &told)).await,
            REFUSED
        );
    }
    let signer = Signer::valid(2020, 2090);
    let aws = Aws::serving("no certificate").await;
    let function = aws.function(&db);
    let good = notification(&signer, &aws.certificate(), &told);
    assert_eq!(tell(&function, &good).await, REFUSED);
    *aws.answer.lock().unwrap() = (StatusCode::NOT_FOUND, String::new());
    assert_eq!(tell(&function, &good).await, REFUSED);
    *aws.answer.lock().unwrap() = (StatusCode::SERVICE_UNAVAILABLE, String::new());
    let failed = handle(&function, event(&good)).await;
    assert!(matches!(failed, Err(Failure::Certificate(_))), "{failed:?}");
    assert_eq!(paused(&db).await, "");
    *aws.answer.lock().unwrap() = (StatusCode::OK, signer.pem.clone());
    assert_eq!(tell(&function, &good).await, PAUSED, "what failed is not remembered");
}

#[tokio::test]
async fn the_deployed_binary_reads_its_topic_from_the_environment() {
    let db = TestDb::create().await;
    let function = Function::new("ses-events", env!("CARGO_BIN_EXE_ses-events"))
        .env("WORKER_DATABASE_URL", &db.worker_url)
        .env("SES_TOPIC_ARN", ARN);
    let sandbox = Sandbox::start(&function).await.unwrap();
    let sample = include_str!("../../../events/ses-events.json");
    let answer = sandbox.invoke(sample.to_owned(), Duration::from_secs(10)).await.unwrap();
    let summary: Value = serde_json::from_slice(&answer.payload).unwrap();
    assert_eq!(summary, json!({"refused": 1, "ignored": 0, "paused": 0}), "another topic");
}
