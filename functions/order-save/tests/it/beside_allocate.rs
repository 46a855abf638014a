//! Saves and cancellations during allocations of the same lines: never below allocated, no deadlock, no 5xx.

use futures_util::future::join;
use serde_json::json;
use testing::{Reply, Seed, Shop, fresh_key, lines};

use crate::{patch, post, send, version, warm};

const ROUNDS: usize = 200;

#[tokio::test]
async fn a_save_beside_an_allocation_never_leaves_a_line_below_what_is_allocated() {
    let shop =
        Shop::open(Seed { skus: 2, on_hand: 1_000_000, orders: 1, order_qty: 3, ..Seed::default() }).await;
    let (saver, allocator) = (warm(&shop).await, warm(&shop).await);
    let [a, b] = shop.tenant.skus[..].try_into().unwrap();
    let (mut saved, mut promised) = (0, 0);
    for round in 0..ROUNDS {
        // The size run changes between 3 and 6 of each; the other side allocates what fits, then releases it.
        let qty = if round % 2 == 0 { 6 } else { 3 };
        let run = json!({"baseVersion": version(&shop, 0).await, "lines": [{"skuId": b, "qty": qty}, {"skuId": a, "qty": qty}]});
        let take = shop.allocate(0).key(&fresh_key()).json(&lines(&[(a, 4), (b, 4)]));
        let (save, take) = join(send(&saver, &patch(&shop, 0, &run)), async {
            Reply::from(allocate::handle(&allocator, take.request()).await)
        })
        .await;
        match (save.status, save.error().as_deref()) {
            (200, _) => saved += 1,
            (422, Some("below_allocated")) => {}
            other => panic!("{other:?}"),
        }
        match (take.status, take.error().as_deref()) {
            (200, _) => {
                promised += 1;
                let cancel = format!(
                    "select holdfast.give_back('{}', '{}', '{}', 'test')",
                    shop.tenant.id,
                    shop.tenant.orders[0],
                    json!([{"skuId": a, "qty": 4}, {"skuId": b, "qty": 4}])
                );
                shop.db.execute(cancel).await;
            }
            (422, Some("exceeds_ordered")) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(saved > 0 && promised > 0, "both happened: {saved} saves, {promised} allocations");
    assert_eq!(shop.db.count("order_line where qty_allocated + qty_shipped > qty").await, 0);
    shop.db.assert_no_deadlock().await;
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_cancellation_beside_an_allocation_leaves_nothing_promised() {
    let shop =
        Shop::open(Seed { skus: 2, on_hand: 1_000_000, orders: 60, order_qty: 3, ..Seed::default() }).await;
    let (canceller, allocator) = (warm(&shop).await, warm(&shop).await);
    let [a, b] = shop.tenant.skus[..].try_into().unwrap();
    for order in 0..shop.tenant.orders.len() {
        let first = shop.allocate(order).key(&fresh_key()).json(&lines(&[(b, 1), (a, 1)]));
        assert_eq!(Reply::from(allocate::handle(&allocator, first.request()).await).status, 200);
        let cancel = post(&shop, &format!("/orders/{}/cancel", shop.tenant.orders[order]), &json!({}));
        let take = shop.allocate(order).key(&fresh_key()).json(&lines(&[(a, 2), (b, 2)]));
        let (cancel, take) = join(send(&canceller, &cancel), async {
            Reply::from(allocate::handle(&allocator, take.request()).await)
        })
        .await;
        assert_eq!(cancel.status, 200, "{}", cancel.json());
        assert!(take.status == 200 || take.error().as_deref() == Some("order_not_open"), "{}", take.json());
    }
    assert_eq!(shop.db.count("sku_position where allocated <> 0").await, 0);
    shop.db.assert_no_deadlock().await;
    shop.db.assert_consistent().await;
}
