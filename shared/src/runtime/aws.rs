//! What every function may ask AWS for: the value of a secret, and a token that RDS takes as a password; and the signed request
//! that is made of such a call.
//!
//! Promises: a call for a secret ends within 2.5 s. Relies on the credentials that Lambda puts into the environment, and on
//! `AWS_ENDPOINT_URL_SECRETS_MANAGER` where a stand-in is to be asked.
//! Not the AWS SDK: its client and its configuration would be most of a function's code, for one request a sandbox. The
//! signature is by AWS's own crate.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    SignableBody, SignableRequest, SignatureLocation, SigningInstructions, SigningSettings, sign,
};
use aws_sigv4::sign::v4;
use serde::Deserialize;
use serde_json::json;

use crate::runtime::environment::required;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Limit for one attempt; a request has 6.6 s for its database, and 3 s of them to connect.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1_200);
/// The second is made at once after a failure that is none of the request's fault.
const ATTEMPTS: u32 = 2;
/// The longest that RDS takes.
const TOKEN_LIFETIME: Duration = Duration::from_secs(900);
const JSON: &str = "application/x-amz-json-1.1";
const TARGET: &str = "secretsmanager.GetSecretValue";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum AwsError {
    /// A variable that Lambda sets is missing.
    #[error(transparent)]
    Environment(#[from] crate::runtime::environment::ConfigError),
    /// The request cannot be signed.
    #[error("the request cannot be signed: {0}")]
    Unsigned(String),
    /// No answer, or not a whole one.
    #[error("no answer: {0}")]
    NoAnswer(#[from] reqwest::Error),
    /// AWS's own refusal; the text is the error's type and says nothing of the secret.
    #[error("{status} {kind}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// As `AccessDeniedException`.
        kind: String,
    },
}

#[derive(Deserialize)]
struct SecretValue {
    #[serde(rename = "SecretString")]
    secret_string: String,
}

#[derive(Deserialize)]
struct Refusal {
    #[serde(rename = "__type")]
    kind: String,
}

/// The text of a secret's current version, by its ARN or name.
pub(crate) async fn secret_value(arn: &str) -> Result<String, AwsError> {
    let url = endpoint("secretsmanager")?;
    let body = json!({"SecretId": arn}).to_string();
    let mut attempt = 0;
    loop {
        attempt += 1;
        let done = attempt_secret_value(&url, &body).await;
        match done {
            Err(error) if attempt < ATTEMPTS && may_pass(&error) => {}
            done => return done,
        }
    }
}

/// Where a service of this region is called, with a slash at the end: `AWS_ENDPOINT_URL_<SERVICE>`, `AWS_ENDPOINT_URL`, or AWS.
pub fn endpoint(service: &str) -> Result<String, AwsError> {
    let region = required("AWS_REGION")?;
    let named = match service {
        "secretsmanager" => "AWS_ENDPOINT_URL_SECRETS_MANAGER",
        "lambda" => "AWS_ENDPOINT_URL_LAMBDA",
        "codedeploy" => "AWS_ENDPOINT_URL_CODEDEPLOY",
        _ => "AWS_ENDPOINT_URL",
    };
    let given = [named, "AWS_ENDPOINT_URL"].into_iter().find_map(|name| required(name).ok());
    let suffix = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    let url = given.unwrap_or_else(|| format!("https://{service}.{region}.{suffix}"));
    Ok(format!("{}/", url.trim_end_matches('/')))
}

/// Whether the same request may succeed now.
fn may_pass(error: &AwsError) -> bool {
    match error {
        AwsError::NoAnswer(_) => true,
        AwsError::Refused { status, kind } => *status >= 500 || *status == 429 || kind.contains("Throttling"),
        AwsError::Environment(_) | AwsError::Unsigned(_) => false,
    }
}

async fn attempt_secret_value(url: &str, body: &str) -> Result<String, AwsError> {
    let headers = [("content-type", JSON), ("x-amz-target", TARGET)];
    let content = post("secretsmanager", url, &headers, body, ATTEMPT_TIMEOUT).await?;
    let read: Result<SecretValue, _> = serde_json::from_slice(&content);
    read.map(|value| value.secret_string).map_err(|_| AwsError::Refused {
        status: 200,
        kind: "an answer without SecretString: binary secrets are not used here".into(),
    })
}

/// A signed request with these headers (lower-case names) and this body, and the body of its answer if that is a success.
pub async fn post(
    service: &str,
    url: &str,
    headers: &[(&str, &str)],
    body: &str,
    timeout: Duration,
) -> Result<Vec<u8>, AwsError> {
    let region = required("AWS_REGION")?;
    let content = SignableBody::Bytes(body.as_bytes());
    let request = SignableRequest::new("POST", url, headers.iter().copied(), content).map_err(unsigned)?;
    let signed = signature(request, &region, service, SigningSettings::default())?;
    let mut call = client().post(url).timeout(timeout);
    for (name, value) in headers.iter().copied().chain(signed.headers()) {
        call = call.header(name, value);
    }
    let answer = call.body(body.to_owned()).send().await?;
    let status = answer.status();
    // Where a service's errors name their type; the others have it in the body.
    let named =
        answer.headers().get("x-amzn-errortype").and_then(|kind| kind.to_str().ok()).map(str::to_owned);
    let content = answer.bytes().await?;
    if status.is_success() {
        return Ok(content.into());
    }
    let told = serde_json::from_slice(&content).ok().map(|Refusal { kind }| kind);
    let kind = told.or(named).unwrap_or_else(|| "an unknown error".into());
    Err(AwsError::Refused { status: status.as_u16(), kind })
}

/// A password for `user` of the RDS server at this address, for the next 15 minutes; made here, without a call.
pub(crate) fn rds_token(host: &str, port: u16, user: &str) -> Result<String, AwsError> {
    let region = required("AWS_REGION")?;
    let address = format!("{host}:{port}");
    let url = reqwest::Url::parse_with_params(
        &format!("https://{address}/"),
        [("Action", "connect"), ("DBUser", user)],
    );
    let mut url = url.map_err(unsigned)?;
    let mut settings = SigningSettings::default();
    settings.signature_location = SignatureLocation::QueryParams;
    settings.expires_in = Some(TOKEN_LIFETIME);
    let request = SignableRequest::new("GET", url.as_str(), std::iter::empty(), SignableBody::Bytes(&[]));
    let signed = signature(request.map_err(unsigned)?, &region, "rds-db", settings)?;
    for (name, value) in signed.params() {
        url.query_pairs_mut().append_pair(name, value);
    }
    // RDS takes the address without its scheme.
    Ok(url.as_str().trim_start_matches("https://").to_owned())
}

fn signature(
    request: SignableRequest<'_>,
    region: &str,
    service: &str,
    settings: SigningSettings,
) -> Result<SigningInstructions, AwsError> {
    let credentials = Credentials::new(
        required("AWS_ACCESS_KEY_ID")?,
        required("AWS_SECRET_ACCESS_KEY")?,
        required("AWS_SESSION_TOKEN").ok(),
        None,
        "environment",
    );
    let identity = credentials.into();
    let parameters = v4::SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name(service)
        .time(SystemTime::now())
        .settings(settings)
        .build()
        .map_err(unsigned)?;
    let (signed, _) = sign(request, &parameters.into()).map_err(unsigned)?.into_parts();
    Ok(signed)
}

fn unsigned(error: impl std::fmt::Display) -> AwsError {
    AwsError::Unsigned(error.to_string())
}

/// Made at the first call. A client that cannot be made fails at its use.
fn client() -> reqwest::Client {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    let new = || {
        let builder = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT);
        builder.build().unwrap_or_default()
    };
    CLIENT.get_or_init(new).clone()
}
