//! Shops, a 3PL, buyers and operators at once on the same few SKUs: no deadlock, and consistent numbers.

use futures_util::future::join_all;
use shared::webhooks::inbox::Delivery;
use testing::{fresh_key, lines};
use uuid::Uuid;

use super::exceptions::{retry_by_id, settle};
use super::*;

const WORKERS: usize = 8;
const ROUNDS: usize = 40;

/// A linear congruential generator, so that a run can be repeated by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).unwrap() % sides
    }

    /// SKU numbers in any order; 3 is an unknown SKU.
    fn skus(&mut self) -> Vec<usize> {
        let mut skus = vec![0, 1, 2];
        skus.rotate_left(usize::try_from(self.roll(3)).unwrap());
        if self.roll(2) == 0 {
            skus.reverse();
        }
        skus.truncate(1 + usize::try_from(self.roll(3)).unwrap());
        if self.roll(8) == 0 {
            skus.push(3);
        }
        skus
    }
}

async fn of_the_shop(webhook: &Webhook, dice: &mut Dice) -> u16 {
    let id = 1 + dice.roll(12);
    let (topic, body) = match dice.roll(7) {
        0..=1 => {
            let of: Vec<(i64, usize, i64)> = dice
                .skus()
                .into_iter()
                .map(|sku| (id * 100 + i64::try_from(sku).unwrap(), sku, 1 + id % 4))
                .collect();
            (if dice.roll(3) == 0 { "orders/fulfilled" } else { "orders/create" }, order(id, &of))
        }
        2 => ("orders/cancelled", order(id, &[])),
        3 => {
            let change = json!([{"id": id * 100 + dice.roll(3), "delta": 1 + dice.roll(2)}]);
            let lines =
                if dice.roll(2) == 0 { json!({"additions": change}) } else { json!({"removals": change}) };
            (
                "orders/edited",
                json!({"order_edit": {"id": dice.roll(1_000), "order_id": id,
                "committed_at": "2026-02-01T10:00:00Z", "line_items": lines}}),
            )
        }
        4 => {
            let (sku, status) =
                (dice.roll(3), ["success", "cancelled"][usize::try_from(dice.roll(2)).unwrap()]);
            let at = format!("2026-02-01T10:00:{:02}Z", dice.roll(60));
            (
                "fulfillments/update",
                json!({"id": id * 10 + sku, "order_id": id, "status": status, "updated_at": at,
                "line_items": [{"id": id * 100 + sku, "sku": format!("SKU-{:04}", sku + 1), "quantity": 1 + dice.roll(2)}]}),
            )
        }
        _ => {
            let how = ["cancel", "no_restock", "return"][usize::try_from(dice.roll(3)).unwrap()];
            ("refunds/create", refund(id, &[(id * 1_000 + dice.roll(9), id * 100 + dice.roll(3), 1, how)]))
        }
    };
    tell(webhook, &Uuid::new_v4().to_string(), topic, &body).await.status
}

async fn of_the_3pl(shop: &Shop, webhook: &Webhook, dice: &mut Dice) -> u16 {
    let (asn, document) = (format!("A{}", dice.roll(10)), Uuid::new_v4().to_string());
    let skus = dice.skus();
    let goods: Value = skus
        .iter()
        .map(|sku| json!({"lineId": sku.to_string(), "sku": format!("SKU-{:04}", sku + 1), "qty": 1 + sku}))
        .collect();
    let event = match dice.roll(6) {
        0..=1 => json!({"type": "asn.created", "asnId": asn, "lines": goods}),
        2 => json!({"type": "asn.received", "asnId": asn, "receiptId": document, "lines": goods}),
        3 => json!({"type": "asn.received", "asnId": asn, "receiptId": document, "closed": true}),
        4 => json!({"type": "asn.cancelled", "asnId": asn}),
        _ => {
            let order = shop.tenant.orders[usize::try_from(dice.roll(2)).unwrap()];
            json!({"type": "order.shipped", "orderId": order, "shipmentId": document, "lines": goods})
        }
    };
    let body = event.to_string();
    let reading = shared::webhooks::threepl::read(body.as_bytes());
    let delivery =
        Delivery { provider: "3pl:north-3pl", event_id: Some(&document), reading, body: body.as_bytes() };
    webhook.receiver.receive(&delivery).await.map_or_else(|problem| problem.status, |answer| answer.status)
}

async fn of_a_buyer(shop: &Shop, dice: &mut Dice) -> u16 {
    let order = shop.tenant.orders[usize::try_from(dice.roll(2)).unwrap()];
    let wanted: Vec<(Uuid, i64)> = dice
        .skus()
        .into_iter()
        .filter(|sku| *sku < 3)
        .map(|sku| (shop.tenant.skus[sku], 1 + dice.roll(3)))
        .collect();
    if wanted.is_empty() {
        return 0;
    }
    let back = dice.roll(3) == 0;
    let path = format!("/orders/{order}/{}", if back { "release" } else { "allocate" });
    let event = Event::post(&path).bearer(&shop.tenant.token()).key(&fresh_key()).json(&lines(&wanted));
    let sandbox = shop.db.endpoint();
    let answer = if back {
        release::handle(&sandbox, event.request()).await
    } else {
        allocate::handle(&sandbox, event.request()).await
    };
    Reply::from(answer).status
}

async fn of_a_person(shop: &Shop, dice: &mut Dice) -> u16 {
    let (table, open) =
        if dice.roll(2) == 0 { ("inbox_exception", "resolved_at") } else { ("shortfall", "settled_at") };
    let sql = format!(
        "select coalesce((select id from {table} where {open} is null order by md5(id::text || '{}') limit 1), gen_random_uuid())",
        dice.roll(1_000)
    );
    let id: Uuid =
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut shop.db.owner().await).await.unwrap();
    match table {
        "shortfall" => settle(shop, id, json!({"note": "seen"})).await.status,
        _ => retry_by_id(shop, id).await.status,
    }
}

async fn work(shop: &Shop, worker: usize) -> Vec<u16> {
    let (webhook, mut dice) = (webhook(shop), Dice(u64::try_from(worker).unwrap() + 11));
    let mut statuses = Vec::new();
    for _ in 0..ROUNDS {
        statuses.push(match dice.roll(8) {
            0..=2 => of_the_shop(&webhook, &mut dice).await,
            3..=4 => of_the_3pl(shop, &webhook, &mut dice).await,
            5..=6 => of_a_buyer(shop, &mut dice).await,
            _ => of_a_person(shop, &mut dice).await,
        });
    }
    statuses
}

#[tokio::test]
async fn whoever_meets_whom_nobody_deadlocks_and_the_numbers_agree() {
    let (shop, _) = open(Seed { skus: 3, on_hand: 5, order_qty: 1_000, ..Seed::default() }).await;
    let tenant = shop.tenant.id;
    shop.db
        .execute(format!(
            "insert into threepl_account (id, tenant_id, secret) values ('north-3pl', '{tenant}', 'x')"
        ))
        .await;
    let statuses = join_all((0..WORKERS).map(|worker| work(&shop, worker))).await.concat();
    assert!(statuses.iter().all(|status| *status < 500), "{statuses:?}");
    shop.db.assert_consistent().await;
    // Units that are gone are booked out as far as ATS covers them: none is for sale.
    let phantoms = "sku_position p join shortfall s using (tenant_id, sku_id)
        where p.on_hand + p.on_order > p.allocated and s.owed_on_hand + s.owed_on_order > 0";
    assert_eq!(shop.db.count(phantoms).await, 0);
    let waiting = "sku_position p join channel_hold h using (tenant_id, sku_id)
        where p.on_hand + p.on_order > p.allocated and h.qty_held < h.qty_wanted";
    assert_eq!(shop.db.count(waiting).await, 0, "nothing is missing while there is ATS");
    let held = "channel_hold h where h.qty_held
        <> coalesce((select sum(a.qty) from allocation_ledger a where a.order_id = h.channel_order_id and a.sku_id = h.sku_id), 0)";
    assert_eq!(shop.db.count(held).await, 0, "each order's holds are its ledger");
    let counted = "(select h.sku_id, sum(h.qty_counted) as qty from channel_hold h join shortfall s on s.id = h.shortfall_id and s.settled_at is null group by 1) h
        join shortfall s on s.sku_id = h.sku_id and s.cause = 'channel_order' and s.settled_at is null
        where s.qty <> h.qty + s.owed_on_hand";
    assert_eq!(shop.db.count(counted).await, 0, "an open shortfall is what is missing and what is owed");
    // on_order is the open rest of the ASNs, plus units that will not come and are not booked out yet.
    let expected = "sku_position p where p.on_order <> coalesce((select sum(l.on_order) from asn_line l where l.sku_id = p.sku_id), 0)
        + coalesce((select sum(s.owed_on_order) from shortfall s where s.sku_id = p.sku_id), 0)";
    assert_eq!(shop.db.count(expected).await, 0);
    shop.db.assert_no_deadlock().await;
    let busy = [
        "inbox_exception where resolved_at is not null",
        "shortfall",
        "stock_ledger where entry_type = 'shortfall'",
    ];
    for table in busy {
        assert!(shop.db.count(table).await > 0, "it came to {table}");
    }
}
