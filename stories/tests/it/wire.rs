//! A fault at each message of a request: allocate's single message, and release's three. Whatever the fault, the operation
//! takes effect once, and the retry agrees with the ledger.

use std::time::{Duration, Instant};

use shared::idempotency::endpoint::Endpoint;
use testing::{Action, Counts, Event, Reply, Seed, Shop, Toward, Wire, fresh_key};

use crate::send;

/// A database, a proxy in front of it, and a sandbox that is connected through the proxy.
struct Stage {
    shop: Shop,
    wire: Wire,
    sandbox: Endpoint,
}

impl Stage {
    async fn set() -> Self {
        let shop = Shop::open(Seed { on_hand: 100, order_qty: 100, ..Seed::default() }).await;
        let wire = Wire::before(&shop.db).await;
        let sandbox = wire.endpoint(&shop.db);
        // Opens the connection, and allocates units that can be released.
        assert_eq!(
            send(&sandbox, &shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 50))).await.status,
            200
        );
        wire.take_counts();
        Self { shop, wire, sandbox }
    }

    fn event(&self, verb: Verb) -> Event {
        let event = match verb {
            Verb::Allocate => self.shop.allocate(0),
            Verb::Release => self.shop.release(0),
        };
        event.key(&fresh_key()).json(&self.shop.one(0, 1))
    }

    /// Ledger lines of single units, which only the requests under test write.
    async fn done(&self) -> i64 {
        self.shop.db.count("allocation_ledger where abs(qty) = 1").await
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Allocate,
    Release,
}

impl Verb {
    /// Messages of one warm request.
    fn messages(self) -> usize {
        match self {
            Self::Allocate => 1,
            Self::Release => 3,
        }
    }
}

/// Each verb with each of its messages' numbers.
fn every_message() -> impl Iterator<Item = (Verb, usize)> {
    [Verb::Allocate, Verb::Release]
        .into_iter()
        .flat_map(|verb| (1..=verb.messages()).map(move |nth| (verb, nth)))
}

fn succeeded(reply: &Reply) -> bool {
    reply.status == 200
}

#[tokio::test]
async fn a_warm_allocate_is_one_round_trip_and_a_warm_release_three() {
    let stage = Stage::set().await;
    for verb in [Verb::Allocate, Verb::Release] {
        let event = stage.event(verb);
        assert!(succeeded(&send(&stage.sandbox, &event).await));
        let trips = verb.messages();
        assert_eq!(stage.wire.take_counts(), Counts { asked: trips, answered: trips }, "{verb:?}");
        assert_eq!(send(&stage.sandbox, &event).await.header("idempotent-replayed"), Some("true"));
        // A replay by the multi-statement variant ends its transaction with a message of its own.
        let trips = if verb == Verb::Allocate { 1 } else { 2 };
        assert_eq!(stage.wire.take_counts().asked, trips, "replay of {verb:?}");
    }
}

#[tokio::test]
async fn a_message_that_never_arrived_is_sent_again_on_a_new_connection_within_the_request() {
    for (verb, nth) in every_message() {
        let stage = Stage::set().await;
        let event = stage.event(verb);
        stage.wire.strike(Toward::Server, 'Q', nth, Action::WithholdAndClose);
        let reply = send(&stage.sandbox, &event).await;
        assert!(stage.wire.has_struck(), "{verb:?} {nth}");
        assert!(succeeded(&reply), "{verb:?} {nth}: {}", reply.json());
        assert_eq!(stage.done().await, 1, "{verb:?} {nth}");
        let retry = send(&stage.sandbox, &event).await;
        assert_eq!((&retry.body, stage.done().await), (&reply.body, 1), "{verb:?} {nth}");
        stage.shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn a_message_that_arrived_before_the_cut_is_done_once_whether_it_committed_or_not() {
    for (verb, nth) in every_message() {
        let stage = Stage::set().await;
        let event = stage.event(verb);
        stage.wire.strike(Toward::Server, 'Q', nth, Action::ForwardAndClose);
        let reply = send(&stage.sandbox, &event).await;
        assert!(succeeded(&reply), "{verb:?} {nth}: {}", reply.json());
        assert_eq!(stage.done().await, 1, "{verb:?} {nth}");
        stage.shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn an_answer_that_was_lost_after_the_commit_is_replayed() {
    for verb in [Verb::Allocate, Verb::Release] {
        let stage = Stage::set().await;
        let event = stage.event(verb);
        stage.wire.strike(Toward::Client, 'Z', verb.messages(), Action::WithholdAndClose);
        let reply = send(&stage.sandbox, &event).await;
        assert!(stage.wire.has_struck());
        assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, Some("true")), "{verb:?}");
        assert_eq!(stage.done().await, 1, "{verb:?}");
        let retry = send(&stage.sandbox, &event).await;
        assert_eq!((retry.body, stage.done().await), (reply.body, 1), "{verb:?}");
        stage.shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn an_answer_lost_before_the_last_message_rolls_back_and_the_work_is_done_once() {
    for nth in 1..Verb::Release.messages() {
        let stage = Stage::set().await;
        let event = stage.event(Verb::Release);
        stage.wire.strike(Toward::Client, 'Z', nth, Action::WithholdAndClose);
        let reply = send(&stage.sandbox, &event).await;
        assert!(succeeded(&reply), "{nth}: {}", reply.json());
        assert_eq!(stage.done().await, 1, "{nth}");
        stage.shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn a_client_that_falls_silent_in_mid_request_frees_its_locks_within_15_s() {
    // Before, a client that stalls in mid-message has no time limit of its own.
    if !Stage::set().await.shop.db.is_at_least(17).await {
        return;
    }
    // At the same time: each case waits for the server's timeouts.
    let cases = [(Verb::Allocate, 1), (Verb::Release, 1), (Verb::Release, 2), (Verb::Release, 3)];
    futures_util::future::join_all(cases.map(|(verb, nth)| async move {
        let stage = Stage::set().await;
        let event = stage.event(verb);
        stage.wire.strike(Toward::Server, 'Q', nth, Action::Withhold);
        let stalled = send(&stage.sandbox, &event);
        let begun = Instant::now();
        let elsewhere = stage.shop.db.endpoint();
        let retry = async {
            stage.wire.struck().await;
            loop {
                let reply = send(&elsewhere, &event).await;
                if reply.error().as_deref() != Some("idempotency_key_in_use") {
                    return reply;
                }
                assert!(begun.elapsed() < Duration::from_secs(15), "{verb:?} {nth}: still held");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        let (stalled, retry) = tokio::join!(stalled, retry);
        assert!(succeeded(&retry), "{verb:?} {nth}: {}", retry.json());
        assert!(begun.elapsed() < Duration::from_secs(15), "{verb:?} {nth}");
        // The stalled request does not know its outcome, or has succeeded on its one reconnect.
        assert!(matches!(stalled.status, 200 | 503), "{verb:?} {nth}: {}", stalled.json());
        assert_eq!(stage.done().await, 1, "{verb:?} {nth}");
        stage.shop.db.assert_consistent().await;
    }))
    .await;
}
