//! Allocate is the single-statement variant of the mechanism; the multi-statement variant answers with the same bytes.

use serde_json::{Value, json};
use shared::domain::stock;
use shared::http::event::Incoming;
use shared::http::route::Matched;
use shared::idempotency::endpoint::Endpoint;
use shared::idempotency::once::once;
use testing::{Event, Reply, Seed, Shop, fresh_key, lines};
use uuid::Uuid;

use crate::send;

/// `allocate::handle` with `once` in the place of `once_fused`.
async fn multi_statement(endpoint: &Endpoint, event: &Event) -> Reply {
    let incoming = Incoming::read(event.request());
    let route = &allocate::ROUTES[0];
    let request = Matched { incoming: &incoming, access: route.access, pattern: route.pattern };
    let work = async {
        let (call, allocation) = endpoint.matched_mutation(&request, stock::read_allocation).await?;
        once(&endpoint.db, &call, stock::promise(request.id("orderId")?, &allocation)).await
    };
    Reply::from(endpoint.respond(&incoming, work).await)
}

#[tokio::test]
async fn both_variants_answer_with_the_same_bytes() {
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
        let single = send(&sandbox, &one).await;
        let after_single = shop.db.count(PROMISED).await;
        give_back_all(&shop).await;
        let multi = multi_statement(&sandbox, &two).await;
        assert_eq!((single.status, &single.body), (multi.status, &multi.body));
        assert_eq!(single.header("content-type"), multi.header("content-type"));
        assert_eq!(shop.db.count(PROMISED).await - after_single, after_single - start, "{body}");
        // Each variant replays what the other recorded.
        for replay in [multi_statement(&sandbox, &one).await, send(&sandbox, &two).await] {
            assert_eq!((&replay.body, replay.header("idempotent-replayed")), (&single.body, Some("true")));
        }
        give_back_all(&shop).await;
    }
    shop.db.assert_consistent().await;
}

const PROMISED: &str = "allocation_ledger where entry_type = 'allocate'";

/// Releases everything, with ledger lines.
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
