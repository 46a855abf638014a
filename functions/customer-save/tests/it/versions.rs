//! Two who save at once: the second is refused, and shown what the first saved.

use futures_util::future::join_all;
use serde_json::{Value, json};
use testing::{Seed, fresh_key};

use super::*;

#[tokio::test]
async fn without_a_version_it_is_428_and_with_two_different_ones_400_and_neither_takes_the_key() {
    let books = Books::open(Seed::default()).await;
    let key = fresh_key();
    let event =
        |body: &Value| Event::new("PATCH", &books.path()).bearer(&books.token(0)).key(&key).json(body);
    let neither = books.send(&event(&json!({"onHold": true}))).await;
    assert_eq!(refused(&neither), refusal(428, "version_required"));
    let both = json!({"baseVersion": 1, "onHold": true});
    let differ = books.send(&event(&both).header("if-match", "\"2\"")).await;
    assert_eq!(refused(&differ), refusal(400, "version_mismatch"));
    assert_eq!(books.shop.db.count("idempotency_key").await, 0);
    assert_eq!(books.send(&event(&both).header("if-match", "\"1\"")).await.status, 200);
}

#[tokio::test]
async fn a_stale_version_is_refused_with_the_present_customer_and_the_refusal_is_replayed() {
    let books = Books::open(Seed { credit_limit_minor: Some(5), ..Seed::default() }).await;
    let first = books.patch_of(1, &json!({"baseVersion": 1, "creditLimitMinor": 6}));
    assert_eq!(books.send(&first).await.status, 200);
    let state = books.shop.db.state().await;
    let body = json!({"baseVersion": 1, "creditLimitMinor": 7});
    let header = json!({"creditLimitMinor": 7});
    for (event, status, yours) in [
        (books.patch(&body), 409, json!(1)),
        (books.patch(&header).header("if-match", "\"1\""), 412, json!(1)),
        (books.patch(&header).header("if-match", "W/\"2\""), 412, json!(null)),
        (books.patch(&header).header("if-match", "2"), 412, json!(null)),
        (books.patch(&header).header("if-match", "\"1\", \"3\""), 412, json!(null)),
    ] {
        let reply = books.send(&event).await;
        assert_eq!(refused(&reply), refusal(status, "version_conflict"), "{event:?}");
        let problem = reply.json();
        assert!(problem.as_object().unwrap().contains_key("yourBaseVersion"), "{problem}");
        if !yours.is_null() {
            assert_eq!(problem["yourBaseVersion"], yours, "{problem}");
        }
        assert_eq!(problem["current"], books.read().await.json(), "the whole customer as it is");
        let again = books.send(&event).await;
        assert_eq!((&again.body, again.header("idempotent-replayed")), (&reply.body, Some("true")));
    }
    assert_eq!(books.shop.db.state().await, state);
    for matching in ["\"2\"", "\"9\", \"3\"", "*"] {
        let event = books.patch(&header).header("if-match", matching);
        assert_eq!(books.send(&event).await.status, 200, "{matching}");
    }
}

#[tokio::test]
async fn the_same_key_for_another_base_version_is_another_request() {
    let books = Books::open(Seed::default()).await;
    let save = books.patch(&json!({"onHold": true}));
    assert_eq!(books.send(&save.clone().header("if-match", "\"1\"")).await.status, 200);
    let other = books.send(&save.header("if-match", "\"2\"")).await;
    assert_eq!(refused(&other), refusal(422, "idempotency_key_reused"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_saves_side_by_side_on_one_version_one_is_taken() {
    let books = Books::open(Seed::default()).await;
    let hold = format!("select 1 from customer where id = '{}' for update", books.shop.tenant.customer);
    let held = books.shop.db.hold(hold).await;
    let saving: Vec<_> = (0..4)
        .map(|n| {
            let event = books.patch(&json!({"baseVersion": 1, "creditLimitMinor": n}));
            let sandbox = books.shop.db.endpoint();
            tokio::spawn(async move { Reply::from(customer_save::handle(&sandbox, event.request()).await) })
        })
        .collect();
    // The pooler of the tests gives a database two sessions.
    books.shop.db.until_blocked(if books.shop.db.is_pooled() { 2 } else { 4 }).await;
    held.let_go().await;
    let replies: Vec<Reply> = join_all(saving).await.into_iter().map(Result::unwrap).collect();
    let mut statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409, 409, 409]);
    let present = books.read().await.json();
    assert_eq!(present["version"], 2);
    for reply in replies.iter().filter(|reply| reply.status == 409) {
        assert_eq!(reply.json()["current"], present);
    }
}
