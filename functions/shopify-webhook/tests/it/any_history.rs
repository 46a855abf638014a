//! Whatever a shop does to its orders, and however its deliveries arrive, stock ends as the rules say of the facts.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use testing::Tenant;
use uuid::Uuid;

use super::history::{Message, any_story, messages};
use super::rules::{Stock, wants};
use super::*;

/// The messages in an order of arrival that `keys` choose, each twice.
fn arrival(told: &[Message], keys: &[u32]) -> Vec<Message> {
    let twice = told.iter().chain(told).cloned().zip(keys.iter().cycle().zip(0_u32..));
    let mut keyed: Vec<(u32, Message)> = twice
        .map(|(message, (key, n))| (key.wrapping_mul(2_654_435_761).rotate_left(n % 31), message))
        .collect();
    keyed.sort_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, message)| message).collect()
}

/// A shop of its own for a new tenant with so much of two SKUs.
async fn another(shop: &Shop, on_hand: i64) -> (Tenant, String) {
    let tenant = shop.db.seed(Seed { skus: 2, on_hand, orders: 0, ..Seed::default() }).await;
    let domain = format!("{}.myshopify.com", tenant.id);
    let id = tenant.id;
    shop.db
        .execute(format!("insert into shopify_shop (domain, tenant_id) values ('{domain}', '{id}')"))
        .await;
    (tenant, domain)
}

fn told_as_text(messages: &[Message]) -> String {
    messages.iter().map(|message| format!("\n{} {}", message.topic, message.body)).collect()
}

async fn deliver(webhook: &Webhook, domain: &str, messages: &[Message]) {
    for message in messages {
        let (id, body) = (Uuid::new_v4().to_string(), message.body.to_string());
        let reply = send(webhook, &signed(domain, &id, message.topic, body.as_bytes())).await;
        assert_eq!((reply.status, reply.json()), (200, received()), "{message:?}");
    }
}

async fn stock(shop: &Shop, tenant: &Tenant) -> Vec<Stock> {
    let id = tenant.id;
    let sql = format!(
        "select p.on_hand, p.allocated, coalesce((select sum(s.qty) from shortfall s
           where s.sku_id = p.sku_id and s.settled_at is null), 0)::bigint
         from sku_position p where p.tenant_id = '{id}' order by p.sku_id"
    );
    sqlx::query_as(sqlx::AssertSqlSafe(sql)).fetch_all(&mut shop.db.owner().await).await.unwrap()
}

fn run<S: Strategy>(cases: u32, strategy: &S, test: impl Fn(&S::Value) -> Result<(), TestCaseError>)
where
    S::Value: Clone,
{
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    TestRunner::new(config).run(strategy, |value| test(&value)).unwrap();
}

#[test]
fn one_order_ends_as_the_rules_say_whatever_arrives_first() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (shop, webhook) = runtime.block_on(open(Seed::default()));
    let any = (any_story(true), [1_i64..=6, 0_i64..=4], 0_i64..=12, vec(any::<u32>(), 1..40));
    run(60, &any, |(story, ordered, on_hand, keys)| {
        let told = messages(1, *ordered, story);
        let arrived = arrival(&told, keys);
        let expected: Vec<Stock> = wants(&told).map(|wants| wants.of(*on_hand)).to_vec();
        let ended = runtime.block_on(async {
            let (tenant, domain) = another(&shop, *on_hand).await;
            deliver(&webhook, &domain, &arrived).await;
            stock(&shop, &tenant).await
        });
        prop_assert_eq!(ended, expected, "{}", told_as_text(&arrived));
        Ok(())
    });
    runtime.block_on(shop.db.assert_consistent());
}

#[test]
fn several_orders_share_what_there_is_whatever_arrives_first() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (shop, webhook) = runtime.block_on(open(Seed::default()));
    let order = || (any_story(false), [1_i64..=5, 0_i64..=4]);
    let any = (vec(order(), 2..5), 0_i64..=10, vec(any::<u32>(), 1..60));
    run(40, &any, |(orders, on_hand, keys)| {
        let told: Vec<Vec<Message>> =
            orders.iter().zip(1..).map(|((story, ordered), id)| messages(id, *ordered, story)).collect();
        let of_all = told.iter().map(|told| wants(told)).fold([(0, 0); 2], |sums, wants| {
            [0, 1].map(|sku| (sums[sku].0 + wants[sku].wanted, sums[sku].1 + wants[sku].shipped))
        });
        let expected: Vec<Stock> = of_all
            .iter()
            .map(|(wanted, shipped)| {
                let left = (on_hand - shipped).max(0);
                let held = left.min(*wanted);
                (left, held, wanted - held + (shipped - on_hand).max(0))
            })
            .collect();
        let arrived = arrival(&told.concat(), keys);
        let ended = runtime.block_on(async {
            let (tenant, domain) = another(&shop, *on_hand).await;
            deliver(&webhook, &domain, &arrived).await;
            stock(&shop, &tenant).await
        });
        prop_assert_eq!(ended, expected, "{}", told_as_text(&arrived));
        Ok(())
    });
    runtime.block_on(shop.db.assert_consistent());
}
