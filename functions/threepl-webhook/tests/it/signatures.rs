//! Signatures: the published vectors, several secrets, the official library.

use std::process::Command;

use super::*;

#[tokio::test]
async fn every_published_vector_is_answered_as_it_was_meant() {
    let Some(cases) = testing::case("standard-webhooks/verify-cases.json") else { return };
    let (shop, webhook) = open(Seed::default()).await;
    let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
    assert!(cases.len() >= 15);
    for case in &cases {
        let (name, expect) = (case["name"].as_str().unwrap(), case["expect"].as_str().unwrap());
        assert_eq!((case["now"].as_i64(), case["tolerance_s"].as_i64()), (Some(NOW), Some(300)));
        account(&shop, ACCOUNT, case["secret"].as_str().unwrap()).await;
        let mut event =
            Event::post(&format!("/webhooks/3pl/{ACCOUNT}")).body(case["body"].as_str().unwrap().as_bytes());
        for (name, value) in case["headers"].as_object().unwrap() {
            event = event.header(name, value.as_str().unwrap());
        }
        // A secret pasted with "v1," in front counts as two, of which one is right.
        let accepted = expect == "ok" || expect == "constructor-error-or-reject";
        for event in [event.clone(), event.base64()] {
            let reply = send(&webhook, &event).await;
            assert_eq!(reply.status, if accepted { 200 } else { 401 }, "{name}");
            assert_eq!(reply.error().as_deref(), (!accepted).then_some("bad_signature"), "{name}");
        }
    }
}

#[tokio::test]
async fn without_a_signature_that_holds_nothing_is_stored() {
    let (shop, webhook) = open(Seed::default()).await;
    account(&shop, "other", "whsec_b3RoZXI=").await;
    let body = announced("A", &[("1", 0, 5)]).to_string();
    let good = sign(SECRET, "m", NOW, body.as_bytes());
    let post = |account: &str, id: &str, signature: &str| {
        Event::post(&format!("/webhooks/3pl/{account}"))
            .header("webhook-id", id)
            .header("webhook-timestamp", &NOW.to_string())
            .header("webhook-signature", signature)
            .body(body.as_bytes())
    };
    for event in [
        post("other", "m", &good),
        post("nobody", "m", &good),
        post("a%00b", "m", &good),
        post(ACCOUNT, "n", &good),
        post(ACCOUNT, "m", &good.replace("v1,", "v1a,")),
        post(ACCOUNT, "m.1", &sign(SECRET, "m.1", NOW, body.as_bytes())),
    ] {
        let reply = send(&webhook, &event).await;
        assert_eq!((reply.status, reply.error().as_deref()), (401, Some("bad_signature")));
    }
    assert_eq!(shop.db.count("webhook_inbox").await + shop.db.count("inbox_exception").await, 0);
    assert_eq!(send(&webhook, &Event::post("/webhooks/3pl")).await.status, 404);
    assert_eq!(send(&webhook, &Event::get("/webhooks/3pl/x")).await.status, 405);
    // During a rotation both are valid.
    account(&shop, ACCOUNT, &format!("whsec_b2xk {SECRET}")).await;
    assert_eq!(send(&webhook, &post(ACCOUNT, "m", &good)).await.status, 200);
    account(&shop, ACCOUNT, "whsec_b2xk,not base64!").await;
    assert_eq!(send(&webhook, &post(ACCOUNT, "m", &good)).await.status, 401);
}

const PROGRAM: &str = r#"
import sys, datetime, standardwebhooks
secret, id, timestamp, body = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
at = datetime.datetime.fromtimestamp(timestamp, tz=datetime.timezone.utc)
print(standardwebhooks.Webhook(secret).sign(id, at, body))
"#;

#[tokio::test]
async fn what_the_official_library_signs_is_accepted() {
    let Some(python) = testing::python() else { return };
    let (shop, webhook) = open(Seed::default()).await;
    let body = announced("A-ü", &[("1", 0, 5)]).to_string();
    let output = Command::new(python)
        .args(["-c", PROGRAM, SECRET, "msg_1", &NOW.to_string(), &body])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let signature = String::from_utf8(output.stdout).unwrap();
    let event = Event::post(&format!("/webhooks/3pl/{ACCOUNT}"))
        .header("webhook-id", "msg_1")
        .header("webhook-timestamp", &NOW.to_string())
        .header("webhook-signature", signature.trim())
        .body(body.as_bytes());
    assert_eq!(send(&webhook, &event).await.json(), received());
    assert_eq!(positions(&shop).await, "6 5 0");
}

#[tokio::test]
async fn after_a_rotation_the_secret_before_counts_until_it_retires_and_stored_ones_are_sealed() {
    let (shop, webhook) = open(Seed::default()).await;
    let newer = "whsec_bmV3ZXIgbmV3ZXIgbmV3ZXIgbmV3ZXI=";
    let sealed = |secret: &str| testing::sealer().seal(&format!("threepl {ACCOUNT}"), secret).unwrap();
    let rotate = format!(
        "update threepl_account set secret = '{}', previous_secret = '{}', previous_retires_at = now() + interval '1 h'",
        sealed(newer),
        sealed(SECRET)
    );
    shop.db.execute(rotate).await;
    let body = b"{}";
    let status = async |id: &str, secret: &str| {
        let event = Event::post(&format!("/webhooks/3pl/{ACCOUNT}"))
            .header("webhook-id", id)
            .header("webhook-timestamp", &NOW.to_string())
            .header("webhook-signature", &sign(secret, id, NOW, body))
            .body(body);
        send(&webhook, &event).await.status
    };
    assert_eq!((status("1", newer).await, status("2", SECRET).await), (200, 200));
    shop.db.execute("update threepl_account set previous_retires_at = now()").await;
    assert_eq!((status("3", newer).await, status("4", SECRET).await), (200, 401));
    // What belongs to another account opens nothing, so nothing is proved by it.
    let strange = testing::sealer().seal("threepl other", newer).unwrap();
    shop.db.execute(format!("update threepl_account set secret = '{strange}'")).await;
    assert_eq!(status("5", newer).await, 500);
    assert_eq!(shop.db.count("webhook_inbox").await, 3);
}
