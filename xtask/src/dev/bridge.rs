//! Stands between the functions and `cargo lambda watch`, so that no answer is lost on the way.
//!
//! The watcher hands an instance's answer on as a stream and says thanks at once; over HTTP/1.1 its server then gives up
//! what it has not read yet, so that now and then an answer of more than a few KiB became a 500, or none at all. Over
//! HTTP/2 it reads the rest. Hence this: HTTP/1.1 to the instances, HTTP/2 to the watcher, nothing changed in between.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{BoxError, Router};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;

/// Beyond what Lambda takes from a function.
const MAX_BODY_BYTES: usize = 16 << 20;
/// Of one connection; HTTP/2 has none of its own.
const OF_A_CONNECTION: [HeaderName; 3] = [header::CONNECTION, header::HOST, header::TRANSFER_ENCODING];

/// The watcher, and the connection to it that all share.
struct Watcher {
    address: SocketAddr,
    connection: Mutex<Option<SendRequest<Body>>>,
}

/// Serves the Runtime API of the watcher at `watcher` on the returned port of loopback, for as long as
/// this program runs.
///
/// # Errors
/// When the system has no port left.
pub async fn serve(watcher: SocketAddr) -> Result<u16> {
    let listener = TcpListener::bind(super::ports::local(0)).await.context("no port is left")?;
    let port = listener.local_addr()?.port();
    let state = Arc::new(Watcher { address: watcher, connection: Mutex::new(None) });
    let router = Router::new().fallback(any(pass_on)).with_state(state);
    tokio::spawn(async move {
        // An accept that fails is tried again inside.
        let _ = axum::serve(listener, router).await;
    });
    Ok(port)
}

async fn pass_on(State(watcher): State<Arc<Watcher>>, request: Request) -> Response {
    match watcher.ask(request).await {
        Ok(answer) => answer,
        Err(error) => {
            (StatusCode::BAD_GATEWAY, format!("the watcher does not answer: {error}")).into_response()
        }
    }
}

impl Watcher {
    async fn ask(&self, request: Request) -> Result<Response, BoxError> {
        let (parts, body) = request.into_parts();
        let body: Bytes = to_bytes(body, MAX_BODY_BYTES).await?;
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut asked = Request::new(Body::from(body));
        *asked.uri_mut() = format!("http://{}{path}", self.address).parse()?;
        *asked.method_mut() = parts.method;
        *asked.headers_mut() = parts.headers;
        OF_A_CONNECTION.iter().for_each(|name| drop(asked.headers_mut().remove(name)));
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
    use std::time::Duration;

    use hyper::server::conn::http2 as server;
    use hyper::service::service_fn;
    use tokio::sync::mpsc;

    use super::*;

    /// Like the watcher: says thanks at once, and reads the answer in another task, later.
    async fn hasty(read: mpsc::UnboundedSender<(String, usize)>) -> SocketAddr {
        let listener = TcpListener::bind(crate::dev::ports::local(0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let read = read.clone();
                let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                    let read = read.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        let path = request.uri().path().to_owned();
                        let body = to_bytes(Body::new(request.into_body()), MAX_BODY_BYTES).await;
                        let _ = read.send((path, body.map_or(0, |body| body.len())));
                    });
                    std::future::ready(Ok::<_, std::convert::Infallible>(Response::new(Body::from("thanks"))))
                });
                let connection = server::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        address
    }

    #[tokio::test]
    async fn an_answer_arrives_whole_though_the_watcher_says_thanks_before_it_has_read_it() {
        let (read, mut arrived) = mpsc::unbounded_channel();
        let port = serve(hasty(read).await).await.unwrap();
        let client = reqwest::Client::new();
        for size in [0, 1, 30_000, 300_000, 6_000_000] {
            let path = format!("/.rt/query/2018-06-01/runtime/invocation/{size}/response");
            let url = format!("http://127.0.0.1:{port}{path}");
            let thanks = client.post(url).body(vec![b'x'; size]).send().await.unwrap();
            assert_eq!(thanks.text().await.unwrap(), "thanks");
            assert_eq!(arrived.recv().await, Some((path, size)));
        }
    }

    #[tokio::test]
    async fn a_watcher_that_is_gone_is_told() {
        let gone = crate::dev::ports::local(crate::dev::ports::any_free().unwrap());
        let port = serve(gone).await.unwrap();
        let answer = reqwest::get(format!("http://127.0.0.1:{port}/x")).await.unwrap();
        assert_eq!(answer.status(), 502);
    }
}
