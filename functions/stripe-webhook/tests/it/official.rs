//! The official client library signs what this endpoint accepts, and would accept what these tests sign.

use std::process::Command;

use super::*;

const PROGRAM: &str = r#"
import sys, stripe
body, secret, timestamp, ours = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
signature = stripe.WebhookSignature._compute_signature("%d.%s" % (timestamp, body), secret)
stripe.WebhookSignature.verify_header(body, ours, secret, None)
print("t=%d,v1=%s" % (timestamp, signature))
"#;

#[tokio::test]
async fn what_the_official_library_signs_is_accepted() {
    let Some(python) = testing::python() else { return };
    let (shop, mut webhook) = open().await;
    let invoice = invoice(&shop).await;
    let body = succeeded("evt_1", "pi_1", invoice, 5_000).to_string();
    let ours = format!("t={NOW},v1={}", sign(SECRET, &NOW.to_string(), body.as_bytes()));
    let output =
        Command::new(python).args(["-c", PROGRAM, &body, SECRET, &NOW.to_string(), &ours]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let header = String::from_utf8(output.stdout).unwrap();
    webhook.secrets = format!("another,{SECRET}").as_str().into();
    let event =
        Event::post("/webhooks/stripe").header("stripe-signature", header.trim()).body(body.as_bytes());
    assert_eq!(send(&webhook, &event).await.json(), received());
    assert_eq!(status(&shop, invoice).await, "paid");
}
