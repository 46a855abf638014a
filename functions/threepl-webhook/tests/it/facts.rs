//! Adjustments, returns, corrections; whatever a warehouse tells, in any order and twice, ends in one state.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::*;

fn adjusted(reason: &str, of: &[(&str, usize, i64)]) -> Value {
    json!({"type": "inventory.adjusted", "reason": reason, "lines": lines(of)})
}

fn returned(shop: &Shop, order: usize, receipt: &str, of: &[(&str, usize, i64)]) -> Value {
    json!({"type": "order.returned", "orderId": shop.tenant.orders[order], "receiptId": receipt, "lines": lines(of)})
}

#[tokio::test]
async fn a_count_is_adjusted_by_its_lines_once_per_account() {
    let (shop, webhook) = open(Seed { skus: 2, ..Seed::default() }).await;
    took(&webhook, "1", &adjusted("damaged", &[("a1", 0, -2), ("a2", 1, 3)])).await;
    took(&webhook, "2", &adjusted("damaged", &[("a1", 0, -2)])).await;
    assert_eq!(
        positions(&shop).await,
        "4 0 0, 9 0 0",
        "a line id counts once for the account, whatever tells it"
    );
    let ledger =
        "select string_agg(concat_ws(' ', entry_type, on_hand_delta, actor), ', ' order by on_hand_delta)
        from stock_ledger where entry_type <> 'opening'";
    assert_eq!(
        shop.db.text(ledger).await,
        "inventory.adjusted -2 3pl:north-3pl/1, inventory.adjusted 3 3pl:north-3pl/1"
    );
    // A reason of a line says more than that of the whole; one that is no text is no fault of the line.
    let mut told = adjusted("recount", &[("a3", 0, 1), ("a4", 0, 1)]);
    told["lines"][0]["reason"] = json!("found behind a pallet");
    told["lines"][1]["reason"] = json!({"code": 7, "deep": [1, [2]]});
    took(&webhook, "3", &told).await;
    let reasons =
        "select string_agg(concat_ws(' ', line_id, reason), ', ' order by line_id) from threepl_line";
    assert_eq!(shop.db.text(reasons).await, "a1 damaged, a2 damaged, a3 found behind a pallet, a4 recount");
    took(&webhook, "4", &adjusted(&"é".repeat(300), &[("a5", 0, 1)])).await;
    assert_eq!(positions(&shop).await, "7 0 0, 9 0 0");
    assert_eq!(shop.db.count("inbox_exception").await, 0);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_count_below_what_is_promised_is_a_shortfall_until_stock_covers_it() {
    let (shop, webhook) = open(Seed::default()).await;
    promise(&shop, 0, 0, 5).await;
    took(&webhook, "1", &adjusted("theft", &[("1", 0, -4)])).await;
    assert_eq!(positions(&shop).await, "5 0 5", "ATS is 0, and three promised units are missing");
    assert_eq!(open_shortfalls(&shop).await, "inventory.adjusted 3");
    took(&webhook, "2", &adjusted("found", &[("2", 0, 4)])).await;
    assert_eq!(positions(&shop).await, "6 0 5");
    assert_eq!(open_shortfalls(&shop).await, "");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn returned_goods_are_on_hand_again_and_the_bill_stays() {
    let (shop, webhook) = open(Seed { on_hand: 10, ..Seed::default() }).await;
    promise(&shop, 0, 0, 6).await;
    took(&webhook, "1", &shipped(&shop, 0, "S1", &[("1", 0, 6)])).await;
    let before = "select concat_ws(' ', o.status, l.qty, l.qty_allocated, l.qty_shipped, l.qty_invoiced)
        from order_line l join wholesale_order o on o.id = l.order_id where l.qty_shipped > 0";
    let line = shop.db.text(before).await;
    for id in ["2", "3"] {
        took(&webhook, id, &returned(&shop, 0, "R1", &[("1", 0, 2)])).await;
    }
    assert_eq!((positions(&shop).await, shop.db.text(before).await), ("6 0 0".into(), line));
    took(&webhook, "4", &returned(&shop, 0, "R2", &[("1", 0, 1)])).await;
    assert_eq!(positions(&shop).await, "7 0 0", "another return has lines of its own");
    let told =
        "select string_agg(details ->> 'lines', ' ' order by id) from order_change where action = 'returned'";
    let told = shop.db.text(told).await;
    assert!(told.contains(r#""qty": 2"#) && told.contains(r#""qty": 1"#), "{told}");
    shop.db.assert_consistent().await;

    // What is not on the order is there all the same, and a person looks.
    shop.db.execute("delete from order_line l using sku k where k.id = l.sku_id and l.qty_shipped = 0").await;
    took(&webhook, "5", &returned(&shop, 1, "R3", &[("1", 0, 1)])).await;
    assert_eq!(positions(&shop).await, "8 0 0");
    let reason = "select reason from inbox_exception where event_id = '5'";
    assert_eq!(shop.db.text(reason).await, "returned, and not on this order: SKU-0001");
    let nowhere =
        json!({"type": "order.returned", "orderId": uuid::Uuid::new_v4(), "lines": lines(&[("1", 0, 1)])});
    took(&webhook, "6", &nowhere).await;
    assert_eq!(positions(&shop).await, "8 0 0");
    assert_eq!(shop.db.count("inbox_exception where reason = 'there is no such order'").await, 1);
}

#[tokio::test]
async fn a_correction_takes_back_what_its_receipt_brought() {
    let (shop, webhook) = open(Seed { on_hand: 0, ..Seed::default() }).await;
    took(&webhook, "1", &announced("A", &[("1", 0, 10)])).await;
    took(&webhook, "2", &arrived("A", "R1", &[("1", 0, 6)], false)).await;
    took(&webhook, "3", &arrived("A", "R1", &[("1c", 0, -2)], false)).await;
    assert_eq!(positions(&shop).await, "4 6 0", "what did not come is still to come");
    took(&webhook, "4", &arrived("A", "R2", &[("1", 0, 6)], true)).await;
    assert_eq!(positions(&shop).await, "10 0 0");
    // After the end, promised to others: missing on hand, not on order.
    promise(&shop, 0, 0, 6).await;
    promise(&shop, 1, 0, 3).await;
    took(&webhook, "5", &arrived("A", "R2", &[("2c", 0, -3)], false)).await;
    assert_eq!(positions(&shop).await, "9 0 9");
    assert_eq!(shop.db.count("shortfall where qty = 2 and owed_on_hand = 2 and owed_on_order = 0").await, 1);
    // A correction that comes first does not raise what was announced.
    took(&webhook, "6", &announced("B", &[("1", 0, 5)])).await;
    took(&webhook, "7", &arrived("B", "R9c", &[("1", 0, -2)], false)).await;
    took(&webhook, "8", &arrived("B", "R9", &[("1", 0, 5)], false)).await;
    assert_eq!(
        shop.db.text("select concat_ws(' ', on_hand - (select sum(owed_on_hand) from shortfall), on_order) from sku_position").await,
        "10 2"
    );
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn what_nobody_knows_how_to_book_reaches_a_person() {
    let (shop, webhook) = open(Seed::default()).await;
    for (id, topic) in [("1", "inventory.counted"), ("2", "asn.updated"), ("3", ""), ("4", "ASN.CREATED")] {
        took(&webhook, id, &json!({"type": topic, "lines": "whatever"})).await;
    }
    let kept =
        "select string_agg(concat_ws(' ', topic, reason), ', ' order by event_id) from inbox_exception";
    let why = "an event of this type is not handled";
    assert_eq!(
        shop.db.text(kept).await,
        format!("inventory.counted {why}, asn.updated {why},  {why}, ASN.CREATED {why}")
    );
    assert_eq!(shop.db.count("outbox where event_type = 'inbox.exception'").await, 4);
    assert_eq!(positions(&shop).await, "6 0 0");
}

const ORDERS: usize = 2;
const SKUS: usize = 2;
const ON_HAND: i64 = 12;
const ORDER_QTY: i64 = 6;
/// What the two ASNs announce of each SKU.
const ANNOUNCED: [[i64; SKUS]; 2] = [[5, 3], [4, 0]];

#[derive(Clone, Debug)]
enum Fact {
    Announce(usize),
    Receive { asn: usize, sku: usize, units: i64, closes: bool },
    Cancel(usize),
    Adjust { sku: usize, units: i64 },
    Return { order: usize, sku: usize, units: i64 },
    Ship { order: usize, sku: usize, units: i64 },
}

#[derive(Clone, Debug)]
struct History {
    promised: Vec<i64>,
    facts: Vec<Fact>,
    /// Places in `facts`, each twice, in the order of arrival.
    told: Vec<usize>,
}

fn any_history() -> impl Strategy<Value = History> {
    let some =
        |range: std::ops::RangeInclusive<i64>| range.prop_filter("moves something", |units| *units != 0);
    let fact = prop_oneof![
        5 => (0..2_usize, 0..SKUS, some(-4..=6), prop::bool::weighted(0.15))
            .prop_map(|(asn, sku, units, closes)| Fact::Receive { asn, sku, units, closes }),
        1 => (0..2_usize).prop_map(Fact::Cancel),
        4 => (0..SKUS, some(-6..=5)).prop_map(|(sku, units)| Fact::Adjust { sku, units }),
        2 => (0..ORDERS, 0..SKUS, 1..=3_i64).prop_map(|(order, sku, units)| Fact::Return { order, sku, units }),
        4 => (0..ORDERS, 0..SKUS, 1..=3_i64).prop_map(|(order, sku, units)| Fact::Ship { order, sku, units }),
    ];
    (vec(0..=ORDER_QTY, ORDERS * SKUS), vec(fact, 1..14)).prop_flat_map(|(promised, mut facts)| {
        // An order takes no more than it wants; the rest would be for a person.
        let mut shipped = [0; ORDERS * SKUS];
        facts.retain(|fact| match fact {
            Fact::Ship { order, sku, units } => {
                let so_far = &mut shipped[order * SKUS + sku];
                *so_far += units;
                *so_far <= ORDER_QTY
            }
            _ => true,
        });
        facts.extend([Fact::Announce(0), Fact::Announce(1)]);
        let places: Vec<usize> = (0..facts.len()).chain(0..facts.len()).collect();
        (Just(promised), Just(facts), Just(places).prop_shuffle())
            .prop_map(|(promised, facts, told)| History { promised, facts, told })
    })
}

impl History {
    fn event(&self, shop: &Shop, place: usize) -> Value {
        let name = format!("F{place}");
        let asns = ["A", "B"];
        match &self.facts[place] {
            Fact::Announce(asn) => {
                let of: Vec<(&str, usize, i64)> = ["1", "2"]
                    .into_iter()
                    .zip(0..SKUS)
                    .map(|(line, sku)| (line, sku, ANNOUNCED[*asn][sku]))
                    .collect();
                announced(asns[*asn], &of)
            }
            Fact::Receive { asn, sku, units, closes } => {
                arrived(asns[*asn], &name, &[("1", *sku, *units)], *closes)
            }
            Fact::Cancel(asn) => cancelled(asns[*asn]),
            Fact::Adjust { sku, units } => adjusted("count", &[(&name, *sku, *units)]),
            Fact::Return { order, sku, units } => returned(shop, *order, &name, &[("1", *sku, *units)]),
            Fact::Ship { order, sku, units } => shipped(shop, *order, &name, &[("1", *sku, *units)]),
        }
    }

    /// What the rules say of the facts: `on_hand on_order allocated` of each SKU, less what the books still owe.
    fn end(&self) -> Vec<[i64; 3]> {
        (0..SKUS)
            .map(|sku| {
                let mut on_hand = ON_HAND;
                let mut received = [0; 2];
                let mut ended = [false; 2];
                let mut shipped = [0; ORDERS];
                for fact in &self.facts {
                    match fact {
                        Fact::Announce(_) => {}
                        Fact::Cancel(asn) => ended[*asn] = true,
                        Fact::Receive { asn, sku: of, units, closes } => {
                            ended[*asn] |= closes;
                            if *of == sku {
                                received[*asn] += units;
                                on_hand += units;
                            }
                        }
                        Fact::Adjust { sku: of, units } | Fact::Return { sku: of, units, .. }
                            if *of == sku =>
                        {
                            on_hand += units;
                        }
                        Fact::Ship { order, sku: of, units } if *of == sku => {
                            shipped[*order] += units;
                            on_hand -= units;
                        }
                        _ => {}
                    }
                }
                let on_order = (0..2).filter(|asn| !ended[*asn]);
                let on_order = on_order.map(|asn| (ANNOUNCED[asn][sku] - received[asn].max(0)).max(0)).sum();
                let allocated = (0..ORDERS)
                    .map(|order| (self.promised[order * SKUS + sku] - shipped[order]).max(0))
                    .sum();
                [on_hand, on_order, allocated]
            })
            .collect()
    }
}

#[test]
fn facts_in_any_order_each_twice_end_in_the_state_that_the_rules_say() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = Config { cases: 24, failure_persistence: None, max_shrink_iters: 60, ..Config::default() };
    TestRunner::new(config)
        .run(&any_history(), |history| {
            runtime.block_on(async {
                let seed =
                    Seed { skus: SKUS, on_hand: ON_HAND, orders: ORDERS, order_qty: ORDER_QTY, ..Seed::default() };
                let (shop, webhook) = open(seed).await;
                for (place, units) in history.promised.iter().enumerate().filter(|(_, units)| **units > 0) {
                    promise(&shop, place / SKUS, place % SKUS, *units).await;
                }
                for (n, place) in history.told.iter().enumerate() {
                    // Every third delivery is sent again, under its own id too.
                    let (id, event) = (format!("{n}"), history.event(&shop, *place));
                    took(&webhook, &id, &event).await;
                    if n % 3 == 0 {
                        assert_eq!(tell(&webhook, &id, &event).await.json(), duplicate());
                    }
                }
                let ends: Vec<String> = history.end().iter().map(|end| format!("{} {} {}", end[0], end[1], end[2])).collect();
                let net = "select string_agg(concat_ws(' ', p.on_hand - o.on_hand, p.on_order - o.on_order, p.allocated), ', '
                        order by p.sku_id)
                    from sku_position p cross join lateral (
                      select coalesce(sum(s.owed_on_hand), 0) as on_hand, coalesce(sum(s.owed_on_order), 0) as on_order
                      from shortfall s where s.sku_id = p.sku_id) o";
                assert_eq!(shop.db.text(net).await, ends.join(", "), "{history:?}");
                let for_sale = "sku_position p join shortfall s on s.sku_id = p.sku_id
                    where s.owed_on_hand + s.owed_on_order > 0 and p.on_hand + p.on_order > p.allocated";
                assert_eq!(shop.db.count(for_sale).await, 0, "missing units are for sale: {history:?}");
                assert_eq!(shop.db.count("inbox_exception where resolved_at is null").await, 0, "{history:?}");
                shop.db.assert_consistent().await;
            });
            Ok(())
        })
        .unwrap();
}
