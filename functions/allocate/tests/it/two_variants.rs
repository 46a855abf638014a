//! Allocate runs fused in one message; the wrapped spelling of the same mechanism answers with the same bytes.

use serde_json::{Value, json};
use shared::domain::stock;
use shared::http::auth::Scope;
use shared::http::event::Incoming;
use shared::idempotency::endpoint::Endpoint;
use shared::idempotency::once::once;
use testing::{Event, Reply, Seed, Shop, fresh_key, lines};
use uuid::Uuid;

use crate::send;

/// `allocate::handle` with `once` in the place of `once_fused`.
async fn wrapped(endpoint: &Endpoint, order: Uuid, event: &Event) -> Reply {
    let incoming = Incoming::read(event.request());
    let path = Ok(format!("/orders/{order}/allocate"));
    let work = async {
        let (call, lines) = endpoint.mutation(&incoming, Scope::OrdersWrite, path, stock::read_lines).await?;
        once(&endpoint.db, &call, &(order, lines), |connection, call, (order, lines)| {
            Box::pin(stock::promise(connection, call, *order, lines))
        })
        .await
    };
    Reply::from(endpoint.respond(&incoming, work).await)
}

#[tokio::test]
async fn fused_and_wrapped_answer_with_the_same_bytes() {
    let shop = Shop::open(Seed {
        skus: 3,
        on_hand: 10,
        order_qty: 9,
        credit_limit_minor: Some(20_000),
        ..Seed::default()
    })
    .await;
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
    for (order, body) in bodies {
        let event = || {
            Event::post(&format!("/orders/{order}/allocate"))
                .bearer(&shop.tenant.token())
                .key(&fresh_key())
                .json(&body)
        };
        let (one, two) = (event(), event());
        let start = shop.db.count(PROMISED).await;
        let fused = send(&sandbox, &one).await;
        let after_fused = shop.db.count(PROMISED).await;
        give_back_all(&shop).await;
        let other = wrapped(&sandbox, order, &two).await;
        assert_eq!((fused.status, &fused.body), (other.status, &other.body));
        assert_eq!(fused.header("content-type"), other.header("content-type"));
        assert_eq!(shop.db.count(PROMISED).await - after_fused, after_fused - start, "{body}");
        // Each spelling replays what the other recorded.
        for replay in [wrapped(&sandbox, order, &one).await, send(&sandbox, &two).await] {
            assert_eq!((&replay.body, replay.header("idempotent-replayed")), (&fused.body, Some("true")));
        }
        give_back_all(&shop).await;
    }
    shop.db.assert_consistent().await;
}

const PROMISED: &str = "allocation_ledger where entry_type = 'allocate'";

/// Puts everything back to where it started, through the ledger.
async fn give_back_all(shop: &Shop) {
    shop.db
        .execute(
            "begin;
             insert into allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
               select tenant_id, order_id, sku_id, -qty_allocated, 'release', 'test' from order_line where qty_allocated > 0;
             update order_line set qty_allocated = 0;
             update sku_position set allocated = 0;
             commit",
        )
        .await;
}
