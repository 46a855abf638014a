//! The real binary is frozen during a request, past every time-out, while another sandbox gets the same request, then thawed:
//! one execution, equal answers. The call is one message, so the server commits it or gives up without the client.

use std::time::{Duration, Instant};

use testing::emulator::{Function, Sandbox, event::HttpAnswer};
use testing::{Event, Reply, Seed, Shop, fresh_key};

use crate::send;

/// Longer than the time-outs of statement, lock, request and transaction, which run on while the process is frozen.
const PAST_EVERY_TIMEOUT: Duration = Duration::from_secs(14);
/// Time-out of the emulated Lambda.
const AMPLE: Duration = Duration::from_secs(60);

async fn started(shop: &Shop) -> Sandbox {
    let function = Function::new("allocate", env!("CARGO_BIN_EXE_allocate"));
    let function = shop.db.endpoint_env().into_iter().fold(function, |f, (name, value)| f.env(name, value));
    Sandbox::start(&function).await.unwrap()
}

async fn invoke(sandbox: &Sandbox, event: &Event) -> HttpAnswer {
    let invoked = sandbox.invoke(event.to_json().to_string(), AMPLE).await.unwrap();
    HttpAnswer::read(&invoked.payload).unwrap()
}

/// Freezes a sandbox while its call waits for the SKU; the caller decides whether the SKU becomes free. Returns the answer of
/// the thawed sandbox, and that of another one to the same event in between.
async fn frozen_and_overtaken(
    shop: &Shop,
    event: &Event,
    held_for: Duration,
) -> (HttpAnswer, Reply, Sandbox) {
    let sandbox = started(shop).await;
    sandbox.ready().await.unwrap();
    let held = shop.hold(0).await;
    let (answer, retry) = tokio::join!(invoke(&sandbox, event), async {
        shop.db.until_blocked(1).await;
        sandbox.freeze().await.unwrap();
        tokio::time::sleep(held_for).await;
        held.let_go().await;
        let elsewhere = shop.db.endpoint();
        let begun = Instant::now();
        let mut retry = send(&elsewhere, event).await;
        while retry.error().as_deref() == Some("idempotency_key_in_use") {
            assert!(begun.elapsed() < AMPLE, "a call without a client does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
            retry = send(&elsewhere, event).await;
        }
        tokio::time::sleep(PAST_EVERY_TIMEOUT).await;
        sandbox.thaw().unwrap();
        retry
    });
    (answer, retry, sandbox)
}

#[tokio::test]
async fn a_sandbox_that_froze_while_its_call_committed_says_nothing_else_when_it_wakes() {
    let shop = Shop::open(Seed::default()).await;
    let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1));
    let (answer, retry, sandbox) = frozen_and_overtaken(&shop, &event, Duration::ZERO).await;
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (200, Some("true")), "{}", retry.json());
    // Its answer lies in the socket and its time is over: whichever it sees first, what it says is true.
    let told: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    match answer.status {
        503 => assert_eq!(told["error"], "outcome_unknown", "{told}"),
        status => assert_eq!((status, &answer.body), (200, &retry.body)),
    }
    let again = invoke(&sandbox, &event).await;
    assert_eq!((again.status, &again.body), (200, &retry.body), "the thawed sandbox goes on");
    assert_eq!(shop.db.count("allocation_ledger").await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_sandbox_that_froze_while_its_call_timed_out_commits_nothing_when_it_wakes() {
    let shop = Shop::open(Seed::default()).await;
    let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 1));
    // Longer than lock_timeout: the server cancels the call.
    let (answer, retry, sandbox) = frozen_and_overtaken(&shop, &event, Duration::from_secs(4)).await;
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (200, None), "{}", retry.json());
    // It learns that its call was cancelled, and answers so. The work was done by the other one, as the next answer shows.
    assert_eq!(answer.status, 503, "{}", String::from_utf8_lossy(&answer.body));
    let again = invoke(&sandbox, &event).await;
    assert_eq!((again.status, &again.body), (200, &retry.body));
    assert_eq!(again.headers.get("idempotent-replayed").map(String::as_str), Some("true"));
    assert_eq!(shop.db.count("allocation_ledger").await, 1);
    shop.db.assert_consistent().await;
}
