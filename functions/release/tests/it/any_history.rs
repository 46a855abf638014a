//! Whatever is asked, in whatever order and beside whatever else: the numbers agree with their ledgers, each success
//! left exactly its lines and events, each refusal nothing.

use std::sync::Arc;

use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use shared::endpoint::Endpoint;
use shared::testing::{Event, Reply, Seed, Shop, Tenant, fresh_key};

use crate::send;

const SKUS: usize = 3;
const ORDERS: usize = 2;
const TASKS: usize = 4;

/// One request that somebody sends, perhaps a second time.
#[derive(Clone, Debug)]
struct Wish {
    releases: bool,
    order: usize,
    lines: Vec<(usize, i64)>,
    flaw: Option<Flaw>,
    repeated: bool,
}

#[derive(Clone, Copy, Debug)]
enum Flaw {
    UnknownSku,
    UnknownOrder,
    ZeroQty,
    NoKey,
    NoToken,
}

fn wish() -> impl Strategy<Value = Wish> {
    let flaw = prop_oneof![
        Just(Flaw::UnknownSku),
        Just(Flaw::UnknownOrder),
        Just(Flaw::ZeroQty),
        Just(Flaw::NoKey),
        Just(Flaw::NoToken)
    ];
    (
        any::<bool>(),
        0..ORDERS,
        vec((0..SKUS, 1_i64..=9), 1..=4),
        prop::option::weighted(0.15, flaw),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(releases, order, lines, flaw, repeated)| Wish {
            releases,
            order,
            lines,
            flaw,
            repeated,
        })
}

/// The event, and whether the key may be recorded by it.
fn event(tenant: &Tenant, wish: &Wish) -> (Event, String) {
    let unknown = uuid::Uuid::new_v4();
    let order = if matches!(wish.flaw, Some(Flaw::UnknownOrder)) {
        unknown
    } else {
        tenant.orders[wish.order]
    };
    let lines: Vec<Value> = wish
        .lines
        .iter()
        .enumerate()
        .map(|(n, (sku, qty))| {
            let sku = if n == 0 && matches!(wish.flaw, Some(Flaw::UnknownSku)) {
                unknown
            } else {
                tenant.skus[*sku]
            };
            let qty = if matches!(wish.flaw, Some(Flaw::ZeroQty)) {
                0
            } else {
                *qty
            };
            json!({"skuId": sku, "qty": qty})
        })
        .collect();
    let verb = if wish.releases { "release" } else { "allocate" };
    let key = fresh_key();
    let mut event = Event::post(&format!("/orders/{order}/{verb}")).json(&json!({"lines": lines}));
    if !matches!(wish.flaw, Some(Flaw::NoKey)) {
        event = event.key(&key);
    }
    if !matches!(wish.flaw, Some(Flaw::NoToken)) {
        event = event.bearer(&tenant.token());
    }
    (event, key)
}

struct Done {
    wish: Wish,
    key: String,
    reply: Reply,
}

async fn live(sandbox: Arc<Endpoint>, tenant: Tenant, wishes: Vec<Wish>) -> Vec<Done> {
    let mut done = Vec::new();
    for wish in wishes {
        let (event, key) = event(&tenant, &wish);
        let reply = send(&sandbox, &event).await;
        if wish.repeated {
            let again = send(&sandbox, &event).await;
            assert_eq!(
                (again.status, again.json()["error"].clone()),
                (reply.status, reply.json()["error"].clone())
            );
            assert!(wish.flaw.is_some() || again.body == reply.body);
        }
        done.push(Done { wish, key, reply });
    }
    done
}

/// What the tenant's tables must hold after what was answered.
async fn check(shop: &Shop, tenant: &Tenant, done: &[Done]) {
    let (mut entries, mut recorded, mut held) = (0, 0, [[0_i64; SKUS]; ORDERS]);
    for Done { wish, key, reply } in done {
        let expected: &[u16] = match wish.flaw {
            None => &[200, 422],
            Some(Flaw::UnknownSku) => &[422],
            Some(Flaw::UnknownOrder) => &[404],
            Some(Flaw::ZeroQty | Flaw::NoKey) => &[400],
            Some(Flaw::NoToken) => &[401],
        };
        assert!(expected.contains(&reply.status), "{wish:?} {reply:?}");
        let keys = i64::from(matches!(reply.status, 200 | 404 | 422));
        assert_eq!(
            shop.db
                .count(&format!("idempotency_key where key = '{key}'"))
                .await,
            keys,
            "{wish:?}"
        );
        recorded += keys;
        if reply.status == 200 {
            let mut skus: Vec<usize> = wish.lines.iter().map(|(sku, _)| *sku).collect();
            skus.sort_unstable();
            skus.dedup();
            entries += i64::try_from(skus.len()).unwrap();
            for (sku, qty) in &wish.lines {
                held[wish.order][*sku] += if wish.releases { -qty } else { *qty };
            }
        }
    }
    let id = tenant.id;
    assert_eq!(
        shop.db
            .count(&format!("allocation_ledger where tenant_id = '{id}'"))
            .await,
        entries
    );
    assert_eq!(
        shop.db.count(&format!("outbox where tenant_id = '{id}'")).await,
        entries * 2
    );
    assert_eq!(
        shop.db
            .count(&format!("idempotency_key where tenant_id = '{id}'"))
            .await,
        recorded
    );
    for (order, held) in tenant.orders.iter().zip(held) {
        for (sku, held) in tenant.skus.iter().zip(held) {
            let line = format!(
                "order_line where order_id = '{order}' and sku_id = '{sku}' and qty_allocated = {held}"
            );
            assert_eq!(
                shop.db.count(&line).await,
                1,
                "the line holds what was granted and not given back: {held}"
            );
        }
    }
}

#[test]
fn after_any_history_the_numbers_agree_with_what_was_answered() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let shop = runtime.block_on(Shop::open(Seed::default()));
    let sandboxes: Vec<_> = (0..TASKS).map(|_| Arc::new(shop.db.endpoint())).collect();
    let config = Config {
        cases: 24,
        failure_persistence: None,
        max_shrink_iters: 40,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&vec(vec(wish(), 1..14), TASKS), |histories| {
            runtime.block_on(async {
                let seed = Seed {
                    skus: SKUS,
                    on_hand: 25,
                    orders: ORDERS,
                    order_qty: 20,
                    unit_price_minor: 10,
                    credit_limit_minor: Some(600),
                };
                let tenant = shop.db.seed(seed).await;
                let tasks = histories
                    .into_iter()
                    .zip(&sandboxes)
                    .map(|(wishes, sandbox)| tokio::spawn(live(sandbox.clone(), tenant.clone(), wishes)));
                let done: Vec<Done> = join_all(tasks)
                    .await
                    .into_iter()
                    .flat_map(Result::unwrap)
                    .collect();
                check(&shop, &tenant, &done).await;
                shop.db.assert_consistent().await;
            });
            Ok(())
        })
        .unwrap();
}
