//! moto's server: a stand-in of AWS. It does not look at signatures.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::emulator::event::REGION;
use super::left_out::python;

const START_WITHIN: Duration = Duration::from_secs(60);

/// Ended when dropped.
pub struct Moto {
    server: Child,
    /// Where it answers, for `AWS_ENDPOINT_URL_…`.
    pub url: String,
}

impl Moto {
    /// `None` without the Python of the tests; the test is then left out.
    pub async fn start() -> Option<Self> {
        let python = python()?;
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Command::new(python)
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let moto = Self { server, url: format!("http://127.0.0.1:{port}") };
        let begun = Instant::now();
        while reqwest::get(format!("{}/moto-api/data.json", moto.url)).await.is_err() {
            assert!(begun.elapsed() < START_WITHIN, "moto does not answer");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Some(moto)
    }

    /// Makes a secret and returns its ARN.
    pub async fn secret(&self, name: &str, value: &str) -> String {
        let made = self.secrets_manager("CreateSecret", json!({"Name": name, "SecretString": value})).await;
        made["ARN"].as_str().unwrap().to_owned()
    }

    /// Gives a secret a new value.
    pub async fn rotate(&self, arn: &str, value: &str) {
        self.secrets_manager("PutSecretValue", json!({"SecretId": arn, "SecretString": value})).await;
    }

    async fn secrets_manager(&self, action: &str, body: Value) -> Value {
        // moto takes service and region from this header.
        let scope = format!("AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/secretsmanager/aws4_request");
        let answer = reqwest::Client::new()
            .post(&self.url)
            .header("authorization", format!("{scope}, SignedHeaders=host, Signature=0"))
            .header("content-type", "application/x-amz-json-1.1")
            .header("x-amz-target", format!("secretsmanager.{action}"))
            .body(body.to_string())
            .send()
            .await
            .unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{action}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// What a function needs to call it.
    pub fn env(&self) -> [(&'static str, String); 4] {
        [
            ("AWS_ENDPOINT_URL_SECRETS_MANAGER", self.url.clone()),
            ("AWS_ACCESS_KEY_ID", "test".into()),
            ("AWS_SECRET_ACCESS_KEY", "test".into()),
            ("AWS_SESSION_TOKEN", "test/+=".into()),
        ]
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
