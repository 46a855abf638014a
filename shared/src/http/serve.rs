//! Runs a function behind API Gateway: makes a request of the event, and the event's answer of the response.
//!
//! Promises: no HTTP event fails the invocation, whatever its query, headers or body hold. An event that is none fails it with
//! an error that says so. `lambda_http`'s own conversion, which this replaces, panics at a query that is not a URI's and at a
//! body that is not base64; both can be sent by whoever invokes the function directly.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use lambda_http::aws_lambda_events::apigw::{ApiGatewayV2httpRequestContext, ApiGatewayV2httpResponse};
use lambda_http::aws_lambda_events::query_map::QueryMap;
use lambda_http::request::RequestContext;
use lambda_http::{Body, Error, LambdaEvent, Request, RequestExt, Response, service_fn};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Serves events until the sandbox ends.
pub async fn run(handle: impl AsyncFn(Request) -> Response<Body>) -> Result<(), Error> {
    let handle = &handle;
    lambda_runtime::run(service_fn(async |event: LambdaEvent<HttpEvent>| {
        Ok::<_, Error>(answer(handle(event.payload.into_request()).await))
    }))
    .await
}

/// An event of an API Gateway HTTP API (payload format 2.0).
#[derive(Debug)]
pub struct HttpEvent(Members);

/// Only the members in use: what else an event holds cannot make it fail.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members {
    raw_path: Option<String>,
    raw_query_string: Option<String>,
    query_string_parameters: Option<HashMap<String, String>>,
    headers: Option<HashMap<String, Value>>,
    body: Option<String>,
    is_base64_encoded: Option<bool>,
    request_context: Context,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Context {
    http: Http,
    stage: Option<String>,
    request_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Http {
    #[serde(deserialize_with = "method")]
    method: Method,
}

fn method<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

impl<'de> Deserialize<'de> for HttpEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const EXPECTED: &str =
            "this function serves events of an API Gateway HTTP API (payload format 2.0), and this is none";
        let members = Members::deserialize(deserializer);
        members.map(Self).map_err(|error| D::Error::custom(format_args!("{EXPECTED}: {error}")))
    }
}

/// An extension of a request whose body was said to be base64 and is not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotBase64;

impl HttpEvent {
    /// The request that handlers take.
    pub fn into_request(self) -> Request {
        let Members { raw_path, raw_query_string, query_string_parameters, headers, body, .. } = self.0;
        let query: QueryMap = match (raw_query_string, query_string_parameters) {
            // As in forms; never fails.
            (Some(raw), _) => raw.parse().unwrap_or_default(),
            (None, Some(parameters)) => parameters.into(),
            (None, None) => QueryMap::default(),
        };
        let mut context = ApiGatewayV2httpRequestContext::default();
        context.stage = self.0.request_context.stage;
        context.request_id = self.0.request_context.request_id;
        let mut request = Request::default()
            .with_raw_http_path(raw_path.unwrap_or_default())
            .with_query_string_parameters(query)
            .with_request_context(RequestContext::ApiGatewayV2(context));
        *request.method_mut() = self.0.request_context.http.method;
        *request.headers_mut() = headers.map(header_map).unwrap_or_default();
        match body {
            Some(text) if self.0.is_base64_encoded == Some(true) => match STANDARD.decode(text) {
                Ok(bytes) => *request.body_mut() = Body::Binary(bytes),
                Err(_) => _ = request.extensions_mut().insert(NotBase64),
            },
            Some(text) => *request.body_mut() = Body::Text(text),
            None => {}
        }
        request
    }
}

/// What HTTP does not allow in a header is as if it had not been sent.
fn header_map(headers: HashMap<String, Value>) -> HeaderMap {
    let pair = |(name, value): (String, Value)| {
        Some((name.parse::<HeaderName>().ok()?, value.as_str()?.parse::<HeaderValue>().ok()?))
    };
    // Appended: a header that was sent as `A` and as `a` was sent twice.
    let mut map = HeaderMap::new();
    headers.into_iter().filter_map(pair).for_each(|(name, value)| _ = map.append(name, value));
    map
}

/// The event's answer in payload format 2.0.
fn answer(response: Response<Body>) -> impl Serialize {
    let (parts, body) = response.into_parts();
    let mut answer = ApiGatewayV2httpResponse::default();
    answer.status_code = parts.status.as_u16().into();
    answer.headers = parts.headers;
    answer.is_base64_encoded = matches!(body, Body::Binary(_));
    answer.body = Some(body);
    answer
}
