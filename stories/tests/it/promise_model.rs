//! Allocate and release agree with a model of their rules: the first rule that is broken refuses, with every line that breaks
//! it, in the order sent; else all is moved.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use testing::{Event, Seed, Shop, fresh_key, lines};
use uuid::Uuid;

use crate::send;

/// SKUs of the orders; the next one exists and is on no order, the one after that is unknown.
const SKUS: usize = 3;
const ORDERS: usize = 2;
const ON_HAND: i64 = 14;
const ORDERED: i64 = 9;
const PRICE_MINOR: i64 = 100;

#[derive(Clone, Debug)]
struct Step {
    allocates: bool,
    order: usize,
    wanted: Vec<(usize, i64)>,
}

#[derive(Clone, Debug)]
struct Story {
    limit: Option<i64>,
    steps: Vec<Step>,
}

fn any_story() -> impl Strategy<Value = Story> {
    let sku = prop_oneof![20 => 0..SKUS, 1 => Just(SKUS), 1 => Just(SKUS + 1)];
    // Mostly one line, as most requests; and mostly of few units, so that much is done before all is gone.
    let wanted = prop_oneof![
        3 => vec((sku.clone(), 1_i64..5), 1),
        3 => vec((sku, prop_oneof![4 => 1_i64..5, 1 => 1_i64..20]), 1..7),
    ];
    let step = (any::<bool>(), 0..ORDERS, wanted).prop_map(|(allocates, order, wanted)| Step {
        allocates,
        order,
        wanted,
    });
    (prop::option::weighted(0.5, 500_i64..4_000), vec(step, 1..25))
        .prop_map(|(limit, steps)| Story { limit, steps })
}

struct Model {
    limit: Option<i64>,
    ats: [i64; SKUS],
    held: [[i64; SKUS]; ORDERS],
}

/// A refusal's code and its lines: SKU, requested, available.
type Refusal = (&'static str, Vec<(usize, i64, i64)>);

impl Model {
    /// What each SKU of the request is wanted of in all, in the order first sent.
    fn sums(wanted: &[(usize, i64)]) -> Vec<(usize, i64)> {
        let mut sums: Vec<(usize, i64)> = Vec::new();
        for (sku, qty) in wanted {
            match sums.iter_mut().find(|(known, _)| known == sku) {
                Some((_, sum)) => *sum += qty,
                None => sums.push((*sku, *qty)),
            }
        }
        sums
    }

    fn refusal(&self, step: &Step) -> Option<Refusal> {
        let sums = Self::sums(&step.wanted);
        let breaking = |available: &dyn Fn(usize) -> Option<i64>| -> Vec<(usize, i64, i64)> {
            let lines = sums.iter().filter_map(|(sku, qty)| Some((*sku, *qty, available(*sku)?)));
            lines.filter(|(_, qty, available)| qty > available).collect()
        };
        let held = self.held[step.order];
        let on_order = |of: &dyn Fn(usize) -> i64| breaking(&|sku| (sku < SKUS).then(|| of(sku)));
        let mut rules = vec![
            ("unknown_sku", breaking(&|sku| (sku > SKUS).then_some(0))),
            ("sku_not_on_order", breaking(&|sku| (sku >= SKUS).then_some(0))),
        ];
        if step.allocates {
            rules.push(("exceeds_ordered", on_order(&|sku| ORDERED - held[sku])));
            let exposure = self.held.iter().flatten().sum::<i64>() * PRICE_MINOR;
            let raise = sums.iter().map(|(_, qty)| qty).sum::<i64>() * PRICE_MINOR;
            if self.limit.is_some_and(|limit| exposure + raise > limit) {
                // Its members are others: the sums.
                rules.push(("credit_limit_exceeded", vec![(0, raise, exposure)]));
            }
            rules.push(("insufficient_ats", on_order(&|sku| self.ats[sku])));
        } else {
            rules.push(("exceeds_allocated", on_order(&|sku| held[sku])));
        }
        rules.into_iter().find(|(_, lines)| !lines.is_empty())
    }

    fn make(&mut self, step: &Step) {
        for (sku, qty) in &step.wanted {
            let qty = if step.allocates { *qty } else { -qty };
            self.held[step.order][*sku] += qty;
            self.ats[*sku] -= qty;
        }
    }
}

async fn tell(story: &Story) {
    let seed = Seed {
        skus: SKUS,
        on_hand: ON_HAND,
        orders: ORDERS,
        order_qty: ORDERED,
        unit_price_minor: PRICE_MINOR,
        credit_limit_minor: story.limit,
    };
    let shop = Shop::open(seed).await;
    let mut skus = shop.tenant.skus.clone();
    skus.extend([Uuid::new_v4(), Uuid::new_v4()]);
    let elsewhere = skus[SKUS];
    shop.db
        .execute(format!("insert into sku (tenant_id, id, code, style_id) select tenant_id, '{elsewhere}', 'ELSEWHERE', style_id from sku limit 1"))
        .await;
    let sandbox = shop.db.endpoint();
    let mut model = Model { limit: story.limit, ats: [ON_HAND; SKUS], held: [[0; SKUS]; ORDERS] };
    for step in &story.steps {
        let verb = if step.allocates { "allocate" } else { "release" };
        let wanted: Vec<_> = step.wanted.iter().map(|(sku, qty)| (skus[*sku], *qty)).collect();
        let order = shop.tenant.orders[step.order];
        let event =
            Event::post(&format!("/orders/{order}/{verb}")).bearer(&shop.tenant.token()).key(&fresh_key());
        let reply = send(&sandbox, &event.json(&lines(&wanted))).await;
        let answer = reply.json();
        let Some((code, refused)) = model.refusal(step) else {
            model.make(step);
            let lines: Vec<Value> = step
                .wanted
                .iter()
                .map(|(sku, qty)| json!({"skuId": skus[*sku], "qty": qty, "atsAfter": model.ats[*sku]}))
                .collect();
            assert_eq!(
                (reply.status, answer),
                (200, json!({"ok": true, "orderId": order, "lines": lines})),
                "{step:?}"
            );
            continue;
        };
        assert_eq!((reply.status, reply.error().as_deref()), (422, Some(code)), "{step:?}: {answer}");
        if code == "credit_limit_exceeded" {
            let (_, requested, exposure) = refused[0];
            let told = [&answer["limit"], &answer["exposure"], &answer["requested"]].map(Value::as_i64);
            assert_eq!(told, [story.limit, Some(exposure), Some(requested)], "{step:?}");
        } else {
            let refused: Vec<Value> = refused
                .iter()
                .map(|(sku, requested, available)| json!({"skuId": skus[*sku], "requested": requested, "available": available}))
                .collect();
            assert_eq!(answer["lines"], json!(refused), "{step:?}");
        }
    }
    for (n, order) in shop.tenant.orders.iter().enumerate() {
        for (sku, held) in model.held[n].iter().enumerate() {
            let line = format!(
                "order_line where order_id = '{order}' and sku_id = '{}' and qty_allocated = {held}",
                skus[sku]
            );
            assert_eq!(shop.db.count(&line).await, 1);
        }
    }
    shop.db.assert_consistent().await;
}

#[test]
fn allocate_and_release_agree_with_a_model_of_their_rules() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = Config { cases: 24, failure_persistence: None, max_shrink_iters: 40, ..Config::default() };
    let run = TestRunner::new(config).run(&any_story(), |story| {
        runtime.block_on(tell(&story));
        Ok(())
    });
    run.unwrap();
}
