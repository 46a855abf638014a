//! Allocate runs fused in one message; the wrapped spelling of the same mechanism answers with the same bytes.

use serde_json::{Value, json};
use shared::auth::Scope;
use shared::endpoint::Endpoint;
use shared::http::Incoming;
use shared::idempotency::once;
use shared::stock;
use shared::testing::{Event, Reply, Seed, Shop, fresh_key, lines};
use uuid::Uuid;

use crate::send;

/// `allocate::handle` with `once` in the place of `once_fused`.
async fn wrapped(endpoint: &Endpoint, order: Uuid, event: &Event) -> Reply {
    let incoming = Incoming::read(event.request());
    let path = Ok(format!("/orders/{order}/allocate"));
    let result = match endpoint.mutation(&incoming, Scope::OrdersWrite, path, stock::read_lines).await {
        Ok((call, lines)) => {
            once(&endpoint.db, &call, &(order, lines), |connection, call, (order, lines)| {
                Box::pin(stock::promise(connection, call, *order, lines))
            })
            .await
        }
        Err(problem) => Err(problem),
    };
    Reply::from(endpoint.respond(&incoming, result))
}

#[tokio::test]
async fn fused_and_wrapped_answer_with_the_same_bytes() {
    let shop = Shop::open(Seed { skus: 3, on_hand: 10, order_qty: 9, credit_limit_minor: Some(20_000), ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let [a, b, c] = shop.tenant.skus[..].try_into().unwrap();
    let open = shop.tenant.orders[0];
    let bodies: Vec<(Uuid, Value)> = vec![
        (open, json!({"skuId": a, "qty": 2})),
        (open, lines(&[(c, 1), (a, 2), (c, 3)])),
        (open, lines(&[(c, 10), (b, 1), (a, 11)])),
        (open, lines(&[(a, 9), (b, 9), (c, 9)])),
        (open, lines(&[(Uuid::from_u128(7), 1), (a, 1)])),
        (Uuid::from_u128(8), json!({"skuId": a, "qty": 2})),
    ];
    let before = shop.db.state().await;
    for (order, body) in bodies {
        let event = || Event::post(&format!("/orders/{order}/allocate")).bearer(&shop.tenant.token()).key(&fresh_key()).json(&body);
        let (one, two) = (event(), event());
        let fused = send(&sandbox, &one).await;
        let done = shop.db.count("allocation_ledger").await;
        give_back_all(&shop).await;
        let wrapped_reply = wrapped(&sandbox, order, &two).await;
        assert_eq!((fused.status, &fused.body), (wrapped_reply.status, &wrapped_reply.body));
        let entries = shop.db.count("allocation_ledger").await;
        assert_eq!(entries, done * 3 - if fused.status == 200 { 0 } else { done * 2 }, "{body}");
        // Each spelling replays what the other recorded.
        assert_eq!(wrapped(&sandbox, order, &one).await.body, fused.body);
        assert_eq!(send(&sandbox, &two).await.header("idempotent-replayed"), Some("true"));
        give_back_all(&shop).await;
        let _ = &before;
    }
    shop.db.assert_consistent().await;
}
