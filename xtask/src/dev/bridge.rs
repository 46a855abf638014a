//! A reverse proxy on both sides of `cargo lambda watch` (the watcher), which differs from API Gateway in these ways:
//!
//! - Callers' side: of a header that was sent twice it drops the second, and it answers 500 to a JSON request whose body is
//!   not UTF-8. API Gateway joins such headers and encodes such a body as base64. So headers are joined here, and such a
//!   body gets the content type of bytes. Bytes of an address that are not ASCII are percent-encoded, as API Gateway does.
//! - Callers' side: with about a hundred requests waiting it stops answering for good. So the number is limited here.
//! - It answers some requests before it has read them: functions' responses, and what has no route. Over HTTP/1.1 its server
//!   then drops the unread rest, and a response of more than a few KiB now and then became a 500. Over HTTP/2 it reads the
//!   rest. So responses and large requests go to it over HTTP/2.
//! - It does not set TCP_NODELAY. Over HTTP/2 head and body of its answers are two packets, and the second waits for the
//!   first one's acknowledgement, 40 ms on Linux. Over HTTP/1.1 they are one. So everything else goes over HTTP/1.1.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::serve::ListenerExt;
use axum::{BoxError, Router};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use percent_encoding::{CONTROLS, utf8_percent_encode};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

/// More than the 6 MiB that Lambda accepts.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Callers' requests that the watcher holds at once: safely below the hundred at which it stops answering.
const MAX_IN_WATCHER: usize = 80;
/// Larger ones may be in more packets than the watcher's server reads at once.
const LARGE_BODY_BYTES: usize = 4 << 10;
/// Headers that belong to one connection.
const HOP_BY_HOP: [HeaderName; 3] = [header::CONNECTION, header::TRANSFER_ENCODING, header::UPGRADE];

struct Watcher {
    address: SocketAddr,
    http1: Client<HttpConnector, Body>,
    /// One connection, shared by all that goes over HTTP/2.
    http2: Mutex<Option<SendRequest<Body>>>,
    slots: Semaphore,
}

#[derive(Clone, Copy)]
pub enum Side {
    /// Sends what it would send to API Gateway.
    Callers,
    /// Instances of functions, which call the Runtime API.
    Functions,
}

/// Proxies from `address` to the watcher for as long as this program runs. Returns the port, which the system chooses if
/// `address` has port 0.
pub async fn serve(side: Side, address: SocketAddr, watcher: SocketAddr) -> Result<u16> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let port = listener.local_addr()?.port();
    let router = Router::new().fallback(any(pass_on)).with_state((side, Arc::new(Watcher::at(watcher))));
    let listener = listener.tap_io(|stream| {
        // Without this option answers are only slower.
        let _ = stream.set_nodelay(true);
    });
    tokio::spawn(async move {
        // Retries a failed accept by itself.
        let _ = axum::serve(listener, router).await;
    });
    Ok(port)
}

async fn pass_on(State((side, watcher)): State<(Side, Arc<Watcher>)>, request: Request) -> Response {
    match watcher.ask(side, request).await {
        Ok(answer) => answer,
        Err(error) => {
            (StatusCode::BAD_GATEWAY, format!("the watcher does not answer: {error}")).into_response()
        }
    }
}

/// Each header once, its values joined by commas, invalid UTF-8 replaced: an event is JSON.
fn joined(headers: &HeaderMap) -> Result<HeaderMap, BoxError> {
    let mut joined = HeaderMap::new();
    for name in headers.keys() {
        let values: Vec<_> =
            headers.get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
        joined.insert(name, HeaderValue::from_bytes(values.join(",").as_bytes())?);
    }
    Ok(joined)
}

impl Watcher {
    fn at(address: SocketAddr) -> Self {
        let http1 = Client::builder(TokioExecutor::new()).build_http();
        Self { address, http1, http2: Mutex::new(None), slots: Semaphore::new(MAX_IN_WATCHER) }
    }

    async fn ask(&self, side: Side, request: Request) -> Result<Response, BoxError> {
        let (mut parts, body) = request.into_parts();
        let body: Bytes = to_bytes(body, MAX_BODY_BYTES).await?;
        if matches!(side, Side::Callers) {
            parts.headers = joined(&parts.headers)?;
            if std::str::from_utf8(&body).is_err() {
                parts
                    .headers
                    .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            }
        }
        let is_response = matches!(side, Side::Functions) && parts.method == Method::POST;
        let over_http2 = is_response || body.len() > LARGE_BODY_BYTES;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut asked = Request::new(Body::from(body));
        *asked.uri_mut() =
            format!("http://{}{}", self.address, utf8_percent_encode(path, CONTROLS)).parse()?;
        *asked.method_mut() = parts.method;
        *asked.headers_mut() = parts.headers;
        HOP_BY_HOP.iter().for_each(|name| drop(asked.headers_mut().remove(name)));
        let _slot = match side {
            Side::Callers => Some(self.slots.acquire().await?),
            Side::Functions => None,
        };
        let answer = match over_http2 {
            true => self.connection().await?.send_request(asked).await?,
            false => self.http1.request(asked).await?,
        };
        Ok(answer.map(Body::new))
    }

    async fn connection(&self) -> Result<SendRequest<Body>, BoxError> {
        let mut shared = self.http2.lock().await;
        if let Some(live) = shared.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(live.clone());
        }
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let (fresh, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        tokio::spawn(driver);
        Ok(shared.insert(fresh).clone())
    }
}
