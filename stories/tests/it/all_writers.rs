//! Everything that changes orders runs at the same time on the same few orders: save, cancel, create, invoice, payment,
//! allocate, release. There is no deadlock, the credit limit holds, and all numbers agree.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use shared::idempotency::endpoint::Endpoint;
use sqlx::PgConnection;
use testing::{Event, Reply, Seed, Shop, fresh_key, lines};
use uuid::Uuid;

const WORKERS: usize = 8;
const ROUNDS: usize = 60;
const LIMIT_MINOR: i64 = 1_000;

async fn send(sandbox: &Endpoint, event: &Event) -> Reply {
    let request = event.request();
    let (method, path) = (request.method().clone(), event.to_json()["rawPath"].as_str().unwrap().to_owned());
    let response = match path.rsplit('/').next().unwrap() {
        "allocate" => allocate::handle(sandbox, request).await,
        "release" => release::handle(sandbox, request).await,
        "invoices" => invoice::handle(sandbox, request).await,
        _ => order_save::handle(sandbox, request).await,
    };
    let reply = Reply::from(response);
    assert!(reply.status < 500, "{method} {path}: {reply:?}");
    reply
}

/// The test's random choices: a linear congruential generator, so that a seed repeats them.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// A random request for one of the two newest open orders: workers want the same rows.
async fn one_request(shop: &Shop, owner: &mut PgConnection, dice: &mut Dice) -> Event {
    let newest: Vec<(Uuid, i64)> = sqlx::query_as(
        "select id, version from wholesale_order where status = 'open' order by created_at desc, id limit 2",
    )
    .fetch_all(owner)
    .await
    .unwrap();
    let (order, version) = if newest.is_empty() { (Uuid::nil(), 0) } else { newest[dice.roll(newest.len())] };
    let mut wanted: Vec<(Uuid, i64)> =
        shop.tenant.skus.iter().map(|sku| (*sku, 1 + i64::try_from(dice.roll(3)).unwrap())).collect();
    wanted.rotate_left(dice.roll(3));
    wanted.truncate(1 + dice.roll(3));
    let run = |qty: usize| -> Vec<Value> {
        shop.tenant.skus.iter().map(|sku| json!({"skuId": sku, "qty": qty, "unitPriceMinor": 10})).collect()
    };
    let (method, path, body): (&str, String, Value) = match dice.roll(12) {
        _ if newest.len() < 2 => {
            ("POST", "/orders".into(), json!({"customerId": shop.tenant.customer, "lines": run(12)}))
        }
        0..=3 => ("POST", format!("/orders/{order}/allocate"), lines(&wanted)),
        4..=5 => ("POST", format!("/orders/{order}/release"), lines(&wanted)),
        6..=7 => {
            let save = json!({"baseVersion": version, "notes": "again", "lines": run(6 + dice.roll(8))});
            ("PATCH", format!("/orders/{order}"), save)
        }
        8..=9 => ("POST", format!("/orders/{order}/invoices"), json!({})),
        _ => ("POST", format!("/orders/{order}/cancel"), json!({})),
    };
    Event::new(method, &path).bearer(&shop.tenant.token()).key(&fresh_key()).json(&body)
}

/// A worker with its own sandbox; returns the last path segment and the status of each request.
async fn work(shop: Arc<Shop>, worker: usize) -> Vec<(String, u16)> {
    let sandbox = shop.db.endpoint();
    let mut owner = shop.db.owner().await;
    // Two workers have the same seed: they send the same requests at about the same time.
    let mut dice = Dice(u64::try_from(worker / 2).unwrap() + 7);
    let mut done = Vec::new();
    for round in 0..ROUNDS {
        let event = one_request(&shop, &mut owner, &mut dice).await;
        let reply = send(&sandbox, &event).await;
        let path = event.to_json()["rawPath"].as_str().unwrap().to_owned();
        done.push((path.rsplit('/').next().unwrap().to_owned(), reply.status));
        if worker == 0 && round % 8 == 7 {
            // As a payment webhook does.
            shop.db
                .execute(
                    "update invoice set status = 'paid', paid_at = now() where status = 'awaiting_payment'",
                )
                .await;
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_writers_do_not_deadlock_and_the_numbers_agree() {
    let seed = Seed {
        skus: 3,
        on_hand: 60,
        orders: 2,
        order_qty: 12,
        unit_price_minor: 10,
        credit_limit_minor: Some(LIMIT_MINOR),
    };
    let shop = Arc::new(Shop::open(seed).await);
    let tasks = (0..WORKERS).map(|worker| tokio::spawn(work(shop.clone(), worker)));
    let done: Vec<_> = join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
    for what in ["allocate", "release", "cancel", "invoices"] {
        let granted = done.iter().filter(|(path, status)| path == what && *status < 300).count();
        assert!(granted > 0, "no {what} went through: {done:?}");
    }
    shop.db.assert_no_deadlock().await;
    shop.db.assert_consistent().await;
    let held_by_cancelled =
        "order_line l join wholesale_order o on o.tenant_id = l.tenant_id and o.id = l.order_id
        where o.status = 'cancelled' and l.qty_allocated > 0";
    assert_eq!(shop.db.count(held_by_cancelled).await, 0, "a cancelled order has nothing allocated");
    let uneven = "(select o.id, coalesce(sum(l.qty_invoiced * l.unit_price_minor), 0) as lines,
                     (select coalesce(sum(total_minor), 0) from invoice i where i.order_id = o.id) as invoices
                   from wholesale_order o join order_line l on l.order_id = o.id group by o.id) s where lines <> invoices";
    assert_eq!(shop.db.count(uneven).await, 0, "invoices whose total differs from their order's lines");
    let saves = done.iter().filter(|(path, status)| Uuid::parse_str(path).is_ok() && *status == 200).count();
    let saved = "outbox where event_type = 'order.saved'";
    assert_eq!(shop.db.count(saved).await, i64::try_from(saves).unwrap(), "one event per save");
    // Invoiced units may be released later, and the line reduced below them; but no unit is invoiced that was never
    // allocated.
    let over = "order_line l join (
          select order_id, sku_id, max(held) as most from (
            select order_id, sku_id, sum(qty) over (partition by order_id, sku_id order by id) as held from allocation_ledger) h
          group by order_id, sku_id) m using (order_id, sku_id) where l.qty_invoiced > m.most";
    assert_eq!(shop.db.count(over).await, 0, "a line invoiced for more than was ever allocated to it");
    let passed = format!(
        "(select (select coalesce(sum(total_minor), 0) from invoice where status = 'awaiting_payment')
               + (select coalesce(sum(greatest(0, l.qty_allocated + l.qty_shipped - l.qty_invoiced) * l.unit_price_minor), 0)
                  from order_line l join wholesale_order o on o.id = l.order_id where o.status <> 'cancelled') as exposure) s
         where exposure > {LIMIT_MINOR}"
    );
    assert_eq!(shop.db.count(&passed).await, 0, "the credit limit was exceeded");
}
