//! Partial allocations agree with a model that serves one unit after the other; side by side they promise all there was.

use std::sync::Arc;

use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use testing::{Event, Seed, Shop, Tenant, fresh_key};

use crate::desk::answer;

const SKUS: usize = 3;

#[derive(Clone, Debug)]
struct Line {
    ats: i64,
    ordered: i64,
    price: i64,
    allocated: i64,
    invoiced: i64,
}

impl Line {
    fn cost_of_one_more(&self) -> i64 {
        if self.allocated < self.invoiced { 0 } else { self.price }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(Vec<(usize, i64)>),
    Invoice,
    /// Of one SKU, all that is held.
    Release(usize),
}

#[derive(Clone, Debug)]
struct Story {
    lines: Vec<Line>,
    limit: Option<i64>,
    steps: Vec<Step>,
}

fn any_story() -> impl Strategy<Value = Story> {
    let price = prop_oneof![Just(0_i64), Just(70), Just(250), Just(1_000)];
    let line = (0_i64..12, 1_i64..12, price).prop_map(|(ats, ordered, price)| Line {
        ats,
        ordered,
        price,
        allocated: 0,
        invoiced: 0,
    });
    let step = prop_oneof![
        5 => vec((0..SKUS, 1_i64..9), 1..6).prop_map(Step::Allocate),
        1 => Just(Step::Invoice),
        2 => (0..SKUS).prop_map(Step::Release),
    ];
    (vec(line, SKUS), prop::option::weighted(0.8, 0_i64..9_000), vec(step, 1..7))
        .prop_map(|(lines, limit, steps)| Story { lines, limit, steps })
}

/// What the model knows: the lines, the limit, and the unpaid invoices.
struct Model {
    lines: Vec<Line>,
    limit: Option<i64>,
    billed_minor: i64,
}

impl Model {
    fn exposure(&self) -> i64 {
        self.billed_minor
            + self.lines.iter().map(|l| l.price * (l.allocated - l.invoiced).max(0)).sum::<i64>()
    }

    /// The rules that forbid one more unit.
    fn against_one_more(&self, sku: usize) -> Vec<&'static str> {
        let line = &self.lines[sku];
        let over = self.limit.is_some_and(|limit| {
            line.cost_of_one_more() > 0 && self.exposure() + line.cost_of_one_more() > limit
        });
        [
            (line.allocated >= line.ordered, "exceeds_ordered"),
            (over, "credit_limit_exceeded"),
            (line.ats == 0, "insufficient_ats"),
        ]
        .into_iter()
        .filter_map(|(forbids, code)| forbids.then_some(code))
        .collect()
    }

    /// Units given to each line, and the rules that forbade the next one.
    fn serve(&mut self, wanted: &[(usize, i64)]) -> Vec<(i64, Vec<&'static str>)> {
        let mut served = Vec::new();
        for (sku, qty) in wanted {
            let (mut given, mut against) = (0, Vec::new());
            while given < *qty {
                against = self.against_one_more(*sku);
                if !against.is_empty() {
                    break;
                }
                self.lines[*sku].allocated += 1;
                self.lines[*sku].ats -= 1;
                given += 1;
            }
            served.push((given, against));
        }
        served
    }

    /// The code with which all or none refuses what is wanted.
    fn refusal(&self, wanted: &[(usize, i64)]) -> &'static str {
        let of = |sku: usize| wanted.iter().filter(|(s, _)| *s == sku).map(|(_, qty)| qty).sum::<i64>();
        let mut after = self.lines.clone();
        for (sku, line) in after.iter_mut().enumerate() {
            line.allocated += of(sku);
        }
        let after = Model { lines: after, limit: None, billed_minor: self.billed_minor };
        let over = after.lines.iter().any(|l| l.allocated > l.ordered);
        if over {
            "exceeds_ordered"
        } else if self.limit.is_some_and(|limit| after.exposure() > limit) {
            "credit_limit_exceeded"
        } else {
            "insufficient_ats"
        }
    }
}

fn event(tenant: &Tenant, method: &str, verb: &str, body: &Value) -> Event {
    let path = format!("/orders/{}/{verb}", tenant.orders[0]);
    Event::new(method, &path).bearer(&tenant.token()).key(&fresh_key()).json(body)
}

/// Gives the tenant's order and stock the story's numbers.
async fn prepare(shop: &Shop, story: &Story) -> Tenant {
    let seed = Seed { skus: SKUS, on_hand: 0, orders: 1, credit_limit_minor: story.limit, ..Seed::default() };
    let tenant = shop.db.seed(seed).await;
    let id = tenant.id;
    for (sku, line) in tenant.skus.iter().zip(&story.lines) {
        let Line { ats, ordered, price, .. } = line;
        shop.db
            .execute(format!(
                "update order_line set qty = {ordered}, unit_price_minor = {price} where sku_id = '{sku}';
                 update sku_position set on_hand = {ats} where sku_id = '{sku}';
                 insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor)
                   select '{id}', '{sku}', {ats}, 'opening', 'test' where {ats} > 0"
            ))
            .await;
    }
    tenant
}

async fn play(shop: &Shop, story: &Story) {
    let tenant = prepare(shop, story).await;
    let sandbox = shop.db.endpoint();
    let mut model = Model { lines: story.lines.clone(), limit: story.limit, billed_minor: 0 };
    for step in &story.steps {
        match step {
            Step::Allocate(wanted) => {
                let lines: Vec<Value> =
                    wanted.iter().map(|(sku, qty)| json!({"skuId": tenant.skus[*sku], "qty": qty})).collect();
                let reply = answer(
                    &sandbox,
                    &event(&tenant, "POST", "allocate", &json!({"lines": lines, "partial": true})),
                )
                .await;
                let refusal = model.refusal(wanted);
                let served = model.serve(wanted);
                let body = reply.json();
                if served.iter().all(|(given, _)| *given == 0) {
                    assert_eq!((reply.status, body["error"].as_str()), (422, Some(refusal)), "{body}");
                    continue;
                }
                assert_eq!(reply.status, 200, "{body}; the model gives {served:?}");
                let answers = body["lines"].as_array().unwrap();
                assert_eq!(answers.len(), wanted.len());
                for ((line, (given, against)), (sku, qty)) in answers.iter().zip(&served).zip(wanted) {
                    assert_eq!(line["qty"], *given, "{body}; the model gives {served:?}");
                    assert_eq!(
                        (&line["requested"], &line["atsAfter"]),
                        (&json!(qty), &json!(model.lines[*sku].ats))
                    );
                    match line["limitedBy"].as_str() {
                        None => assert_eq!(given, qty, "{body}"),
                        Some(code) => assert!(against.contains(&code), "{body}; forbidden by {against:?}"),
                    }
                }
            }
            Step::Invoice => {
                let owed = model.exposure() - model.billed_minor;
                let reply = answer(&sandbox, &event(&tenant, "POST", "invoices", &json!({}))).await;
                assert_eq!(reply.status, if owed > 0 { 201 } else { 422 }, "{}", reply.json());
                if owed > 0 {
                    assert_eq!(reply.json()["totalMinor"], owed);
                    model.billed_minor += owed;
                    model.lines.iter_mut().for_each(|l| l.invoiced = l.invoiced.max(l.allocated));
                }
            }
            Step::Release(sku) => {
                let held = model.lines[*sku].allocated;
                if held > 0 {
                    let body = json!({"skuId": tenant.skus[*sku], "qty": held});
                    let reply = answer(&sandbox, &event(&tenant, "POST", "release", &body)).await;
                    assert_eq!(reply.status, 200, "{}", reply.json());
                    model.lines[*sku].allocated = 0;
                    model.lines[*sku].ats += held;
                }
            }
        }
        let path = format!("/customers/{}", tenant.customer);
        let customer = answer(&sandbox, &Event::get(&path).bearer(&tenant.token())).await.json();
        assert_eq!(customer["exposureMinor"], model.exposure(), "after {step:?}");
    }
}

#[test]
fn a_partial_allocation_promises_unit_by_unit_what_the_rules_leave() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let shop = runtime.block_on(Shop::open(Seed::default()));
    let config = Config { cases: 24, failure_persistence: None, max_shrink_iters: 60, ..Config::default() };
    TestRunner::new(config)
        .run(&any_story(), |story| {
            runtime.block_on(play(&shop, &story));
            Ok(())
        })
        .unwrap();
    runtime.block_on(shop.db.assert_consistent());
}

/// Twelve orders ask at once for `each` of both SKUs; returns what each SKU's lines hold afterwards, and what was answered.
async fn twelve_at_once(seed: Seed, each: i64) -> (Shop, [i64; 2], i64) {
    let shop = Shop::open(Seed { skus: 2, orders: 12, order_qty: 100, ..seed }).await;
    let asks = (0..12).map(|order| {
        let (sandbox, mut skus) = (Arc::new(shop.db.endpoint()), shop.tenant.skus.clone());
        // Half of them ask in the other order.
        skus.rotate_left(order % 2);
        let lines: Vec<Value> = skus.iter().map(|sku| json!({"skuId": sku, "qty": each})).collect();
        let event = shop.allocate(order).key(&fresh_key()).json(&json!({"lines": lines, "partial": true}));
        tokio::spawn(async move {
            sandbox.db.warm().await;
            answer(&sandbox, &event).await
        })
    });
    let mut answered = 0;
    for reply in join_all(asks.collect::<Vec<_>>()).await {
        let reply = reply.unwrap();
        assert!(matches!(reply.status, 200 | 422), "{reply:?}");
        if reply.status == 200 {
            let lines = reply.json()["lines"].as_array().unwrap().clone();
            answered += lines.iter().map(|line| line["qty"].as_i64().unwrap()).sum::<i64>();
        }
    }
    let mut held = [0; 2];
    for (held, sku) in held.iter_mut().zip(&shop.tenant.skus) {
        *held = sqlx::query_scalar("select sum(qty_allocated)::bigint from order_line where sku_id = $1")
            .bind(sku)
            .fetch_one(&mut shop.db.owner().await)
            .await
            .unwrap();
    }
    shop.db.assert_consistent().await;
    (shop, held, answered)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn side_by_side_they_promise_exactly_what_there_was_or_what_was_wanted() {
    let (_shop, held, answered) = twelve_at_once(Seed { on_hand: 40, ..Seed::default() }, 7).await;
    assert_eq!((held, answered), ([40, 40], 80), "all there was: 12 × 7 wanted");
    let (_shop, held, answered) = twelve_at_once(Seed { on_hand: 40, ..Seed::default() }, 3).await;
    assert_eq!((held, answered), ([36, 36], 72), "all that was wanted: 12 × 3 of 40");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn side_by_side_they_pass_neither_the_limit_nor_the_ats() {
    // The limit buys 25 of the 50 units that are there.
    let seed = Seed { on_hand: 25, unit_price_minor: 10, credit_limit_minor: Some(259), ..Seed::default() };
    let (_shop, held, answered) = twelve_at_once(seed, 4).await;
    assert!(held.iter().all(|units| *units <= 25), "{held:?}");
    assert_eq!((held.iter().sum::<i64>(), answered), (25, 25), "never less than the limit buys");
    // Both bind: of each SKU there are ten, and the limit buys all of them.
    let seed = Seed { on_hand: 10, unit_price_minor: 10, credit_limit_minor: Some(200), ..Seed::default() };
    let (_shop, held, answered) = twelve_at_once(seed, 4).await;
    assert_eq!((held, answered), ([10, 10], 20));
}
