//! Units that are gone but still in the books, because they are promised: never for sale, and booked out as soon as ATS
//! covers them.

use super::*;

async fn release(shop: &Shop, order: usize, sku: usize, qty: i64) -> Value {
    let (tenant, order, line) = (shop.tenant.id, shop.tenant.orders[order], shop.one(sku, qty));
    let sql = format!(
        "begin; select set_config('app.tenant_id', '{tenant}', true);
         create table released as select * from holdfast.give_back('{tenant}', '{order}', '[{line}]', 'user:ben'); commit"
    );
    shop.db.execute(sql).await;
    let content = shop.db.text("select content from released").await;
    shop.db.execute("drop table released").await;
    serde_json::from_str(&content).unwrap()
}

/// `qty owed settled_by note` of every row, oldest first.
async fn rows(shop: &Shop) -> String {
    shop.db.text("select coalesce(string_agg(concat_ws(' ', qty, owed_on_hand + owed_on_order, settled_by, note), ', ' order by opened_at), '') from shortfall").await
}

#[tokio::test]
async fn released_units_that_are_not_there_are_not_for_sale() {
    let (shop, webhook) = open(Seed { on_hand: 10, order_qty: 8, ..Seed::default() }).await;
    promise(&shop, 1, 0, 6).await;
    took(&webhook, "1", &shipped(&shop, 0, "S1", &[("1", 0, 8)])).await;
    assert_eq!((positions(&shop).await, rows(&shop).await), ("6 0 6".into(), "4 4".into()));
    let answer = release(&shop, 1, 0, 3).await;
    assert_eq!(answer["lines"][0]["atsAfter"], json!(0), "the ATS after the whole request");
    assert_eq!((positions(&shop).await, rows(&shop).await), ("3 0 3".into(), "1 1".into()));
    // Of the next three, one is missing and two are there.
    let answer = release(&shop, 1, 0, 3).await;
    assert_eq!(answer["lines"][0]["atsAfter"], json!(2));
    assert_eq!(
        (positions(&shop).await, rows(&shop).await),
        ("2 0 0".into(), "1 0 user:ben covered by now".into())
    );
    let booked = "select string_agg(on_hand_delta::text, ' ' order by created_at) from stock_ledger where entry_type = 'shortfall'";
    assert_eq!(shop.db.text(booked).await, "-3 -1");
    let told = "select string_agg(payload::json -> 'data' ->> 'atsAfter', ' ' order by id) from outbox where event_type = 'sku.ats_changed'";
    assert_eq!(shop.db.text(told).await, "4 0 3 0 3 2");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn what_comes_after_its_asn_was_closed_makes_up_for_what_was_missing() {
    let (shop, webhook) = open(Seed { skus: 2, on_hand: 0, ..Seed::default() }).await;
    took(&webhook, "1", &announced("A", &[("1", 0, 10), ("2", 1, 5)])).await;
    promise(&shop, 0, 0, 6).await;
    took(&webhook, "2", &arrived("A", "R1", &[("1", 0, 3)], true)).await;
    assert_eq!((positions(&shop).await, rows(&shop).await), ("3 3 6, 0 0 0".into(), "3 3".into()));
    took(&webhook, "3", &arrived("A", "R2", &[("1", 0, 2)], false)).await;
    assert_eq!((positions(&shop).await, rows(&shop).await), ("5 1 6, 0 0 0".into(), "1 1".into()));
    took(&webhook, "4", &arrived("A", "R3", &[("1", 0, 9)], false)).await;
    assert_eq!(positions(&shop).await, "14 0 6, 0 0 0");
    assert_eq!(rows(&shop).await, "1 0 3pl:north-3pl/4 covered by now");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_person_settles_and_the_rest_is_booked_all_the_same() {
    let (shop, webhook) = open(Seed { on_hand: 0, ..Seed::default() }).await;
    took(&webhook, "1", &announced("A", &[("1", 0, 6)])).await;
    promise(&shop, 0, 0, 6).await;
    took(&webhook, "2", &cancelled("A")).await;
    let tenant = shop.tenant.id;
    let settle = format!("begin; select set_config('app.tenant_id', '{tenant}', true);
        select holdfast.settle_shortfall(jsonb_build_object('tenantId', '{tenant}', 'id', (select id from shortfall),
          'actor', 'user:x', 'note', 'bought elsewhere')); commit");
    shop.db.execute(settle).await;
    assert_eq!(
        rows(&shop).await,
        "6 6 user:x bought elsewhere",
        "settled; the promise stands, and so the books"
    );
    assert_eq!(positions(&shop).await, "0 6 6");
    took(&webhook, "3", &announced("B", &[("1", 0, 4)])).await;
    assert_eq!((positions(&shop).await, open_shortfalls(&shop).await), ("0 6 6".into(), String::new()));
    // Two causes, two rows; the older one is booked first.
    took(&webhook, "4", &cancelled("B")).await;
    assert_eq!(rows(&shop).await, "6 2 user:x bought elsewhere, 4 4");
    release(&shop, 0, 0, 3).await;
    assert_eq!(
        (positions(&shop).await, rows(&shop).await),
        ("0 3 3".into(), "6 0 user:x bought elsewhere, 3 3".into())
    );
    shop.db.assert_consistent().await;
}
