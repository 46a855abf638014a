//! Stands on both sides of `cargo lambda watch`: before it, to hand requests in as API Gateway would; behind it, so that
//! no answer of a function is lost on the way.
//!
//! API Gateway joins a header that was sent twice, and encodes a body that is no text. The watcher drops the second header
//! and answers 500 to such a body, unless it is not called JSON: so headers are joined and that body is called bytes. It
//! also stops for good where too many wait in it.
//!
//! The watcher hands an instance's answer on as a stream and says thanks at once; over HTTP/1.1 its server then gives up
//! what it has not read yet, so that now and then an answer of more than a few KiB became a 500, or none at all. Over
//! HTTP/2 it reads the rest. Hence this: HTTP/1.1 to the instances, HTTP/2 to the watcher, nothing changed in between.

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

/// Beyond what Lambda takes from a function.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Requests of callers that are handed in at once; the others wait here. With a hundred waiting in it the watcher stops
/// answering, for good.
const AT_ONCE: usize = 80;
/// Of one connection; HTTP/2 has none of its own.
const OF_A_CONNECTION: [HeaderName; 3] = [header::CONNECTION, header::HOST, header::TRANSFER_ENCODING];

/// The watcher, and the connection to it that all share.
struct Watcher {
    address: SocketAddr,
    connection: Mutex<Option<SendRequest<Body>>>,
    room: Semaphore,
}

/// Who asks.
#[derive(Clone, Copy)]
pub enum Side {
    /// Callers, as they would ask API Gateway.
    Callers,
    /// Instances of functions, the Runtime API.
    Functions,
}

/// Listens at `address` for one side and passes on to the watcher at `watcher`, for as long as this program runs.
/// Returns the port, which the system chooses where `address` has none.
///
/// # Errors
/// When the port is taken.
pub async fn serve(side: Side, address: SocketAddr, watcher: SocketAddr) -> Result<u16> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    let port = listener.local_addr()?.port();
    let state =
        Arc::new(Watcher { address: watcher, connection: Mutex::new(None), room: Semaphore::new(AT_ONCE) });
    let router = Router::new().fallback(any(pass_on)).with_state((side, state));
    tokio::spawn(async move {
        // An accept that fails is tried again inside.
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

/// Each header once, its values joined by commas; as text, since an event is JSON.
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
        OF_A_CONNECTION.iter().for_each(|name| drop(asked.headers_mut().remove(name)));
        let _room = match side {
            Side::Callers => Some(self.room.acquire().await?),
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

    /// What arrived: headers and body.
    type Arrived = (HeaderMap, Vec<u8>);

    /// Like the watcher: says thanks at once, and reads the body in another task, later.
    async fn hasty() -> (SocketAddr, mpsc::UnboundedReceiver<Arrived>) {
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
    async fn an_answer_arrives_whole_though_the_watcher_says_thanks_before_it_has_read_it() {
        let (watcher, mut arrived) = hasty().await;
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
    async fn a_header_sent_twice_and_a_body_that_is_no_text_come_in_as_from_api_gateway() {
        let (watcher, mut arrived) = hasty().await;
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
    async fn a_crowd_of_callers_waits_outside() {
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
        let crowd = (0..3 * AT_ONCE).map(|_| client.get(format!("http://127.0.0.1:{port}/skus")).send());
        let answers = crowd.map(tokio::spawn).collect::<Vec<_>>();
        for answer in answers {
            assert_eq!(answer.await.unwrap().unwrap().status(), 200);
        }
        let most = MOST.load(Ordering::SeqCst);
        assert!(most > AT_ONCE / 4 && most <= AT_ONCE, "{most}");
    }

    #[tokio::test]
    async fn a_watcher_that_is_gone_is_told() {
        let gone = local(xtask::ports::any_free().unwrap());
        let port = serve(Side::Callers, local(0), gone).await.unwrap();
        let answer = reqwest::get(format!("http://127.0.0.1:{port}/x")).await.unwrap();
        assert_eq!(answer.status(), 502);
    }
}
