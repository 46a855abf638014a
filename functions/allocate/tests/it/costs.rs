//! What an allocation must not pay for: bounds on the blocks that it reads, which a busy machine does not change.

use sqlx::{AssertSqlSafe, Executor, PgConnection};
use testing::{Seed, Shop};

/// Blocks of a table and of its indexes that one more promise of one unit reads, in a session of its own; rolled back. The
/// first promises of a session read system catalogs, but none of these blocks more.
async fn blocks_of_a_promise(shop: &Shop, table: &str) -> i64 {
    let (tenant, order, sku) = (shop.tenant.id, shop.tenant.orders[0], shop.tenant.skus[0]);
    let mut session: PgConnection = shop.db.app().await;
    let promise = format!(
        "begin; select set_config('app.tenant_id', '{tenant}', true);
         select holdfast.promise('{tenant}', '{order}', '[{{\"skuId\":\"{sku}\",\"qty\":1}}]', 'test')"
    );
    session.execute(AssertSqlSafe(promise)).await.unwrap();
    let read = format!(
        "select sum(pg_stat_get_xact_blocks_fetched(c.oid))::bigint from pg_class c
         where c.oid = '{table}'::regclass or c.oid in (select indexrelid from pg_index where indrelid = '{table}'::regclass)"
    );
    let blocks = sqlx::query_scalar(AssertSqlSafe(read)).fetch_one(&mut session).await.unwrap();
    session.execute("rollback").await.unwrap();
    blocks
}

#[tokio::test]
async fn the_ordered_queues_of_others_cost_an_allocation_nothing() {
    let shop = Shop::open(Seed { on_hand: 100, order_qty: 100, ..Seed::default() }).await;
    let destination = shop.db.destination(&shop.tenant, "https://example.com/", &["*"]).await.id;
    shop.db
        .execute(format!(
            "update destination set ordered = true where id = '{destination}';
             alter table outbox set (autovacuum_enabled = off);
             analyze outbox"
        ))
        .await;
    let alone = blocks_of_a_promise(&shop, "outbox").await;
    // Half of them are this destination's; the statistics still call the table empty.
    let tenant = shop.tenant.id;
    shop.db
        .execute(format!(
            "insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload,
               keyed, next_attempt_at)
             select '{tenant}', case when n % 2 = 0 then '{destination}'::uuid else gen_random_uuid() end, gen_random_uuid(), 'sku',
               gen_random_uuid(), 1, 'sku.ats_changed', '{{}}', true, 'infinity' from generate_series(1, 20000) n"
        ))
        .await;
    let beside = blocks_of_a_promise(&shop, "outbox").await;
    println!("blocks of the outbox: {alone} alone, {beside} beside 20,000 rows");
    // Deeper indexes: each row of the outbox is put into three or four of them.
    assert!(beside <= alone + 40, "{alone} blocks alone, {beside} beside 20,000 rows");
}

#[tokio::test]
async fn events_of_one_aggregate_in_one_request_form_one_queue() {
    let shop = Shop::open(Seed { skus: 3, on_hand: 100, order_qty: 100, ..Seed::default() }).await;
    for types in ["*", "order.line_allocated", "sku.ats_changed"] {
        let id = shop.db.destination(&shop.tenant, "https://example.com/", &[types]).await.id;
        shop.db.execute(format!("update destination set ordered = true where id = '{id}'")).await;
    }
    let (tenant, order) = (shop.tenant.id, shop.tenant.orders[0]);
    let lines = testing::lines(&[0, 1, 2].map(|n| (shop.tenant.skus[n], 1)))["lines"].to_string();
    let mut session = shop.db.app().await;
    for _ in 0..2 {
        let promise = format!(
            "begin; select set_config('app.tenant_id', '{tenant}', true);
             select holdfast.promise('{tenant}', '{order}', '{lines}', 'test'); commit"
        );
        session.execute(AssertSqlSafe(promise)).await.unwrap();
    }
    // Of each queue only the first event is due.
    let heads = "(select distinct on (destination_id, aggregate_id) id from outbox order by destination_id, aggregate_id, sequence) h";
    let queues = shop.db.count(heads).await;
    assert_eq!(queues, 2 + 3 * 2, "the order's at two destinations, the SKUs' at two");
    assert_eq!(shop.db.count("outbox where next_attempt_at < 'infinity'").await, queues);
    let due = format!("outbox o join {heads} using (id) where o.next_attempt_at < 'infinity'");
    assert_eq!(shop.db.count(&due).await, queues);
    assert_eq!(shop.db.count("outbox").await, 2 * (3 + 3) * 2);
}

#[tokio::test]
async fn the_versions_of_a_hot_position_that_an_old_snapshot_keeps_are_walked_twice_at_most() {
    let shop = Shop::open(Seed { on_hand: 100, order_qty: 100, ..Seed::default() }).await;
    let held = shop
        .db
        .hold("set transaction isolation level repeatable read; select count(*) from sku_position".into())
        .await;
    shop.db
        .execute(format!(
            "do $$ begin
               for n in 1 .. 3000 loop
                 update sku_position set event_sequence = event_sequence + 1 where sku_id = '{}';
                 commit;
               end loop;
             end $$",
            shop.tenant.skus[0]
        ))
        .await;
    let pages: i64 = shop.db.scalar("select pg_relation_size('sku_position') / 8192").await;
    assert!(pages > 20, "the snapshot keeps nothing: {pages} pages");
    let blocks = blocks_of_a_promise(&shop, "sku_position").await;
    println!("{blocks} blocks of {pages} pages");
    // A guess without a lock, and the UPDATE; with some blocks of the index.
    assert!(blocks < pages * 5 / 2 + 10, "{blocks} blocks of {pages} pages");
    held.let_go().await;
}
