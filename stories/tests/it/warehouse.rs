//! A warehouse tells everything that it can tell while buyers are promised stock and give it back, and a person puts exceptions
//! right in bulk: no deadlock, and the books agree.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use testing::{Event, Reply, Seed, fresh_key};

use crate::desk::{Desk, answer};

const WORKERS: usize = 8;
const ROUNDS: usize = 45;
const SKUS: usize = 3;

/// The test's random choices: a linear congruential generator, so that a seed repeats them.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    /// Between these, and not 0.
    fn units(&mut self, from: i64, to: i64) -> i64 {
        let sides = usize::try_from(to - from + 1).unwrap();
        let rolled = from + i64::try_from(self.roll(sides)).unwrap();
        if rolled == 0 { to } else { rolled }
    }

    /// One to three lines of SKUs in any order, one of them perhaps unknown.
    fn lines(&mut self, from: i64, to: i64) -> Value {
        let (count, first) = (1 + self.roll(3), self.roll(SKUS));
        (0..count)
            .map(|n| {
                let sku = if self.roll(12) == 0 {
                    "NEW".into()
                } else {
                    format!("SKU-{:04}", (first + 2 * n) % SKUS + 1)
                };
                json!({"lineId": format!("{}-{n}", self.roll(40)), "sku": sku, "qty": self.units(from, to)})
            })
            .collect()
    }
}

fn fact(desk: &Desk, dice: &mut Dice) -> Value {
    let order = desk.shop.tenant.orders[dice.roll(2)];
    let (asn, document) = (format!("A{}", dice.roll(6)), format!("D{}", dice.roll(8)));
    match dice.roll(10) {
        0..=1 => json!({"type": "asn.created", "asnId": asn, "lines": dice.lines(1, 9)}),
        2..=4 => {
            let closed = dice.roll(9) == 0;
            json!({"type": "asn.received", "asnId": asn, "receiptId": document, "closed": closed, "lines": dice.lines(-4, 6)})
        }
        5 => json!({"type": "asn.cancelled", "asnId": asn}),
        6..=7 => json!({"type": "inventory.adjusted", "reason": "count", "lines": dice.lines(-7, 6)}),
        8 => {
            json!({"type": "order.returned", "orderId": order, "receiptId": document, "lines": dice.lines(1, 3)})
        }
        _ => {
            json!({"type": "order.shipped", "orderId": order, "shipmentId": document, "lines": dice.lines(1, 3)})
        }
    }
}

fn of_a_buyer(desk: &Desk, dice: &mut Dice) -> Event {
    let first = dice.roll(SKUS);
    let wanted: Vec<Value> =
        (0..2).map(|n| json!({"skuId": desk.sku((first + n) % SKUS), "qty": dice.units(1, 4)})).collect();
    let order = dice.roll(2);
    if dice.roll(3) < 2 {
        desk.event("POST", &desk.order(order, "/allocate"), &json!({"lines": wanted, "partial": true}))
    } else {
        desk.event("POST", &desk.order(order, "/release"), &json!({"lines": wanted}))
    }
}

/// Retries or dismisses a page of all that is open.
async fn of_a_person(desk: &Desk, console: &console::Console, dice: &mut Dice) -> u16 {
    let (verb, body) = match dice.roll(6) {
        0 => ("dismiss", json!({"reason": "seen", "topic": "order.returned"})),
        _ => ("retry", json!({})),
    };
    let event =
        Event::post(&format!("/admin/exceptions/{verb}")).bearer(&desk.shop.tenant.token()).key(&fresh_key());
    Reply::from(console::handle(console, event.json(&body).request()).await).status
}

async fn work(desk: Arc<Desk>, worker: usize) -> Vec<(&'static str, u16)> {
    let sandbox = desk.shop.db.endpoint();
    let console = Desk::console(&desk.shop);
    let mut dice = Dice(u64::try_from(worker / 2).unwrap() + 23);
    let mut done = Vec::new();
    for _ in 0..ROUNDS {
        done.push(match dice.roll(9) {
            0..=3 => {
                let event = fact(&desk, &mut dice);
                ("fact", desk.tell(&fresh_key(), &event).await.status)
            }
            4..=7 => ("buyer", answer(&sandbox, &of_a_buyer(&desk, &mut dice)).await.status),
            _ => ("person", of_a_person(&desk, &console, &mut dice).await),
        });
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_warehouse_beside_buyers_and_a_person_meets_no_deadlock_and_leaves_books_that_agree() {
    let seed = Seed {
        skus: SKUS,
        on_hand: 20,
        orders: 2,
        order_qty: 60,
        unit_price_minor: 10,
        credit_limit_minor: None,
    };
    let desk = Arc::new(Desk::open(seed).await);
    let tasks = (0..WORKERS).map(|worker| tokio::spawn(work(desk.clone(), worker)));
    let done: Vec<_> = join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
    assert!(done.iter().all(|(_, status)| *status < 500), "{done:?}");
    for kind in ["asn.received", "inventory.adjusted", "order.returned", "order.shipped"] {
        assert!(desk.shop.db.count(&format!("threepl_line where kind = '{kind}'")).await > 0, "no {kind}");
    }
    assert!(desk.shop.db.count("threepl_line where qty < 0").await > 0);
    assert!(desk.shop.db.count("inbox_exception where attempts > 1").await > 0, "nothing was retried");
    assert!(desk.shop.db.count("shortfall").await > 0, "nothing was ever missing");
    desk.shop.db.assert_consistent().await;
    let for_sale = "sku_position p join shortfall s using (tenant_id, sku_id)
        where p.on_hand + p.on_order > p.allocated and s.owed_on_hand + s.owed_on_order > 0";
    assert_eq!(desk.shop.db.count(for_sale).await, 0, "missing units are for sale");
    // What stands in the books, less what they owe, is what the warehouse told.
    let told = "(select p.on_hand - o.on_hand as net, 20 + coalesce((select sum(case when l.kind = 'order.shipped' then -l.qty
          when l.kind = 'asn.created' then 0 else l.qty end) from threepl_line l where l.sku_id = p.sku_id), 0) as told
        from sku_position p cross join lateral (
          select coalesce(sum(s.owed_on_hand), 0) as on_hand from shortfall s where s.sku_id = p.sku_id) o) d where net <> told";
    assert_eq!(desk.shop.db.count(told).await, 0, "units were lost or counted twice");
    desk.shop.db.assert_no_deadlock().await;
}
