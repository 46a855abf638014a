//! The relay calls no address in our own network (SSRF).

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use shared::delivery::address::Guard;
use shared::delivery::attempt::{Attempt, Sender};
use shared::delivery::outbox::{Claimed, DestinationKind};
use testing::{Seed, TestDb};
use uuid::Uuid;

use crate::support::{Partner, drain, relay, rows};

/// DNS rebinding: a public address at the first look-up, loopback from then on.
struct Rebinding(AtomicUsize);

impl Resolve for Rebinding {
    fn resolve(&self, _: Name) -> Resolving {
        let first = self.0.fetch_add(1, Ordering::SeqCst) == 0;
        let address = if first { "8.8.8.8:0" } else { "127.0.0.1:0" };
        let found: Vec<SocketAddr> = vec![address.parse().unwrap()];
        Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
    }
}

pub fn event_to(url: String) -> Claimed {
    Claimed {
        id: 1,
        tenant_id: Uuid::nil(),
        destination_id: Uuid::nil(),
        kind: DestinationKind::Webhook,
        aggregate_id: Uuid::nil(),
        attempts: 1,
        payload: "{}".into(),
        url,
        secrets: vec!["whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz".into()],
        location_id: None,
        token: Uuid::nil(),
        oldest_due_secs: None,
    }
}

fn error(attempt: Attempt) -> String {
    match attempt {
        Attempt::NoAnswer(error) | Attempt::Unsendable(error) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_name_that_turns_to_loopback_after_it_was_checked_is_not_called() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let url = format!("https://rebinding.example:{port}/");
    let guard = Guard::default();
    let names = Arc::new(Rebinding(AtomicUsize::new(0)));
    let resolver = guard.resolver_over(Arc::clone(&names) as Arc<dyn Resolve>);
    let sender = Sender::with_resolver(Duration::from_millis(300), guard, resolver).unwrap();
    // The first call goes to the public address and times out; the second is not made.
    sender.attempt(&event_to(url.clone()), Timestamp::now()).await;
    let second = error(sender.attempt(&event_to(url), Timestamp::now()).await.attempt);
    assert!(second.contains("not public"), "{second}");
    assert_eq!(names.0.load(Ordering::SeqCst), 2);
    let called = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(called.is_err(), "it was called");
}

#[tokio::test]
async fn a_destination_that_came_past_the_console_is_not_called_either() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::content().await;
    let port = partner.url.split(':').nth(2).unwrap().split('/').next().unwrap();
    for url in [
        partner.url.clone(),
        format!("https://127.0.0.1:{port}/"),
        format!("https://[::ffff:127.0.0.1]:{port}/"),
        format!("https://localhost:{port}/"),
        "https://169.254.169.254/latest/meta-data/".into(),
    ] {
        db.destination(&tenant, &url, &["*"]).await;
    }
    db.emit(&tenant, 1).await;
    let mut relay = relay(&db);
    relay.guard = Guard::default();
    assert_eq!(drain(&relay).await.failed, 5);
    for row in rows(&db).await {
        assert!(row.last_error.as_ref().unwrap().contains("the destination's address must be"), "{row:?}");
    }
    assert!(partner.received().is_empty());
}
