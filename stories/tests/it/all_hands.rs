//! Whoever may touch an order after it was promised does so at the same time: no deadlock, and the books agree.

use std::sync::Arc;

use futures_util::future::join_all;
use serde_json::{Value, json};
use testing::{Event, Seed};
use uuid::Uuid;

use crate::desk::{Desk, answer};

const WORKERS: usize = 6;
const ROUNDS: usize = 40;

/// The test's random choices: a linear congruential generator, so that a seed repeats them.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// The newest rows of a kind: workers want the same ones.
async fn newest(desk: &Desk, from: &str) -> Vec<(Uuid, i64)> {
    let sql = format!("select id, {from} order by created_at desc, id limit 2");
    sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(&mut desk.shop.db.owner().await).await.unwrap()
}

/// A random request; none where the warehouse ships instead.
async fn one_request(desk: &Desk, dice: &mut Dice, round: usize) -> Option<Event> {
    let orders = newest(desk, "version from wholesale_order where status = 'open'").await;
    let invoices =
        newest(desk, "total_minor - paid_minor from invoice where status = 'awaiting_payment'").await;
    let run = |qty: usize, price: usize| -> Vec<Value> {
        let line = |sku| json!({"skuId": sku, "qty": qty, "unitPriceMinor": price});
        desk.shop.tenant.skus.iter().map(line).collect()
    };
    if orders.len() < 2 {
        let create = json!({"customerId": desk.shop.tenant.customer, "lines": run(12, 10)});
        return Some(desk.event("POST", "/orders", &create));
    }
    let (order, version) = orders[dice.roll(2)];
    let qty = 1 + dice.roll(5);
    let mut skus = desk.shop.tenant.skus.clone();
    skus.rotate_left(dice.roll(2));
    let wanted: Vec<Value> = skus.iter().map(|sku| json!({"skuId": sku, "qty": qty})).collect();
    let post = |verb: &str, body: Value| Some(desk.event("POST", &format!("/orders/{order}/{verb}"), &body));
    let bill = |verb: &str, body: Value| {
        let (id, _) = invoices.first()?;
        Some(desk.event("POST", &format!("/invoices/{id}/{verb}"), &body))
    };
    match dice.roll(16) {
        0..=3 => post("allocate", json!({"lines": wanted, "partial": true})),
        4 => post("release", json!({"lines": wanted})),
        5..=6 => {
            let body = json!({"baseVersion": version, "lines": run(6 + dice.roll(8), 8 + dice.roll(5))});
            Some(desk.event("PATCH", &format!("/orders/{order}"), &body))
        }
        7..=8 => post("invoices", json!({})),
        9 => bill("void", json!({"reason": "again"})),
        10 => {
            let amount = invoices.first().map_or(1, |(_, due)| (*due).clamp(1, 40));
            bill("payments", json!({"amountMinor": amount, "reference": Uuid::new_v4()}))
        }
        11 => post("close", json!({})),
        12 if round.is_multiple_of(4) => post("cancel", json!({})),
        13 => {
            let version: i64 = desk.text("select version::text from customer").await.parse().unwrap();
            let limit = [json!(null), json!(900), json!(1_500)][dice.roll(3)].clone();
            Some(desk.event(
                "PATCH",
                &desk.customer(),
                &json!({"baseVersion": version, "creditLimitMinor": limit}),
            ))
        }
        _ => None,
    }
}

async fn work(desk: Arc<Desk>, worker: usize) -> Vec<(String, u16)> {
    let sandbox = desk.shop.db.endpoint();
    let mut dice = Dice(u64::try_from(worker / 2).unwrap() + 11);
    let mut done = Vec::new();
    for round in 0..ROUNDS {
        let Some(event) = one_request(&desk, &mut dice, round).await else {
            let open = newest(&desk, "version from wholesale_order where status <> 'shipped'").await;
            for (order, _) in open.iter().take(1) {
                let sku = dice.roll(2);
                desk.ship_order(*order, &[(sku, 2), (1 - sku, 1)]).await;
                done.push(("ship".into(), 200));
            }
            continue;
        };
        let path = event.to_json()["rawPath"].as_str().unwrap().to_owned();
        let reply = answer(&sandbox, &event).await;
        let last = path.rsplit('/').next().unwrap().to_owned();
        let what =
            if Uuid::parse_str(&last).is_ok() { path.split('/').nth(1).unwrap().to_owned() } else { last };
        done.push((what, reply.status));
    }
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_bills_ships_saves_and_ends_at_once_meets_no_deadlock_and_leaves_books_that_agree() {
    let seed = Seed {
        skus: 2,
        on_hand: 100_000,
        orders: 2,
        order_qty: 12,
        unit_price_minor: 10,
        credit_limit_minor: Some(1_500),
    };
    let desk = Arc::new(Desk::open(seed).await);
    let tasks = (0..WORKERS).map(|worker| tokio::spawn(work(desk.clone(), worker)));
    let done: Vec<_> = join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
    for what in ["allocate", "orders", "invoices", "void", "payments", "close", "customers", "ship"] {
        assert!(done.iter().any(|(name, status)| name == what && *status < 300), "no {what}: {done:?}");
    }
    desk.shop.db.assert_consistent().await;
    let uneven = "order_line l where l.qty_invoiced <> coalesce((select sum(x.qty) from invoice i
          join invoice_line x on x.tenant_id = i.tenant_id and x.invoice_id = i.id
          where i.order_id = l.order_id and i.status <> 'void' and x.sku_id = l.sku_id), 0)";
    assert_eq!(desk.shop.db.count(uneven).await, 0, "lines that differ from their invoices");
    let unended = "wholesale_order o where status = 'open' and exists (select from order_line l where l.order_id = o.id)
        and not exists (select from order_line l where l.order_id = o.id and l.qty_shipped < l.qty)";
    assert_eq!(desk.shop.db.count(unended).await, 0, "open orders of which all is shipped");
    let exposure = "select (coalesce((select sum(total_minor - paid_minor + refunded_minor) from invoice where status = 'awaiting_payment'), 0)
        + coalesce((select sum(greatest(0, qty_allocated + qty_shipped - qty_invoiced) * unit_price_minor) from order_line), 0))::text";
    assert_eq!(desk.text(exposure).await, desk.exposure().await.to_string());
    desk.shop.db.assert_no_deadlock().await;
}
