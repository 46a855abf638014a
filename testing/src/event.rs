//! API Gateway HTTP API (v2) events, and a function's reply.

use base64::Engine as _;
use lambda_http::{Body, Request, Response};
use serde_json::{Value, json};
use shared::http::serve::HttpEvent;

/// Builds an event as API Gateway does: header names in lower case, repeated headers joined with a comma.
#[derive(Clone, Debug)]
pub struct Event {
    method: String,
    path: String,
    query: String,
    stage: String,
    headers: Vec<(String, String)>,
    body: Option<Vec<u8>>,
    base64: bool,
}

impl Event {
    /// Without body, with a JSON content type; `path` may contain `?query`.
    pub fn new(method: &str, path: &str) -> Self {
        Self::bare(method, path).header("content-type", "application/json")
    }

    /// Without body and headers.
    pub fn bare(method: &str, path: &str) -> Self {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        Self {
            method: method.into(),
            path: path.into(),
            query: query.into(),
            stage: "$default".into(),
            headers: Vec::new(),
            body: None,
            base64: false,
        }
    }

    /// `Event::new("POST", path)`.
    pub fn post(path: &str) -> Self {
        Self::new("POST", path)
    }

    /// `Event::new("GET", path)`.
    pub fn get(path: &str) -> Self {
        Self::new("GET", path)
    }

    /// Adds a header; an earlier one of the same name stays.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_lowercase(), value.into()));
        self
    }

    /// Adds `Authorization: Bearer …`.
    pub fn bearer(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Adds `Idempotency-Key`.
    pub fn key(self, key: &str) -> Self {
        self.header("idempotency-key", key)
    }

    /// Sets the body.
    pub fn json(self, body: &Value) -> Self {
        self.body(body.to_string().as_bytes())
    }

    /// Sets the body; base64-encoded in the event if it is not UTF-8.
    pub fn body(mut self, body: &[u8]) -> Self {
        self.base64 = std::str::from_utf8(body).is_err();
        self.body = Some(body.into());
        self
    }

    /// Encodes the body as base64 in any case.
    pub fn base64(mut self) -> Self {
        self.base64 = true;
        self
    }

    /// Sets a named stage, which API Gateway prepends to the path.
    pub fn stage(mut self, stage: &str) -> Self {
        self.stage = stage.into();
        self
    }

    /// In payload format 2.0.
    pub fn to_json(&self) -> Value {
        let mut headers = serde_json::Map::new();
        for (name, value) in &self.headers {
            let joined = match headers.get(name).and_then(Value::as_str) {
                Some(first) => format!("{first},{value}"),
                None => value.clone(),
            };
            headers.insert(name.clone(), joined.into());
        }
        let raw_path = if self.stage == "$default" {
            self.path.clone()
        } else {
            format!("/{}{}", self.stage, self.path)
        };
        let parameters: serde_json::Map<String, Value> = self
            .query
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (decode(name), Value::from(decode(value))))
            .collect();
        let body = self.body.as_ref().map(|bytes| {
            if self.base64 {
                base64::engine::general_purpose::STANDARD.encode(bytes)
            } else {
                String::from_utf8(bytes.clone()).expect("base64 is set for other bytes")
            }
        });
        json!({
            "version": "2.0",
            "routeKey": "$default",
            "rawPath": raw_path,
            "rawQueryString": self.query,
            "headers": headers,
            "queryStringParameters": parameters,
            "requestContext": {
                "accountId": "123456789012",
                "apiId": "api-id",
                "domainName": "id.execute-api.eu-west-1.amazonaws.com",
                "domainPrefix": "id",
                "http": {"method": self.method, "path": raw_path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1",
                         "userAgent": "test"},
                "requestId": uuid::Uuid::new_v4().to_string(),
                "routeKey": "$default",
                "stage": self.stage,
                "time": "12/Mar/2026:19:03:58 +0000",
                "timeEpoch": 1_773_342_238_000_i64,
            },
            "body": body,
            "isBase64Encoded": self.base64,
        })
    }

    /// The request that a deployed function makes of it for its handler.
    pub fn request(&self) -> Request {
        serde_json::from_value::<HttpEvent>(self.to_json()).unwrap().into_request()
    }
}

fn decode(text: &str) -> String {
    percent_encoding::percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// A function's response.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// With lower-case names.
    pub headers: Vec<(String, String)>,
    /// Not encoded.
    pub body: Vec<u8>,
}

impl From<Response<Body>> for Reply {
    fn from(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let headers =
            parts.headers.iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned())).collect();
        let body = match body {
            Body::Text(text) => text.into_bytes(),
            Body::Binary(bytes) => bytes,
            _ => Vec::new(),
        };
        Self { status: parts.status.as_u16(), headers, body }
    }
}

impl Reply {
    /// The value of the first header with this lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The body, parsed.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The error code, if the reply is `application/problem+json`.
    pub fn error(&self) -> Option<String> {
        (self.header("content-type") == Some("application/problem+json"))
            .then(|| self.json()["error"].as_str().unwrap().to_owned())
    }
}
