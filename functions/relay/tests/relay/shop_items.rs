//! What a shop carries, and where.

use std::sync::atomic::Ordering;

use axum::Json;
use serde_json::{Value, json};
use testing::{Seed, TestDb};
use uuid::Uuid;

use crate::shop::{Shop, change, connect, connected, pushes};
use crate::support::{drain, relay, rows};

#[tokio::test]
async fn a_sku_that_the_shop_does_not_carry_is_asked_for_once_a_day_and_makes_no_dead_letter() {
    let shop = Shop::default();
    shop.empty.store(true, Ordering::SeqCst);
    let (db, tenant, partner) = connected(Seed::default(), &shop).await;
    db.execute("update sku set code = 'GONE \"x\"'").await;
    for _ in 0..3 {
        change(&db, &tenant, 0, 1).await;
        let summary = drain(&relay(&db)).await;
        assert_eq!((summary.delivered, summary.failed), (1, 0));
        assert_eq!(partner.received().len(), 1, "asked once");
    }
    let ended = rows(&db).await;
    assert!(
        ended
            .iter()
            .all(|row| row.processed && row.last_error.as_ref().unwrap().contains("no item with SKU GONE"))
    );
    assert_eq!(db.count("destination_health where last_error is not null").await, 0);
    // A person who requeues wants an answer.
    db.execute("select holdfast.back_to_pending(array[3::bigint])").await;
    assert_eq!((drain(&relay(&db)).await.delivered, partner.received().len()), (1, 2));
    // A day later the shop carries it, and gets what is there now, though nothing has changed since.
    shop.empty.store(false, Ordering::SeqCst);
    assert_eq!(drain(&relay(&db)).await.claimed, 0, "not before");
    db.execute("update shopify_inventory_item set ask_after = now()").await;
    assert_eq!(drain(&relay(&db)).await.delivered, 1);
    assert_eq!(shop.set().last().unwrap().1, 9);
    assert_eq!(db.count("shopify_inventory_item where inventory_item_id is not null and ask_after is null and outbox_id is null").await, 1);
    assert_eq!(drain(&relay(&db)).await.claimed, 0);
}

#[tokio::test]
async fn a_location_that_does_not_stock_a_sku_is_asked_again_daily_too() {
    let shop = Shop::default();
    let (db, tenant, partner) = connected(Seed::default(), &shop).await;
    let error = json!({"code": "ITEM_NOT_STOCKED_AT_LOCATION", "field": null, "message": "no"});
    *shop.answer.lock().unwrap() = Some(json!({"data": {"inventorySetQuantities": {"userErrors": [error]}}}));
    for _ in 0..3 {
        change(&db, &tenant, 0, 1).await;
        let summary = drain(&relay(&db)).await;
        assert_eq!((summary.delivered, summary.dead_lettered), (1, 0));
    }
    assert_eq!(pushes(&partner).len(), 1);
    *shop.answer.lock().unwrap() = None;
    db.execute("update shopify_inventory_item set ask_after = now()").await;
    drain(&relay(&db)).await;
    assert_eq!(shop.set(), [("SKU-0001".into(), 9)]);
}

#[tokio::test]
async fn an_exact_sku_is_found_among_however_many_that_begin_with_it() {
    let shop = Shop { longer: 420, ..Shop::default() };
    let (db, tenant, _partner) = connected(Seed::default(), &shop).await;
    change(&db, &tenant, 0, 1).await;
    drain(&relay(&db)).await;
    assert_eq!(shop.set(), [("SKU-0001".into(), 7)]);
}

#[tokio::test]
async fn an_item_that_was_made_anew_in_the_shop_is_looked_up_anew() {
    let shop = Shop::default();
    let (db, tenant, partner) = connected(Seed::default(), &shop).await;
    change(&db, &tenant, 0, 1).await;
    drain(&relay(&db)).await;
    for (made_anew, stored) in [(true, 1), (false, 0)] {
        shop.item.lock().unwrap().push_str("-anew");
        shop.empty.store(!made_anew, Ordering::SeqCst);
        let now = format!("SKU-0001{}", shop.item.lock().unwrap());
        let (of_shop, current) = (shop.clone(), now.clone());
        partner.answer(move |received| {
            let (shop, current) = (of_shop.clone(), current.clone());
            async move {
                let request: Value = serde_json::from_slice(&received.body).unwrap();
                if request["query"].as_str().unwrap().contains("inventoryItems") {
                    return Json(shop.look_up(&request["variables"]));
                }
                let quantity = &request["variables"]["input"]["quantities"][0];
                let known = quantity["inventoryItemId"].as_str().unwrap().ends_with(&current);
                let errors = if known {
                    json!([])
                } else {
                    json!([{"code": "INVALID_INVENTORY_ITEM", "message": "no"}])
                };
                Json(json!({"data": {"inventorySetQuantities": {"userErrors": errors}}}))
            }
        });
        change(&db, &tenant, 0, 1).await;
        let summary = drain(&relay(&db)).await;
        assert_eq!((summary.delivered, summary.failed), (1, 0));
        let what = format!("shopify_inventory_item where inventory_item_id like '%/{now}'");
        assert_eq!(db.count(&what).await, stored);
    }
    assert_eq!(
        db.count("shopify_inventory_item where inventory_item_id is null and ask_after > now()").await,
        1
    );
}

#[tokio::test]
async fn several_locations_of_one_shop_are_several_destinations() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let shop = Shop::default();
    let partner = shop.clone().open().await;
    for location in 1..=2 {
        let id = connect(&db, &tenant, &partner.url).await;
        db.execute(format!(
            "update destination set location_id = 'gid://shopify/Location/{location}' where id = '{id}'"
        ))
        .await;
    }
    change(&db, &tenant, 0, 1).await;
    assert_eq!(drain(&relay(&db)).await.delivered, 2);
    let mut set: Vec<Value> =
        pushes(&partner).iter().map(|push| push["input"]["quantities"][0]["locationId"].clone()).collect();
    set.sort_by_key(Value::to_string);
    assert_eq!(set, ["gid://shopify/Location/1", "gid://shopify/Location/2"]);
}

#[tokio::test]
async fn a_retry_to_another_item_or_location_is_another_push_for_the_shop() {
    let shop = Shop::default();
    let (db, tenant, partner) = connected(Seed::default(), &shop).await;
    *shop.answer.lock().unwrap() = Some(json!({"errors": [{"message": "Internal error"}]}));
    change(&db, &tenant, 0, 1).await;
    for (location, item) in [(1, 7), (2, 7), (2, 8), (2, 8)] {
        db.execute(format!(
            "update destination set location_id = 'gid://shopify/Location/{location}';
             insert into shopify_inventory_item (tenant_id, destination_id, sku_id, inventory_item_id)
             select tenant_id, id, '{}', 'gid://shopify/InventoryItem/{item}' from destination
             on conflict (tenant_id, destination_id, sku_id) do update set inventory_item_id = excluded.inventory_item_id;
             update outbox set next_attempt_at = now()", tenant.skus[0]
        ))
        .await;
        assert_eq!(drain(&relay(&db)).await.failed, 1);
    }
    let keys: Vec<Value> = pushes(&partner).iter().map(|push| push["key"].clone()).collect();
    assert_eq!(keys, ["outbox-1-0-7-7-1", "outbox-1-0-7-7-2", "outbox-1-0-7-8-2", "outbox-1-0-7-8-2"]);
}

#[tokio::test]
async fn a_test_of_a_shop_asks_for_its_location_and_sets_nothing() {
    let shop = Shop::default();
    let (db, _, partner) = connected(Seed::default(), &shop).await;
    let id: Uuid = db.scalar("select id from destination").await;
    for (location, dead) in
        [("null", 0), ("'gid://shopify/Location/2'", 0), ("'gid://shopify/Location/3'", 1)]
    {
        db.execute(format!("update destination set location_id = {location}")).await;
        db.execute(format!(
            "select holdfast.emit_destination_event('{id}', 'destination.test', '{{}}', '{id}', null)"
        ))
        .await;
        let summary = drain(&relay(&db)).await;
        assert_eq!((summary.claimed, summary.dead_lettered), (1, dead), "{location}");
    }
    assert_eq!((shop.set(), partner.received().len()), (vec![], 3));
    assert!(rows(&db).await[2].last_error.as_ref().unwrap().contains("no location gid://shopify/Location/3"));
}
