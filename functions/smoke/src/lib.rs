//! CodeDeploy's hook before it gives requests to new versions of allocate and release: by these versions themselves, stock of a
//! tenant that is there for that alone is promised, the promise repeated, and given back. Then CodeDeploy is told to go on or not.
//!
//! Promises: what was promised is given back also where the repeat was wrong; a deployment's promise is made once, however often
//! its hook is called. Where no such tenant is named, both versions must start and refuse a request without credentials.
//! Relies on CodeDeploy to end a deployment of which it hears nothing for an hour: so if the result cannot be told, the
//! invocation fails.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use shared::runtime::aws::{AwsError, endpoint, post};
use shared::runtime::environment::{ConfigError, required};
use shared::runtime::secret::Secret;

/// A new version starts, gets its secrets and connects first.
const INVOCATION: Duration = Duration::from_secs(20);
const REPORT: Duration = Duration::from_secs(10);
const JSON: (&str, &str) = ("content-type", "application/x-amz-json-1.1");
const PUT_STATUS: (&str, &str) = ("x-amz-target", "CodeDeploy_20141006.PutLifecycleEventHookExecutionStatus");

/// The environment, read once at cold start.
#[derive(Clone, Debug)]
pub struct Config {
    /// `ALLOCATE_VERSION`: the new version's ARN.
    pub allocate: Version,
    /// `RELEASE_VERSION`.
    pub release: Version,
    /// The secret `SMOKE_TENANT`: a [`Tenant`] as JSON.
    pub tenant: Option<Secret>,
}

/// A version of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    function: String,
    number: String,
}

/// Whose stock is promised.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tenant {
    /// With scope `orders:write`.
    api_key: String,
    /// An open order that wants the SKU.
    order_id: String,
    /// Of which there is a unit.
    sku_id: String,
}

/// CodeDeploy's event.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Hook {
    /// Names the deployment.
    pub deployment_id: String,
    /// Names this call of the hook.
    pub lifecycle_event_hook_execution_id: String,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// What CodeDeploy was told: `Succeeded` or `Failed`.
    pub status: &'static str,
    /// What was wrong.
    pub error: Option<String>,
    /// Whether a promise was tried, and not only a start.
    pub promised: bool,
}

/// CodeDeploy could not be told.
#[derive(Debug, thiserror::Error)]
#[error("CodeDeploy cannot be told {status}: {why}")]
pub struct Untold {
    status: &'static str,
    why: AwsError,
}

/// An answer in the gateway's format.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    status_code: u16,
    #[serde(default)]
    headers: serde_json::Map<String, Value>,
    #[serde(default)]
    body: Option<String>,
}

impl Config {
    /// Reads the variables named above. The error names the one that is missing or wrong.
    pub fn from_env() -> Result<Self, ConfigError> {
        let version = |name: &'static str| {
            Version::read(&required(name)?)
                .ok_or_else(|| ConfigError::new(name, "is not the ARN of a version"))
        };
        Ok(Self {
            allocate: version("ALLOCATE_VERSION")?,
            release: version("RELEASE_VERSION")?,
            tenant: Secret::optional_from_env("SMOKE_TENANT")?,
        })
    }
}

impl Version {
    /// `arn:aws:lambda:<region>:<account>:function:<name>:<number>`.
    fn read(arn: &str) -> Option<Self> {
        let parts: Vec<&str> = arn.split(':').collect();
        let ["arn", _, "lambda", _, _, "function", function, number] = parts[..] else { return None };
        Some(Self { function: function.to_owned(), number: number.to_owned() })
    }
}

/// One call of the hook.
pub async fn handle(config: &Config, hook: &Hook) -> Result<Summary, Untold> {
    let error = tried(config, &hook.deployment_id).await.err();
    let status = if error.is_none() { "Succeeded" } else { "Failed" };
    if let Some(error) = &error {
        tracing::error!(error, "the new versions are not fit for requests");
    }
    let told = json!({"deploymentId": hook.deployment_id,
        "lifecycleEventHookExecutionId": hook.lifecycle_event_hook_execution_id, "status": status});
    let report = async {
        let url = endpoint("codedeploy")?;
        post("codedeploy", &url, &[JSON, PUT_STATUS], &told.to_string(), REPORT).await
    };
    report.await.map_err(|why| Untold { status, why })?;
    Ok(Summary { status, error, promised: config.tenant.is_some() })
}

async fn tried(config: &Config, deployment: &str) -> Result<(), String> {
    let Some(secret) = &config.tenant else {
        for (version, verb) in [(&config.allocate, "allocate"), (&config.release, "release")] {
            let answer =
                asked(version, &request(verb, "00000000-0000-0000-0000-000000000000", "", "", &Value::Null))
                    .await?;
            expect(verb, answer.status_code == 401, &answer)?;
        }
        return Ok(());
    };
    let tenant = secret.current().await.map_err(|error| error.to_string())?;
    let Tenant { api_key, order_id, sku_id } =
        serde_json::from_str(&tenant).map_err(|error| format!("SMOKE_TENANT cannot be read: {error}"))?;
    let body = json!({"skuId": sku_id, "qty": 1});
    let call = |verb, key: String| request(verb, &order_id, &api_key, &key, &body);

    let promise = call("allocate", format!("smoke-{deployment}"));
    let first = asked(&config.allocate, &promise).await?;
    expect("allocate", first.status_code == 200, &first)?;
    let again = asked(&config.allocate, &promise).await;
    let back = asked(&config.release, &call("release", format!("smoke-{deployment}-back"))).await?;
    let again = again?;
    expect(
        "allocate, repeated,",
        again.status_code == 200 && again.is_replay() && again.body == first.body,
        &again,
    )?;
    expect("release", back.status_code == 200, &back)
}

impl Answer {
    fn is_replay(&self) -> bool {
        self.headers
            .iter()
            .any(|(name, value)| name.eq_ignore_ascii_case("idempotent-replayed") && value == "true")
    }
}

fn expect(what: &str, is_right: bool, answer: &Answer) -> Result<(), String> {
    if is_right {
        return Ok(());
    }
    let body: String = answer.body.as_deref().unwrap_or_default().chars().take(500).collect();
    Err(format!("{what} answers {}: {body}", answer.status_code))
}

/// The event that the gateway would send.
fn request(verb: &str, order: &str, api_key: &str, key: &str, body: &Value) -> Value {
    let path = format!("/orders/{order}/{verb}");
    let mut headers = json!({"content-type": "application/json"});
    for (name, value) in [("authorization", api_key), ("idempotency-key", key)] {
        if !value.is_empty() {
            let scheme = if name == "authorization" { "Bearer " } else { "" };
            headers[name] = format!("{scheme}{value}").into();
        }
    }
    json!({"version": "2.0", "routeKey": "$default", "rawPath": path, "rawQueryString": "", "headers": headers,
        "requestContext": {"http": {"method": "POST", "path": path}, "stage": "$default", "requestId": key},
        "body": body.to_string(), "isBase64Encoded": false})
}

async fn asked(version: &Version, event: &Value) -> Result<Answer, String> {
    let Version { function, number } = version;
    let answer = async {
        let url = endpoint("lambda")?;
        let url = format!("{url}2015-03-31/functions/{function}/invocations?Qualifier={number}");
        post("lambda", &url, &[("content-type", "application/json")], &event.to_string(), INVOCATION).await
    };
    let answer = answer.await.map_err(|error| format!("{function} version {number}: {error}"))?;
    // A function that fails answers 200 as well, with another document.
    serde_json::from_slice(&answer).map_err(|_| {
        let said: String = String::from_utf8_lossy(&answer).chars().take(500).collect();
        format!("{function} version {number} fails: {said}")
    })
}
