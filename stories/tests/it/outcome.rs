//! What is told of an outcome that the function cannot know: `unavailable` says that nothing was changed, and only where that
//! is known; a request that was sent and whose answer never came is `outcome_unknown`, and its key does it at most once.

use std::time::{Duration, Instant};

use shared::idempotency::endpoint::Endpoint;
use testing::{Action, Event, Reply, Seed, Shop, Toward, Wire, fresh_key};

use crate::send;

/// The contract's bound on a 503.
const ANSWERED_WITHIN: Duration = Duration::from_secs(7);

struct Stage {
    shop: Shop,
    wire: Wire,
    sandbox: Endpoint,
}

impl Stage {
    /// A sandbox with an open connection through a proxy, and units that can be released.
    async fn set() -> Self {
        let shop = Shop::open(Seed { on_hand: 100, order_qty: 100, ..Seed::default() }).await;
        let wire = Wire::before(&shop.db).await;
        let sandbox = wire.endpoint(&shop.db);
        let first = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 50));
        assert_eq!(send(&sandbox, &first).await.status, 200);
        Self { shop, wire, sandbox }
    }

    fn allocate(&self) -> Event {
        self.shop.allocate(0).key(&fresh_key()).json(&self.shop.one(0, 1))
    }

    fn release(&self) -> Event {
        self.shop.release(0).key(&fresh_key()).json(&self.shop.one(0, 1))
    }

    /// Sends it, with the fault; checks code and time.
    async fn told(&self, event: &Event, toward: Toward, nth: usize, code: &str) -> Reply {
        self.wire.strike(toward, if toward == Toward::Server { 'Q' } else { 'Z' }, nth, Action::Withhold);
        let begun = Instant::now();
        let reply = send(&self.sandbox, event).await;
        assert!(begun.elapsed() < ANSWERED_WITHIN, "{:?}", begun.elapsed());
        assert_eq!((reply.status, reply.error().as_deref()), (503, Some(code)), "{}", reply.json());
        assert!(reply.header("retry-after").is_some());
        reply
    }

    /// The retry of another sandbox, with the key that the server frees within 15 s: whether it is a replay.
    async fn retried(&self, event: &Event) -> bool {
        let (begun, elsewhere) = (Instant::now(), self.shop.db.endpoint());
        let reply = loop {
            let reply = send(&elsewhere, event).await;
            if reply.error().as_deref() != Some("idempotency_key_in_use") {
                break reply;
            }
            assert!(begun.elapsed() < Duration::from_secs(15), "still held");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(reply.status, 200, "{}", reply.json());
        let done = self.shop.db.count("allocation_ledger where abs(qty) = 1").await;
        assert_eq!(done, 1, "done once");
        self.shop.db.assert_consistent().await;
        reply.header("idempotent-replayed") == Some("true")
    }
}

#[tokio::test]
async fn an_answer_that_never_comes_is_an_unknown_outcome_and_the_retry_replays() {
    let (one, two) = tokio::join!(
        async {
            let stage = Stage::set().await;
            let event = stage.allocate();
            stage.told(&event, Toward::Client, 1, "outcome_unknown").await;
            stage.retried(&event).await
        },
        async {
            let stage = Stage::set().await;
            let event = stage.release();
            // The third answer is that of the record and COMMIT.
            stage.told(&event, Toward::Client, 3, "outcome_unknown").await;
            stage.retried(&event).await
        }
    );
    assert_eq!((one, two), (true, true));
}

#[tokio::test]
async fn a_request_that_never_arrives_is_an_unknown_outcome_and_the_retry_runs() {
    let stage = Stage::set().await;
    let event = stage.allocate();
    stage.told(&event, Toward::Server, 1, "outcome_unknown").await;
    assert!(!stage.retried(&event).await);
}

#[tokio::test]
async fn what_stalls_before_the_commit_was_sent_has_changed_nothing_and_says_so() {
    let cases = [(Toward::Server, 1), (Toward::Server, 2), (Toward::Client, 1), (Toward::Client, 2)];
    futures_util::future::join_all(cases.map(|(toward, nth)| async move {
        let stage = Stage::set().await;
        let event = stage.release();
        stage.told(&event, toward, nth, "unavailable").await;
        assert!(!stage.retried(&event).await, "{toward:?} {nth}");
    }))
    .await;
}

#[tokio::test]
async fn a_read_that_stalls_is_unavailable() {
    let stage = Stage::set().await;
    let path = format!("/orders/{}", stage.shop.tenant.orders[0]);
    let event = Event::get(&path).bearer(&stage.shop.tenant.token());
    stage.wire.strike(Toward::Client, 'Z', 1, Action::Withhold);
    let reply = Reply::from(query::handle(&stage.sandbox, event.request()).await);
    assert_eq!((reply.status, reply.error().as_deref()), (503, Some("unavailable")), "{}", reply.json());
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_and_no_connection_to_ask_is_an_unknown_outcome() {
    let stage = Stage::set().await;
    if stage.shop.db.is_pooled() {
        testing::left_out("behind a pooler, which answers for the server");
        return;
    }
    let event = stage.allocate();
    let name = stage.shop.db.name().to_owned();
    // The open session goes on; a new one is refused, as after a failover.
    stage.shop.db.execute(format!("alter database {name} connection limit 0")).await;
    stage.wire.strike(Toward::Client, 'Z', 1, Action::WithholdAndClose);
    let reply = send(&stage.sandbox, &event).await;
    assert_eq!((reply.status, reply.error().as_deref()), (503, Some("outcome_unknown")), "{}", reply.json());
    stage.shop.db.execute(format!("alter database {name} connection limit -1")).await;
    assert!(stage.retried(&event).await);
}

#[tokio::test]
async fn a_request_that_lost_its_own_session_waits_for_its_key_and_is_not_told_that_it_is_in_use() {
    let stage = Stage::set().await;
    let event = stage.allocate();
    // The session waits for the order's row when its connection breaks; it holds the key until the server notices.
    let hold = stage.shop.hold(0).await;
    stage.wire.strike(Toward::Server, 'Q', 1, Action::ForwardAndClose);
    let (reply, ()) = tokio::join!(send(&stage.sandbox, &event), async {
        stage.wire.struck().await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        hold.let_go().await;
    });
    assert_eq!(reply.status, 200, "{}", reply.json());
    assert_eq!(stage.shop.db.count("allocation_ledger where abs(qty) = 1").await, 1);
    stage.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_key_that_stays_held_by_a_lost_session_is_an_unknown_outcome_in_time() {
    let stage = Stage::set().await;
    let event = stage.allocate();
    // Another equal request holds the key all the while: the one that lost its connection cannot tell them apart.
    let hold = stage.shop.hold(0).await;
    let elsewhere = stage.shop.db.endpoint();
    let (first, second) = tokio::join!(send(&elsewhere, &event), async {
        stage.shop.db.until_blocked(1).await;
        stage.wire.strike(Toward::Server, 'Q', 1, Action::WithholdAndClose);
        let begun = Instant::now();
        let reply = send(&stage.sandbox, &event).await;
        (reply, begun.elapsed())
    });
    let (second, took) = second;
    hold.let_go().await;
    // The first gave up its lock after 3 s and freed the key: the second then ran, or met the same lock, or its time was up.
    assert!(took < ANSWERED_WITHIN, "{took:?}");
    assert_eq!(first.status, 503, "{}", first.json());
    assert_ne!(second.error().as_deref(), Some("idempotency_key_in_use"));
    assert_eq!(
        (second.status, second.error().as_deref()),
        (503, Some("outcome_unknown")),
        "{}",
        second.json()
    );
    stage.retried(&event).await;
}
