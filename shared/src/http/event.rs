//! From an API Gateway event to a request, and from an answer to a response. Knows no route and no table.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use lambda_http::{Body, Request, RequestExt, Response};
use percent_encoding::percent_decode_str;

use crate::http::problem::Problem;

/// Bodies of our own routes may hold this many bytes.
pub const MAX_BODY_BYTES: usize = 1024 * 1024;

/// A request as the routes see it.
#[derive(Debug)]
pub struct Incoming {
    /// The method.
    pub method: Method,
    /// The path's segments, percent-decoded one by one, without the stage.
    pub segments: Vec<String>,
    /// Query parameters in order, decoded.
    pub query: Vec<(String, String)>,
    /// Headers.
    pub headers: HeaderMap,
    /// The body's bytes, no longer base64.
    pub body: Vec<u8>,
    /// Names this request in logs and in `x-request-id`.
    pub request_id: String,
}

impl Incoming {
    /// Reads an event that `lambda_http` has parsed.
    pub fn read(request: Request) -> Self {
        let context = request.request_context_ref();
        let (stage, request_id) = match context {
            Some(lambda_http::request::RequestContext::ApiGatewayV2(v2)) => {
                (v2.stage.clone(), v2.request_id.clone())
            }
            _ => (None, None),
        };
        let request_id = request_id.unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
        let raw = request.raw_http_path().to_owned();
        let path = without_stage(&raw, stage.as_deref());
        let segments = path.split('/').skip(1).map(decode).collect();
        let query = request
            .query_string_parameters_ref()
            .map(|q| q.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
            .unwrap_or_default();
        let (parts, body) = request.into_parts();
        let body = match body {
            Body::Text(text) => text.into_bytes(),
            Body::Binary(bytes) => bytes,
            _ => Vec::new(),
        };
        Self { method: parts.method, segments, query, headers: parts.headers, body, request_id }
    }
}

/// `rawPath` carries the stage unless it is `$default`.
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

/// A finished answer: the bytes that are sent, and replayed under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The document's bytes.
    pub body: Vec<u8>,
    /// `application/json` or `application/problem+json`.
    pub content_type: String,
    /// `ETag` of the document in the body, quotes included.
    pub etag: Option<String>,
    /// `Location` of what was created.
    pub location: Option<String>,
    /// Whether it was recorded by an earlier request.
    pub replayed: bool,
    /// Further headers of an answer that is never recorded (lower-case name, value).
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

/// Renders either end of a request. Every response carries `x-request-id`.
pub fn respond(result: Result<Answer, Problem>, request_id: &str) -> Response<Body> {
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
    // Our documents are JSON; as text they cross the gateway without base64.
    let body = String::from_utf8(body).map_or_else(|error| Body::Binary(error.into_bytes()), Body::Text);
    let mut response = Response::new(body);
    *response.status_mut() =
        http::StatusCode::from_u16(status).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stage_is_no_part_of_the_path() {
        assert_eq!(without_stage("/prod/orders", Some("prod")), "/orders");
        assert_eq!(without_stage("/orders", Some("$default")), "/orders");
        assert_eq!(without_stage("/production/orders", Some("prod")), "/production/orders");
        assert_eq!(without_stage("/prod", Some("prod")), "");
    }
}
