//! Turns an API Gateway event into a request, and an answer into a response. Knows no route and no table.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use lambda_http::{Body, Request, RequestExt, Response};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

use crate::http::json::{BodyError, parse};
use crate::http::problem::Problem;
use crate::http::serve::NotBase64;

/// Largest body of a route that is not a webhook.
pub(crate) const MAX_BODY_BYTES: usize = 1024 * 1024;

/// A request as handlers get it.
#[derive(Debug)]
pub struct Incoming {
    /// The HTTP method.
    pub method: Method,
    /// The path without the stage, each segment percent-decoded by itself.
    pub segments: Vec<String>,
    /// Decoded query parameters, sorted by name. U+FFFD stands for what is not UTF-8.
    pub query: Vec<(String, String)>,
    /// All request headers.
    pub headers: HeaderMap,
    /// The raw body, base64 undone; empty if that was not possible.
    pub body: Vec<u8>,
    /// Whether the body was said to be base64 and is not.
    not_base64: bool,
    /// The gateway's id, for logs and `x-request-id`.
    pub request_id: String,
}

impl Incoming {
    /// Takes over the request that was made of an event.
    pub fn read(request: Request) -> Self {
        let context = request.request_context_ref();
        let (stage, request_id) = match context {
            Some(lambda_http::request::RequestContext::ApiGatewayV2(v2)) => {
                (v2.stage.clone(), v2.request_id.clone())
            }
            _ => (None, None),
        };
        let request_id = request_id.filter(|id| is_header_text(id));
        let raw = request.raw_http_path().to_owned();
        let path = without_stage(&raw, stage.as_deref());
        let segments = path.split('/').skip(1).map(decode).collect();
        let mut query: Vec<(String, String)> = request
            .query_string_parameters_ref()
            .map(|q| q.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
            .unwrap_or_default();
        // They come in no order, and what is wrong with them is answered in this one.
        query.sort_by(|(a, _), (b, _)| a.cmp(b));
        let (parts, body) = request.into_parts();
        let body = match body {
            Body::Text(text) => text.into_bytes(),
            Body::Binary(bytes) => bytes,
            _ => Vec::new(),
        };
        Self {
            method: parts.method,
            segments,
            query,
            headers: parts.headers,
            body,
            not_base64: parts.extensions.get::<NotBase64>().is_some(),
            request_id: request_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string()),
        }
    }

    /// The body as strict JSON, or the first mistake in it.
    pub fn json(&self) -> Result<Value, BodyError> {
        if self.not_base64 {
            let message = "isBase64Encoded is true, but the body is not base64".to_owned();
            return Err(BodyError { path: String::new(), message });
        }
        // A DELETE says all by its path; few clients send a body with one.
        if self.method == Method::DELETE && self.body.is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        parse(&self.body)
    }
}

/// Every response has the request's id in a header.
fn is_header_text(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

/// `rawPath` begins with the stage unless that is `$default`.
fn without_stage<'p>(path: &'p str, stage: Option<&str>) -> &'p str {
    match stage {
        Some(stage) if stage != "$default" => path
            .strip_prefix('/')
            .and_then(|rest| rest.strip_prefix(stage))
            .filter(|rest| rest.is_empty() || rest.starts_with('/'))
            .unwrap_or(path),
        _ => path,
    }
}

fn decode(segment: &str) -> String {
    percent_decode_str(segment).decode_utf8_lossy().into_owned()
}

/// A complete answer, whose bytes are recorded and replayed under an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status code.
    pub status: u16,
    /// The document, as sent.
    pub body: Vec<u8>,
    /// `application/json` or `application/problem+json`.
    pub content_type: String,
    /// `ETag` of the document, with its quotes.
    pub etag: Option<String>,
    /// `Location` of what was created.
    pub location: Option<String>,
    /// Whether an earlier request recorded it.
    pub replayed: bool,
    /// Further headers (lower-case name, value); they are not recorded.
    pub headers: Vec<(&'static str, String)>,
}

impl Answer {
    /// An answer without `ETag` and `Location`.
    pub fn new(status: u16, content_type: impl Into<String>, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status,
            body: body.into(),
            content_type: content_type.into(),
            etag: None,
            location: None,
            replayed: false,
            headers: Vec::new(),
        }
    }
}

pub(crate) fn respond(result: Result<Answer, Problem>, request_id: &str) -> Response<Body> {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    put("x-request-id", request_id);
    put("cache-control", "no-store");
    let (status, body) = match result {
        Ok(answer) => {
            put("content-type", &answer.content_type);
            if let Some(etag) = &answer.etag {
                put("etag", etag);
            }
            if let Some(location) = &answer.location {
                put("location", location);
            }
            if answer.replayed {
                put("idempotent-replayed", "true");
            }
            for (name, value) in &answer.headers {
                put(name, value);
            }
            (answer.status, answer.body)
        }
        Err(problem) => {
            put("content-type", "application/problem+json");
            for (name, value) in &problem.headers {
                put(name, value);
            }
            (problem.status, problem.body())
        }
    };
    let body = match String::from_utf8(body) {
        Ok(text) if is_short_as_text(&text) => Body::Text(text),
        Ok(text) => Body::Binary(text.into_bytes()),
        Err(error) => Body::Binary(error.into_bytes()),
    };
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

/// Bodies up to here go as they are most easily read.
const LARGE_BYTES: usize = 1024 * 1024;

/// Whether a body travels as text, in which JSON needs no base64. Lambda carries 6 MB, and in them a text with its quotes and
/// backslashes escaped once more: a large one with very many of them would not fit where base64, a third more, does.
fn is_short_as_text(body: &str) -> bool {
    let escapes = || body.bytes().filter(|byte| matches!(byte, b'"' | b'\\' | ..b' ')).count();
    body.len() <= LARGE_BYTES || escapes() <= body.len() / 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_body_fits_into_what_lambda_carries_whatever_it_holds() {
        for (unit, text) in [(r#"{"id":"an ordinary item"},"#, true), (r#"\"\"\"\""#, false)] {
            let body = unit.repeat(4_000_000 / unit.len());
            let response = respond(Ok(Answer::new(200, "application/json", body.clone())), "r");
            assert_eq!(matches!(response.body(), Body::Text(_)), text, "{unit}");
            let carried = match response.body() {
                Body::Text(text) => serde_json::to_string(text).unwrap_or_default().len(),
                other => other.len().div_ceil(3) * 4,
            };
            assert!(carried < 5_900_000, "{unit}: {carried}");
            let small = respond(Ok(Answer::new(200, "application/json", unit.repeat(10))), "r");
            assert!(matches!(small.body(), Body::Text(_)), "{unit}");
        }
    }

    #[test]
    fn the_stage_is_removed_from_the_path() {
        assert_eq!(without_stage("/prod/orders", Some("prod")), "/orders");
        assert_eq!(without_stage("/orders", Some("$default")), "/orders");
        assert_eq!(without_stage("/production/orders", Some("prod")), "/production/orders");
        assert_eq!(without_stage("/prod", Some("prod")), "");
    }
}
