//! The events that functions are invoked with, and the responses of HTTP functions.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use uuid::Uuid;

/// The AWS region of all functions.
pub const REGION: &str = "eu-west-1";
const ACCOUNT: &str = "123456789012";

/// A Lambda function's ARN in [`REGION`].
pub fn function_arn(name: &str) -> String {
    format!("arn:aws:lambda:{REGION}:{ACCOUNT}:function:{name}")
}

/// An API Gateway HTTP API event (payload format 2.0). `path` may contain `?query`. As API Gateway does, it lower-cases
/// header names, joins repeated headers with a comma, and encodes a body that is not UTF-8 as base64.
pub fn http(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Value {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let mut joined = BTreeMap::<String, String>::new();
    for (name, value) in headers {
        joined
            .entry(name.to_ascii_lowercase())
            .and_modify(|first| *first = format!("{first},{value}"))
            .or_insert_with(|| (*value).to_owned());
    }
    let text = std::str::from_utf8(body);
    json!({
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": query,
        "headers": joined,
        "requestContext": {
            "accountId": ACCOUNT,
            "apiId": "api-id",
            "domainName": format!("api-id.execute-api.{REGION}.amazonaws.com"),
            "domainPrefix": "api-id",
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1",
                     "userAgent": "emulator"},
            "requestId": Uuid::new_v4().to_string(),
            "routeKey": "$default",
            "stage": "$default",
            "time": jiff::Timestamp::now().strftime("%d/%b/%Y:%H:%M:%S +0000").to_string(),
            "timeEpoch": jiff::Timestamp::now().as_millisecond(),
        },
        "body": text.map_or_else(|_| STANDARD.encode(body), str::to_owned),
        "isBase64Encoded": text.is_err(),
    })
}

/// The event of an EventBridge schedule rule.
pub fn scheduled(rule: &str) -> Value {
    json!({
        "version": "0",
        "id": Uuid::new_v4().to_string(),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "region": REGION,
        "resources": [format!("arn:aws:events:{REGION}:{ACCOUNT}:rule/{rule}")],
        "detail": {},
    })
}

/// An HTTP function's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// HTTP status.
    pub status: u16,
    /// Headers by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// Decoded, if it was base64.
    pub body: Vec<u8>,
}

impl HttpAnswer {
    /// Reads an invocation's payload, which must be a response in payload format 2.0.
    pub fn read(payload: &[u8]) -> Result<Self> {
        let answer: Value = serde_json::from_slice(payload).context("the answer is not JSON")?;
        let status = answer["statusCode"].as_u64().context("no statusCode")?;
        let headers = answer["headers"]
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| Some((name.to_ascii_lowercase(), value.as_str()?.to_owned())))
            .collect();
        let text = answer["body"].as_str().unwrap_or_default();
        let body = match answer["isBase64Encoded"].as_bool() {
            Some(true) => STANDARD.decode(text).context("the body is not base64")?,
            _ => text.as_bytes().to_vec(),
        };
        Ok(Self { status: u16::try_from(status)?, headers, body })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    #[test]
    fn a_header_sent_twice_arrives_joined() {
        let event = http("POST", "/a?b=c", &[("Idempotency-Key", "1"), ("idempotency-key", "2")], b"{}");
        assert_eq!(event["headers"]["idempotency-key"], "1,2");
        assert_eq!(event["rawQueryString"], "b=c");
    }

    #[test]
    fn a_body_that_is_not_utf8_is_sent_as_base64() {
        let event = http("POST", "/", &[], &[0xff, 0]);
        assert_eq!(event["isBase64Encoded"], true);
        let answer = json!({"statusCode": 200, "body": event["body"], "isBase64Encoded": true}).to_string();
        assert_eq!(HttpAnswer::read(answer.as_bytes()).unwrap().body, [0xff, 0]);
    }
}
