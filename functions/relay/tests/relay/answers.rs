//! Answers that break off, never end or have a long head, as the bytes of a raw TCP partner.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use shared::delivery::address::Guard;
use shared::delivery::attempt::{Attempt, Sender};
use shared::delivery::shopify_push::push;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::guard::event_to;

/// What the partner does once it has sent its bytes.
#[derive(Clone, Copy)]
enum Then {
    Close,
    /// TCP RST.
    Reset,
    /// Neither sends nor closes.
    Stall,
    /// Sends on, without end.
    Flood,
    /// Awaits the next request.
    Listen,
}

struct RawPartner {
    url: String,
    connections: Arc<AtomicUsize>,
    /// Bytes that it could send.
    sent: Arc<AtomicUsize>,
}

impl RawPartner {
    /// Answers every request with these bytes, the head a moment before the body.
    async fn start(answer: String, then: Then) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let partner = Self { url, connections: Arc::default(), sent: Arc::default() };
        let (connections, sent) = (Arc::clone(&partner.connections), Arc::clone(&partner.sent));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, answer.clone(), then, Arc::clone(&sent)));
            }
        });
        partner
    }

    async fn attempt(&self, sender: &Sender) -> Attempt {
        sender.attempt(&event_to(self.url.clone()), Timestamp::now()).await.attempt
    }
}

async fn serve(mut stream: TcpStream, answer: String, then: Then, sent: Arc<AtomicUsize>) {
    loop {
        let (head, body) = answer.split_at(answer.find("\r\n\r\n").unwrap() + 4);
        if !got_request(&mut stream).await || stream.write_all(head.as_bytes()).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let _ = stream.write_all(body.as_bytes()).await;
        match then {
            Then::Listen => {}
            Then::Close => return,
            Then::Reset => return stream.set_zero_linger().unwrap(),
            Then::Stall => return std::future::pending().await,
            Then::Flood => {
                while let Ok(written) = stream.write(&[b'x'; 4096]).await {
                    sent.fetch_add(written, Ordering::SeqCst);
                }
                return;
            }
        }
    }
}

/// Reads one request, whose body is `{}` or a GraphQL document: both end with a brace.
async fn got_request(stream: &mut TcpStream) -> bool {
    let mut request = Vec::new();
    while !(request.ends_with(b"}") && request.windows(4).any(|end| end == b"\r\n\r\n")) {
        if !matches!(stream.read_buf(&mut request).await, Ok(n) if n > 0) {
            return false;
        }
    }
    true
}

fn sender() -> Sender {
    // Long enough for a busy machine: no case but those that never end waits for it.
    Sender::new(Duration::from_secs(5), Guard::allowing("127.0.0.1").unwrap()).unwrap()
}

/// Answers of this status that never arrive whole.
fn broken(status: &str) -> Vec<(String, Then)> {
    let head = |headers: &str| format!("HTTP/1.1 {status}\r\n{headers}\r\n\r\n");
    let (short, chunked) = (head("content-length: 10") + "{\"ok\"", head("transfer-encoding: chunked"));
    vec![
        (short.clone(), Then::Close),
        (short.clone(), Then::Reset),
        (short, Then::Stall),
        (head("content-length: 10"), Then::Close),
        (format!("{chunked}5\r\n{{\"ok"), Then::Close),
        (format!("{chunked}5\r\n{{\"ok\"\r\n"), Then::Reset),
        (format!("{chunked}not a size\r\n"), Then::Stall),
    ]
}

#[tokio::test]
async fn a_2xx_is_delivered_whatever_becomes_of_its_body() {
    let cases = ["200 OK", "202 Accepted", "299 Whatever"].into_iter().flat_map(broken);
    // At the same time: those that never end take a second.
    join_all(cases.map(|(answer, then)| async move {
        let partner = RawPartner::start(answer.clone(), then).await;
        assert_eq!(partner.attempt(&sender()).await, Attempt::Delivered, "{answer}");
    }))
    .await;
}

#[tokio::test]
async fn any_other_answer_that_breaks_off_is_a_failure_that_names_its_status() {
    join_all(broken("503 Service Unavailable").into_iter().map(|(answer, then)| async move {
        let partner = RawPartner::start(answer.clone(), then).await;
        let attempt = partner.attempt(&sender()).await;
        assert!(
            matches!(&attempt, Attempt::NoAnswer(error) if error.starts_with("HTTP 503 Service Unavailable, then ")),
            "{answer}: {attempt:?}"
        );
    }))
    .await;
}

#[tokio::test]
async fn a_push_whose_answer_breaks_off_is_a_failure_since_the_body_tells_its_outcome() {
    join_all(broken("200 OK").into_iter().map(|(answer, then)| async move {
        let partner = RawPartner::start(answer.clone(), then).await;
        let facts = r#"{"code": "A", "ats": 1, "inventoryItemId": "i", "requeues": 0, "silent": false}"#;
        let mut event = event_to(partner.url.clone());
        event.location_id = Some("l".into());
        let attempt = push(&sender(), &event, Some(facts), Timestamp::now()).await.attempt;
        assert!(matches!(&attempt, Attempt::NoAnswer(_)), "{answer}: {attempt:?}");
    }))
    .await;
}

#[tokio::test]
async fn hundreds_of_headers_make_no_difference() {
    let headers: String = (0..900).map(|n| format!("x-trace-{n}: some value\r\n")).collect();
    for (status, delivered) in [("200 OK", true), ("500 Internal Server Error", false)] {
        let answer = format!("HTTP/1.1 {status}\r\n{headers}content-length: 4\r\n\r\nwell");
        let attempt = RawPartner::start(answer, Then::Listen).await.attempt(&sender()).await;
        match attempt {
            Attempt::Delivered => assert!(delivered),
            Attempt::Failed { error, .. } => {
                assert_eq!((delivered, &*error), (false, "HTTP 500 Internal Server Error: well"))
            }
            other => panic!("{status}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn no_more_than_64_kib_of_a_2xx_without_end_is_read() {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", 1_u64 << 40);
    let partner = RawPartner::start(head, Then::Flood).await;
    assert_eq!(partner.attempt(&sender()).await, Attempt::Delivered);
    // The sockets of both sides have buffered more than was read.
    let sent_mib = partner.sent.load(Ordering::SeqCst) >> 20;
    assert!(sent_mib < 32, "the partner could send {sent_mib} MiB");
}

#[tokio::test]
async fn an_answer_that_arrives_whole_leaves_the_connection_to_the_next_event() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nfine!";
    let (partner, sender) = (RawPartner::start(answer.into(), Then::Listen).await, sender());
    for _ in 0..3 {
        assert_eq!(partner.attempt(&sender).await, Attempt::Delivered);
    }
    assert_eq!(partner.connections.load(Ordering::SeqCst), 1);
}
