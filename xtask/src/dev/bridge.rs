//! A reverse proxy on both sides of `cargo lambda watch` (the watcher), which differs from API Gateway in three ways:
//!
//! - Callers' side: of a header that was sent twice it drops the second, and it answers 500 to a JSON request whose body is
//!   not UTF-8. API Gateway joins such headers and encodes such a body as base64. So headers are joined here, and such a
//!   body gets the content type of bytes.
//! - Callers' side: with about a hundred requests waiting it stops answering for good. So the number is limited here.
//! - Functions' side: it acknowledges a function's response before it has read it. Over HTTP/1.1 its server then drops the
//!   unread rest, and a response of more than a few KiB now and then became a 500. Over HTTP/2 it reads the rest. So the
//!   proxy speaks HTTP/1.1 to the functions and HTTP/2 to the watcher.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{BoxError, Router};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

/// More than the 6 MiB that Lambda accepts.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Callers' requests that the watcher holds at once: safely below the hundred at which it stops answering.
const MAX_IN_WATCHER: usize = 80;
/// Headers that belong to one connection, which HTTP/2 does not allow.
const HOP_BY_HOP: [HeaderName; 3] = [header::CONNECTION, header::HOST, header::TRANSFER_ENCODING];

struct Watcher {
    address: SocketAddr,
    /// Shared by all requests.
    connection: Mutex<Option<SendRequest<Body>>>,
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
    let slots = Semaphore::new(MAX_IN_WATCHER);
    let state = Arc::new(Watcher { address: watcher, connection: Mutex::new(None), slots });
    let router = Router::new().fallback(any(pass_on)).with_state((side, state));
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
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut asked = Request::new(Body::from(body));
        *asked.uri_mut() = format!("http://{}{path}", self.address).parse()?;
        *asked.method_mut() = parts.method;
        *asked.headers_mut() = parts.headers;
        HOP_BY_HOP.iter().for_each(|name| drop(asked.headers_mut().remove(name)));
        let _slot = match side {
            Side::Callers => Some(self.slots.acquire().await?),
            Side::Functions => None,
        };
        let answer = self.connection().await?.send_request(asked).await?;
        Ok(answer.map(Body::new))
    }

    async fn connection(&self) -> Result<SendRequest<Body>, BoxError> {
        let mut shared = self.connection.lock().await;
        if let Some(live) = shared.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(live.clone());
        }
        let io = TokioIo::new(TcpStream::connect(self.address).await?);
        let (fresh, driver) = http2::handshake(TokioExecutor::new(), io).await?;
        tokio::spawn(driver);
        Ok(shared.insert(fresh).clone())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use hyper::server::conn::http2 as server;
    use hyper::service::service_fn;
    use tokio::sync::mpsc;

    use super::*;
    use xtask::ports::local;

    /// Headers and body.
    type Arrived = (HeaderMap, Vec<u8>);

    /// Like the watcher: answers at once, and reads the body later in another task.
    async fn early_answering_server() -> (SocketAddr, mpsc::UnboundedReceiver<Arrived>) {
        let (read, arrived) = mpsc::unbounded_channel();
        let listener = TcpListener::bind(local(0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let read = read.clone();
                let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let read = read.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        let (parts, body) = request.into_parts();
                        let body = to_bytes(Body::new(body), MAX_BODY_BYTES).await;
                        let _ = read.send((parts.headers, body.map_or(Vec::new(), Vec::from)));
                    });
                    std::future::ready(Ok::<_, std::convert::Infallible>(Response::new(Body::from("thanks"))))
                });
                let connection = server::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        (address, arrived)
    }

    #[tokio::test]
    async fn a_response_arrives_whole_though_the_watcher_acknowledges_before_it_has_read_it() {
        let (watcher, mut arrived) = early_answering_server().await;
        let port = serve(Side::Functions, local(0), watcher).await.unwrap();
        let client = reqwest::Client::new();
        for size in [0, 1, 30_000, 300_000, 6_000_000] {
            let url =
                format!("http://127.0.0.1:{port}/.rt/query/2018-06-01/runtime/invocation/{size}/response");
            let thanks = client.post(url).body(vec![b'x'; size]).send().await.unwrap();
            assert_eq!(thanks.text().await.unwrap(), "thanks");
            assert_eq!(arrived.recv().await.unwrap().1.len(), size);
        }
    }

    #[tokio::test]
    async fn a_header_sent_twice_and_a_body_that_is_not_utf8_arrive_as_from_api_gateway() {
        let (watcher, mut arrived) = early_answering_server().await;
        let port = serve(Side::Callers, local(0), watcher).await.unwrap();
        for (body, content_type) in
            [(&b"{\"a\":1}"[..], "application/json"), (b"\xff", "application/octet-stream")]
        {
            let request = reqwest::Client::new()
                .post(format!("http://127.0.0.1:{port}/orders"))
                .header("content-type", "application/json")
                .header("idempotency-key", "a")
                .header("idempotency-key", HeaderValue::from_bytes(b"\xa0").unwrap());
            request.body(body.to_vec()).send().await.unwrap();
            let (headers, got) = arrived.recv().await.unwrap();
            assert_eq!(got, body);
            assert_eq!(headers["content-type"], content_type);
            assert_eq!(headers["idempotency-key"].as_bytes(), "a,\u{fffd}".as_bytes());
            assert_eq!(headers.get_all("idempotency-key").iter().count(), 1);
        }
    }

    #[tokio::test]
    async fn callers_beyond_the_limit_wait_in_the_proxy() {
        static INSIDE: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let listener = TcpListener::bind(local(0)).await.unwrap();
        let watcher = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service_fn(async |_| {
                    MOST.fetch_max(INSIDE.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    INSIDE.fetch_sub(1, Ordering::SeqCst);
                    Ok::<_, std::convert::Infallible>(Response::new(Body::empty()))
                });
                tokio::spawn(
                    server::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        let port = serve(Side::Callers, local(0), watcher).await.unwrap();
        let client = reqwest::Client::new();
        let callers =
            (0..3 * MAX_IN_WATCHER).map(|_| client.get(format!("http://127.0.0.1:{port}/skus")).send());
        let answers = callers.map(tokio::spawn).collect::<Vec<_>>();
        for answer in answers {
            assert_eq!(answer.await.unwrap().unwrap().status(), 200);
        }
        let most = MOST.load(Ordering::SeqCst);
        assert!(most > MAX_IN_WATCHER / 4 && most <= MAX_IN_WATCHER, "{most}");
    }

    #[tokio::test]
    async fn a_watcher_that_is_gone_is_a_502() {
        let gone = local(xtask::ports::any_free().unwrap());
        let port = serve(Side::Callers, local(0), gone).await.unwrap();
        let answer = reqwest::get(format!("http://127.0.0.1:{port}/x")).await.unwrap();
        assert_eq!(answer.status(), 502);
    }
}
