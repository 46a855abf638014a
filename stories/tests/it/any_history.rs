//! After any requests in any order, at the same time as any others: numbers agree with their ledgers; each success has
//! written exactly its ledger lines and events, each refusal nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply, Seed, Shop, Tenant, fresh_key};
use uuid::Uuid;

use crate::send;

const SKUS: usize = 3;
const ORDERS: usize = 2;
const TASKS: usize = 4;

/// A request of one worker.
#[derive(Clone, Debug)]
struct Request {
    releases: bool,
    order: usize,
    lines: Vec<(usize, i64)>,
    flaw: Option<Flaw>,
    /// Whether it is sent a second time.
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

fn any_request() -> impl Strategy<Value = Request> {
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
        .prop_map(|(releases, order, lines, flaw, repeated)| Request {
            releases,
            order,
            lines,
            flaw,
            repeated,
        })
}

/// The event and its idempotency key.
fn event(tenant: &Tenant, request: &Request) -> (Event, String) {
    let unknown = Uuid::new_v4();
    let order =
        if matches!(request.flaw, Some(Flaw::UnknownOrder)) { unknown } else { tenant.orders[request.order] };
    let lines: Vec<Value> = request
        .lines
        .iter()
        .enumerate()
        .map(|(n, (sku, qty))| {
            let sku = if n == 0 && matches!(request.flaw, Some(Flaw::UnknownSku)) {
                unknown
            } else {
                tenant.skus[*sku]
            };
            let qty = if matches!(request.flaw, Some(Flaw::ZeroQty)) { 0 } else { *qty };
            json!({"skuId": sku, "qty": qty})
        })
        .collect();
    let verb = if request.releases { "release" } else { "allocate" };
    let key = fresh_key();
    let mut event = Event::post(&format!("/orders/{order}/{verb}")).json(&json!({"lines": lines}));
    if !matches!(request.flaw, Some(Flaw::NoKey)) {
        event = event.key(&key);
    }
    if !matches!(request.flaw, Some(Flaw::NoToken)) {
        event = event.bearer(&tenant.token());
    }
    (event, key)
}

struct Done {
    request: Request,
    key: String,
    reply: Reply,
}

async fn work(sandbox: Arc<Endpoint>, tenant: Tenant, requests: Vec<Request>) -> Vec<Done> {
    let mut done = Vec::new();
    for request in requests {
        let (event, key) = event(&tenant, &request);
        let reply = send(&sandbox, &event).await;
        if request.repeated {
            let again = send(&sandbox, &event).await;
            assert_eq!(
                (again.status, again.json()["error"].clone()),
                (reply.status, reply.json()["error"].clone())
            );
            assert!(request.flaw.is_some() || again.body == reply.body);
        }
        done.push(Done { request, key, reply });
    }
    done
}

/// Compares the tenant's tables with the answers.
async fn check(shop: &Shop, tenant: &Tenant, done: &[Done]) {
    let (mut entries, mut recorded, mut held) = (0, BTreeSet::new(), BTreeMap::new());
    for Done { request, key, reply } in done {
        let expected: &[u16] = match request.flaw {
            None => &[200, 422],
            Some(Flaw::UnknownSku) => &[422],
            Some(Flaw::UnknownOrder) => &[404],
            Some(Flaw::ZeroQty | Flaw::NoKey) => &[400],
            Some(Flaw::NoToken) => &[401],
        };
        assert!(expected.contains(&reply.status), "{request:?} {reply:?}");
        if matches!(reply.status, 200 | 404 | 422) {
            recorded.insert(key.clone());
        }
        if reply.status == 200 {
            let skus: BTreeSet<usize> = request.lines.iter().map(|(sku, _)| *sku).collect();
            entries += i64::try_from(skus.len()).unwrap();
            for (sku, qty) in &request.lines {
                let line = (tenant.orders[request.order], tenant.skus[*sku]);
                *held.entry(line).or_insert(0) += if request.releases { -qty } else { *qty };
            }
        }
    }
    held.retain(|_, qty| *qty != 0);
    let mut owner = shop.db.owner().await;
    let keys: Vec<String> = sqlx::query_scalar("select key from idempotency_key where tenant_id = $1")
        .bind(tenant.id)
        .fetch_all(&mut owner)
        .await
        .unwrap();
    assert_eq!(
        keys.into_iter().collect::<BTreeSet<_>>(),
        recorded,
        "recorded are the requests that the operation decided, and no others"
    );
    let counts: (i64, i64) = sqlx::query_as(
        "select (select count(*) from allocation_ledger where tenant_id = $1), (select count(*) from outbox where tenant_id = $1)",
    )
    .bind(tenant.id)
    .fetch_one(&mut owner)
    .await
    .unwrap();
    assert_eq!(counts, (entries, entries * 2), "ledger lines and events of the successes only");
    let lines: Vec<(Uuid, Uuid, i64)> = sqlx::query_as(
        "select order_id, sku_id, qty_allocated from order_line where tenant_id = $1 and qty_allocated <> 0",
    )
    .bind(tenant.id)
    .fetch_all(&mut owner)
    .await
    .unwrap();
    let lines: BTreeMap<_, _> = lines.into_iter().map(|(order, sku, qty)| ((order, sku), qty)).collect();
    assert_eq!(lines, held, "a line holds what was allocated and not released");
}

#[test]
fn after_any_history_the_numbers_agree_with_what_was_answered() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let shop = runtime.block_on(Shop::open(Seed::default()));
    let sandboxes: Vec<_> = (0..TASKS).map(|_| Arc::new(shop.db.endpoint())).collect();
    let config = Config { cases: 16, failure_persistence: None, max_shrink_iters: 40, ..Config::default() };
    TestRunner::new(config)
        .run(&vec(vec(any_request(), 1..14), TASKS), |histories| {
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
                    .map(|(requests, sandbox)| tokio::spawn(work(sandbox.clone(), tenant.clone(), requests)));
                let done: Vec<Done> = join_all(tasks).await.into_iter().flat_map(Result::unwrap).collect();
                check(&shop, &tenant, &done).await;
                shop.db.assert_consistent().await;
            });
            Ok(())
        })
        .unwrap();
}
