//! The real binary of a multi-statement function is frozen between two messages, past every time-out, while another sandbox
//! gets the same request, then thawed: the server has ended its session, so it can commit nothing.

use std::time::{Duration, Instant};

use testing::emulator::{Function, Sandbox, event::HttpAnswer};
use testing::{Seed, Shop, fresh_key};

use crate::send;

/// Longest time until a retry runs.
const FREE_WITHIN: Duration = Duration::from_secs(15);
/// Longer than every time-out that runs while the sandbox is frozen.
const PAST_EVERY_TIMEOUT: Duration = Duration::from_secs(16);
/// Time-out of the emulated Lambda.
const AMPLE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_sandbox_that_froze_in_mid_transaction_wakes_to_a_dead_session_and_the_answer_is_anothers() {
    let shop = Shop::open(Seed { on_hand: 100, order_qty: 100, ..Seed::default() }).await;
    let elsewhere = shop.db.endpoint();
    let allocated = send(&elsewhere, &shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 50))).await;
    assert_eq!(allocated.status, 200);
    let event = shop.release(0).key(&fresh_key()).json(&shop.one(0, 7));
    let lambda_event = event.to_json().to_string();

    let function = Function::new("release", env!("CARGO_BIN_EXE_release"));
    let function = shop.db.endpoint_env().into_iter().fold(function, |f, (name, value)| f.env(name, value));
    let sandbox = Sandbox::start(&function).await.unwrap();
    sandbox.ready().await.unwrap();
    let held = shop.hold(0).await;
    let (frozen, retry) = tokio::join!(sandbox.invoke(lambda_event.clone(), AMPLE), async {
        shop.db.until_blocked(1).await;
        sandbox.freeze().await.unwrap();
        let begun = Instant::now();
        // The work is done, but the message that records and commits is not sent.
        held.let_go().await;
        let retry = loop {
            let reply = send(&elsewhere, &event).await;
            if reply.status != 409 {
                break reply;
            }
            assert_eq!(reply.error().as_deref(), Some("idempotency_key_in_use"));
            assert!(begun.elapsed() < FREE_WITHIN, "a frozen sandbox still holds the key");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        tokio::time::sleep(PAST_EVERY_TIMEOUT.saturating_sub(begun.elapsed())).await;
        sandbox.thaw().unwrap();
        retry
    });
    assert_eq!((retry.status, retry.header("idempotent-replayed")), (200, None), "{}", retry.json());
    // Thawed, it either runs again and replays the other's answer, or answers 503.
    let frozen = HttpAnswer::read(&frozen.unwrap().payload).unwrap();
    if frozen.status != 503 {
        assert_eq!((frozen.status, &frozen.body), (200, &retry.body));
    }
    let again = HttpAnswer::read(&sandbox.invoke(lambda_event, AMPLE).await.unwrap().payload).unwrap();
    assert_eq!((again.status, &again.body), (200, &retry.body), "the thawed sandbox goes on");
    assert_eq!(shop.db.count("allocation_ledger where qty = -7").await, 1);
    shop.db.assert_consistent().await;
}
