#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::Uri;
use hyper::body::Incoming;
use hyper::server::conn;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::*;
use xtask::ports::local;

/// What the watcher got.
struct Arrived {
    uri: Uri,
    headers: HeaderMap,
    body: Vec<u8>,
}

/// Stands in for the watcher.
async fn watcher<F>(answer: impl Fn(Request) -> F + Clone + Send + Sync + 'static) -> SocketAddr
where
    F: Future<Output = Response> + Send + 'static,
{
    let listener = TcpListener::bind(local(0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            let service = service_fn(move |request: hyper::Request<Incoming>| {
                let answered = answer(request.map(Body::new));
                async move { Ok::<_, Infallible>(answered.await) }
            });
            tokio::spawn(async move {
                stream.set_nodelay(true).unwrap();
                let mut first = [0; 3];
                let _ = stream.peek(&mut first).await;
                let io = TokioIo::new(stream);
                // The preface of HTTP/2.
                if &first == b"PRI" {
                    let _ =
                        conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await;
                } else {
                    let _ = conn::http1::Builder::new().serve_connection(io, service).await;
                }
            });
        }
    });
    address
}

/// A watcher that answers at once, and reads the body later in another task.
async fn early_answering() -> (SocketAddr, mpsc::UnboundedReceiver<Arrived>) {
    let (read, arrived) = mpsc::unbounded_channel();
    let address = watcher(move |request| {
        let read = read.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, MAX_BODY_BYTES).await.map_or(Vec::new(), Vec::from);
            let _ = read.send(Arrived { uri: parts.uri, headers: parts.headers, body });
        });
        std::future::ready(Response::new(Body::from("thanks")))
    })
    .await;
    (address, arrived)
}

#[tokio::test]
async fn a_response_arrives_whole_though_the_watcher_acknowledges_before_it_has_read_it() {
    let (watcher, mut arrived) = early_answering().await;
    let port = serve(Side::Functions, local(0), watcher).await.unwrap();
    let client = reqwest::Client::new();
    for size in [0, 1, 30_000, 300_000, 6_000_000] {
        let url = format!("http://127.0.0.1:{port}/.rt/query/2018-06-01/runtime/invocation/{size}/response");
        let thanks = client.post(url).body(vec![b'x'; size]).send().await.unwrap();
        assert_eq!(thanks.text().await.unwrap(), "thanks");
        assert_eq!(arrived.recv().await.unwrap().body.len(), size);
    }
}

#[tokio::test]
async fn a_header_sent_twice_and_a_body_that_is_not_utf8_arrive_as_from_api_gateway() {
    let (watcher, mut arrived) = early_answering().await;
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
        let got = arrived.recv().await.unwrap();
        assert_eq!(got.body, body);
        assert_eq!(got.headers["content-type"], content_type);
        assert_eq!(got.headers["host"], format!("127.0.0.1:{port}"));
        assert_eq!(got.headers["idempotency-key"].as_bytes(), "a,\u{fffd}".as_bytes());
        assert_eq!(got.headers.get_all("idempotency-key").iter().count(), 1);
    }
}

#[tokio::test]
async fn an_address_that_is_not_ascii_arrives_percent_encoded() {
    let (watcher, mut arrived) = early_answering().await;
    let port = serve(Side::Callers, local(0), watcher).await.unwrap();
    for (sent, expected) in
        [("/sküs?q=é&r=%C3%A9", "/sk%C3%BCs?q=%C3%A9&r=%C3%A9"), ("/a%2Fb?c=+", "/a%2Fb?c=+")]
    {
        // No client library sends such bytes as they are; curl does.
        let mut curl = TcpStream::connect(local(port)).await.unwrap();
        let request = format!("GET {sent} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        curl.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        curl.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(arrived.recv().await.unwrap().uri, *expected);
    }
}

#[tokio::test]
async fn callers_beyond_the_limit_wait_in_the_proxy() {
    static INSIDE: AtomicUsize = AtomicUsize::new(0);
    static MOST: AtomicUsize = AtomicUsize::new(0);
    let watcher = watcher(async |_| {
        MOST.fetch_max(INSIDE.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        INSIDE.fetch_sub(1, Ordering::SeqCst);
        Response::new(Body::empty())
    })
    .await;
    let port = serve(Side::Callers, local(0), watcher).await.unwrap();
    let client = reqwest::Client::new();
    let callers = (0..3 * MAX_IN_WATCHER).map(|_| client.get(format!("http://127.0.0.1:{port}/skus")).send());
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

const NEXT: &str = ".rt/query/2018-06-01/runtime/invocation/next";
const RESPONSE: &str = ".rt/query/2018-06-01/runtime/invocation/1/response";

/// The median time of a request on a connection that is in use already, where a packet that waits for the acknowledgement of
/// the one before takes 40 ms.
async fn median(method: Method, url: String) -> Duration {
    const REQUESTS: usize = 60;
    let client = reqwest::Client::new();
    let mut took = Vec::new();
    for _ in 0..REQUESTS {
        let begun = Instant::now();
        client.request(method.clone(), &url).body("asked").send().await.unwrap().bytes().await.unwrap();
        took.push(begun.elapsed());
    }
    took.sort();
    took[REQUESTS / 2]
}

#[tokio::test]
async fn no_packet_waits_for_the_acknowledgement_of_another() {
    let watcher = watcher(async |request| {
        to_bytes(request.into_body(), MAX_BODY_BYTES).await.unwrap();
        let parts = futures_util::stream::unfold(0, async |part| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            (part < 3).then_some((Ok::<_, Infallible>("part"), part + 1))
        });
        Response::new(Body::from_stream(parts))
    })
    .await;
    for (side, method, path) in [
        (Side::Callers, Method::GET, "health"),
        (Side::Functions, Method::GET, NEXT),
        (Side::Functions, Method::POST, RESPONSE),
    ] {
        let port = serve(side, local(0), watcher).await.unwrap();
        // A machine that is busy is slow now and then; packets that wait do so each time.
        let mut rounds = 0;
        while median(method.clone(), format!("http://127.0.0.1:{port}/{path}")).await
            >= Duration::from_millis(30)
        {
            rounds += 1;
            assert!(rounds < 10, "{path} takes 30 ms or more each time");
        }
    }
}

#[tokio::test]
async fn only_what_needs_http_2_goes_over_it() {
    let watcher =
        watcher(async |request| Response::new(Body::from(format!("{:?}", request.version())))).await;
    for (side, method, path, size, version) in [
        (Side::Callers, Method::POST, "orders", 1_000, "HTTP/1.1"),
        (Side::Callers, Method::POST, "orders", 1_000_000, "HTTP/2.0"),
        (Side::Functions, Method::GET, NEXT, 0, "HTTP/1.1"),
        (Side::Functions, Method::POST, RESPONSE, 0, "HTTP/2.0"),
    ] {
        let port = serve(side, local(0), watcher).await.unwrap();
        let request = reqwest::Client::new().request(method, format!("http://127.0.0.1:{port}/{path}"));
        let answer = request.body(vec![b'x'; size]).send().await.unwrap();
        assert_eq!(answer.text().await.unwrap(), version, "{path}, {size} bytes");
    }
}
