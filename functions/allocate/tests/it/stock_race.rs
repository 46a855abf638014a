//! Users who request the same stock at the same moment.

use serde_json::{Value, json};
use testing::{Seed, Shop, fresh_key, lines};
use uuid::Uuid;

use crate::{at_once, crowd, send, warm};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_six_units_go_to_exactly_one_of_two_users() {
    let shop = Shop::open(Seed { skus: 200, on_hand: 6, orders: 2, order_qty: 6, ..Seed::default() }).await;
    let sandboxes = warm(&shop, 2).await;
    let mut won = [0, 0];
    for sku in 0..200 {
        let body = shop.one(sku, 6);
        let events = vec![
            shop.allocate(0).key(&fresh_key()).json(&body),
            shop.allocate(1).key(&fresh_key()).json(&body),
        ];
        let replies = at_once(&sandboxes, events).await;
        let winner = usize::from(replies[1].status == 200);
        let (yes, no) = (&replies[winner], &replies[1 - winner]);
        assert_eq!((yes.status, &yes.json()["lines"][0]["atsAfter"]), (200, &0.into()), "{yes:?}");
        assert_eq!((no.status, no.error().as_deref()), (422, Some("insufficient_ats")), "{no:?}");
        let id = shop.tenant.skus[sku];
        assert_eq!(no.json()["lines"], serde_json::json!([{"skuId": id, "requested": 6, "available": 0}]));
        won[winner] += 1;
    }
    assert_eq!(shop.db.count("sku_position where allocated = 6 and on_hand = 6").await, 200);
    assert_eq!(shop.db.count("allocation_ledger").await, 200);
    assert_eq!(shop.db.count("outbox").await, 400);
    assert!(won.iter().all(|n| *n > 0), "a race that one side always wins is none: {won:?}");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn buyers_of_one_sku_are_served_in_the_order_in_which_they_came() {
    let _turn = crowd().await;
    let shop = Shop::open(Seed { skus: 2, on_hand: 100, orders: 6, order_qty: 10, ..Seed::default() }).await;
    if shop.db.is_pooled() {
        // Who waits there for a session of the server has no place in its queues yet.
        testing::left_out("behind a pooler, which answers for the server");
        return;
    }
    // Time for all to arrive before the first gives up.
    shop.db
        .execute(format!("alter role holdfast_app in database {} set lock_timeout = '6s'", shop.db.name()))
        .await;
    let sandboxes = warm(&shop, 6).await;
    let held = shop.hold(0).await;
    let mut waiting = Vec::new();
    for (n, sandbox) in sandboxes.into_iter().enumerate() {
        // Every other one requests two SKUs: those wait in the same queue.
        let wanted = if n % 2 == 0 {
            shop.one(0, 1)
        } else {
            lines(&[(shop.tenant.skus[0], 1), (shop.tenant.skus[1], 1)])
        };
        let event = shop.allocate(n).key(&fresh_key()).json(&wanted);
        waiting.push(tokio::spawn(async move { send(&sandbox, &event).await.status }));
        shop.db.until_blocked(n + 1).await;
    }
    held.let_go().await;
    for buyer in waiting {
        assert_eq!(buyer.await.unwrap(), 200);
    }
    let mut owner = shop.db.owner().await;
    let served: Vec<Uuid> =
        sqlx::query_scalar("select order_id from allocation_ledger where sku_id = $1 order by created_at")
            .bind(shop.tenant.skus[0])
            .fetch_all(&mut owner)
            .await
            .unwrap();
    assert_eq!(served, shop.tenant.orders);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drop_sells_every_unit_once() {
    let _turn = crowd().await;
    let shop =
        Shop::open(Seed { skus: 1, on_hand: 100, orders: 30, order_qty: 1_000, ..Seed::default() }).await;
    let sandboxes = warm(&shop, 30).await;
    let (mut sold, mut refused) = (0, 0);
    for _ in 0..12 {
        let events =
            (0..30).map(|order| shop.allocate(order).key(&fresh_key()).json(&shop.one(0, 1))).collect();
        for reply in at_once(&sandboxes, events).await {
            match reply.status {
                200 => sold += 1,
                422 => {
                    assert_eq!(reply.json()["lines"][0]["available"], 0);
                    refused += 1;
                }
                // On a very slow machine, with thirty in one queue: an error, and nothing changed.
                503 => {}
                _ => panic!("{reply:?}"),
            }
        }
        if refused >= 60 {
            break;
        }
    }
    assert_eq!(sold, 100);
    assert_eq!(shop.db.count("sku_position where allocated = 100").await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_several_skus_take_all_or_nothing_under_contention() {
    let _turn = crowd().await;
    let shop =
        Shop::open(Seed { skus: 6, on_hand: 40, orders: 12, order_qty: 1_000, ..Seed::default() }).await;
    let sandboxes = warm(&shop, 12).await;
    for round in 0..12_usize {
        let events = (0..12)
            .map(|order| {
                // Each takes another three SKUs, in another order.
                let mut wanted: Vec<_> = (0..3)
                    .map(|n| (shop.tenant.skus[(order + round + n * (1 + order % 2)) % 6], 2))
                    .collect();
                if order % 2 == 0 {
                    wanted.reverse();
                }
                shop.allocate(order).key(&fresh_key()).json(&lines(&wanted))
            })
            .collect();
        for reply in at_once(&sandboxes, events).await {
            assert!(matches!(reply.status, 200 | 422 | 503), "{reply:?}");
        }
    }
    let uneven = "(select order_id, sum(qty_allocated) as held from order_line group by order_id) s where held % 6 <> 0";
    assert_eq!(shop.db.count(uneven).await, 0, "an order holds whole requests of three times two");
    assert!(shop.db.count("sku_position where allocated >= 36").await > 0, "there was contention");
    shop.db.assert_consistent().await;
}

/// The body of a partial allocation of one unit of each of these SKUs.
fn what_there_is(shop: &Shop, skus: &[usize]) -> Value {
    let mut body = lines(&skus.iter().map(|sku| (shop.tenant.skus[*sku], 1)).collect::<Vec<_>>());
    body["partial"] = json!(true);
    body
}

#[tokio::test]
async fn of_two_partial_allocations_that_are_cut_to_the_same_sku_none_waits_for_the_other_in_turn() {
    let shop = Shop::open(Seed { skus: 3, on_hand: 1, orders: 3, order_qty: 1, ..Seed::default() }).await;
    // Of the first and the last SKU nothing is left, so both requests are cut to the one between.
    shop.receive(0, -1).await;
    shop.receive(2, -1).await;
    shop.receive(1, 1).await;
    let sandboxes = warm(&shop, 2).await;
    let [first, second] = [0, 1].map(|n| (sandboxes[n].clone(), what_there_is(&shop, &[n, n + 1])));
    // The first one locks its positions, and is held before it moves anything: by its order's line, which it does not lock before.
    let line = format!(
        "select 1 from order_line where order_id = '{}' and sku_id = '{}' for update",
        shop.tenant.orders[0], shop.tenant.skus[1]
    );
    let held = shop.db.hold(line).await;
    let requests = [first, second].into_iter().enumerate().map(|(n, (sandbox, body))| {
        let event = shop.allocate(n).key(&fresh_key()).json(&body);
        async move { send(&sandbox, &event).await }
    });
    let mut replies = Vec::new();
    for (n, request) in requests.enumerate() {
        replies.push(tokio::spawn(request));
        // The second has its turn at the SKU between, whose position the first one holds.
        shop.db.until_blocked(n + 1).await;
    }
    held.let_go().await;
    for (reply, order) in replies.into_iter().zip(0_i64..) {
        let reply = reply.await.unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        let told = reply.json()["lines"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["qty"].clone())
            .collect::<Vec<_>>();
        assert_eq!(told, [json!(order), json!(1 - order)]);
    }
    shop.db.assert_no_deadlock().await;
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_buyer_takes_a_turn_also_on_a_connection_that_served_a_partial_allocation() {
    let shop = Shop::open(Seed { skus: 2, on_hand: 4, orders: 1, ..Seed::default() }).await;
    shop.receive(0, -4).await;
    let sandbox = shop.db.endpoint();
    let partial = shop.allocate(0).key(&fresh_key()).json(&what_there_is(&shop, &[0, 1]));
    assert_eq!(send(&sandbox, &partial).await.status, 200);
    let held = shop.hold(1).await;
    let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(1, 1));
    let (reply, turns) = tokio::join!(send(&sandbox, &event), async {
        shop.db.until_blocked(1).await;
        let turns =
            "pg_locks where locktype = 'advisory' and granted and classid = holdfast.lock_class_sku()::oid
                       and database = (select oid from pg_database where datname = current_database())";
        let turns = shop.db.count(turns).await;
        held.let_go().await;
        turns
    });
    assert_eq!((reply.status, turns), (200, 1), "{reply:?}");
}
