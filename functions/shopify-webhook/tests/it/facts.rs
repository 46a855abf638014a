//! What each kind of telling does to stock: edits, part shipments, goods that take nothing, stock that arrives.

use super::*;

fn edit(id: i64, order: i64, second: u32, additions: &[(i64, i64)], removals: &[(i64, i64)]) -> Value {
    let list = |changes: &[(i64, i64)]| {
        changes.iter().map(|(id, delta)| json!({"id": id, "delta": delta})).collect::<Vec<_>>()
    };
    json!({"order_edit": {"id": id, "order_id": order, "committed_at": format!("2026-01-15T09:30:{second:02}+01:00"),
        "line_items": {"additions": list(additions), "removals": list(removals)}}})
}

fn shipment(id: i64, second: u32, status: &str, lines: &[(i64, usize, i64)]) -> Value {
    let lines: Vec<Value> = lines
        .iter()
        .map(|(line, sku, qty)| json!({"id": line, "sku": format!("SKU-{:04}", sku + 1), "variant_id": 1, "quantity": qty}))
        .collect();
    json!({"id": id, "status": status, "updated_at": format!("2026-01-15T09:30:{second:02}+01:00"), "line_items": lines})
}

#[tokio::test]
async fn an_edited_order_ships_what_it_says_now() {
    let (shop, webhook) = open(Seed { on_hand: 10, ..Seed::default() }).await;
    took(&webhook, "1", "orders/create", &order_at(1, 1, &[(11, 0, 3)])).await;
    let edited = edit(5, 1, 2, &[(11, 2), (19, 4)], &[]);
    took(&webhook, "2", "orders/edited", &edited).await;
    assert_eq!(positions(&shop).await, "10 5", "the known line is raised");
    took(&webhook, "3", "orders/edited", &edited).await;
    assert_eq!(positions(&shop).await, "10 5", "once");
    took(&webhook, "4", "orders/updated", &order_at(2, 1, &[(11, 0, 5), (19, 0, 4)])).await;
    assert_eq!(positions(&shop).await, "10 9", "with the body the edit has been counted");
    took(&webhook, "5", "orders/edited", &edit(6, 1, 3, &[], &[(19, 4)])).await;
    assert_eq!(positions(&shop).await, "10 5");
    took(&webhook, "6", "orders/fulfilled", &order_at(4, 1, &[(11, 0, 5)])).await;
    took(&webhook, "7", "orders/create", &order_at(1, 1, &[(11, 0, 3)])).await;
    assert_eq!(positions(&shop).await, "5 0", "five have left, and an older body changes nothing");
    // What is added after it was shipped as a whole waits for its own shipment.
    took(&webhook, "8", "orders/updated", &order_at(5, 1, &[(11, 0, 6)])).await;
    assert_eq!(positions(&shop).await, "5 1");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn of_two_bodies_of_one_second_the_one_triggered_later_counts() {
    let (shop, webhook) = open(Seed { on_hand: 10, ..Seed::default() }).await;
    for (id, lines, triggered) in [("1", 4, "2026-01-15T08:30:09.5Z"), ("2", 3, "2026-01-15T08:30:09.123Z")] {
        let body = order_at(1, 1, &[(11, 0, lines)]).to_string();
        let event =
            signed(DOMAIN, id, "orders/updated", body.as_bytes()).header("X-Shopify-Triggered-At", triggered);
        assert_eq!(send(&webhook, &event).await.json(), received());
    }
    assert_eq!(positions(&shop).await, "10 4");
}

#[tokio::test]
async fn a_removed_line_and_a_lowered_one_give_back_what_is_held_and_never_what_was_shipped() {
    let (shop, webhook) = open(Seed { on_hand: 10, ..Seed::default() }).await;
    let mut body = order_at(1, 1, &[(11, 0, 4), (12, 0, 2)]);
    body["fulfillments"] = json!([shipment(91, 1, "success", &[(11, 0, 3)])]);
    took(&webhook, "1", "orders/partially_fulfilled", &body).await;
    assert_eq!(positions(&shop).await, "7 3");
    took(&webhook, "2", "orders/updated", &order_at(2, 1, &[(11, 0, 2)])).await;
    assert_eq!(positions(&shop).await, "7 0");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_write_off_takes_what_never_was_there_first() {
    let (shop, webhook) = open(Seed { on_hand: 3, ..Seed::default() }).await;
    took(&webhook, "1", "orders/create", &order_at(1, 1, &[(11, 0, 5)])).await;
    assert_eq!(
        (positions(&shop).await, open_shortfalls(&shop).await),
        ("3 3".into(), "channel_order 2".into())
    );
    took(&webhook, "2", "refunds/create", &refund(1, &[(91, 11, 2, "no_restock")])).await;
    assert_eq!((positions(&shop).await, open_shortfalls(&shop).await), ("3 3".into(), String::new()));
    // Its body afterwards: three are left, and two were refunded.
    let mut body = order_at(2, 1, &[(11, 0, 5)]);
    body["line_items"][0]["current_quantity"] = json!(3);
    took(&webhook, "3", "orders/updated", &body).await;
    body["refunds"] = json!([{"id": 1, "refund_line_items": refund_lines(&[(91, 11, 2, "no_restock")])}]);
    body["updated_at"] = json!("2026-01-15T09:30:03+01:00");
    took(&webhook, "4", "orders/updated", &body).await;
    assert_eq!((positions(&shop).await, open_shortfalls(&shop).await), ("3 3".into(), String::new()));
    body["fulfillments"] = json!([shipment(92, 4, "success", &[(11, 0, 3)])]);
    took(&webhook, "5", "orders/fulfilled", &body).await;
    assert_eq!((positions(&shop).await, open_shortfalls(&shop).await), ("0 0".into(), String::new()));
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn shipments_count_by_their_ids_and_one_that_fails_is_held_again() {
    let (shop, webhook) = open(Seed { skus: 2, on_hand: 10, ..Seed::default() }).await;
    let mut body = order_at(1, 1, &[(11, 0, 5), (12, 1, 2)]);
    // A shipment may be told before its order: its units have left.
    let mut first = shipment(91, 1, "success", &[(11, 0, 2)]);
    first["order_id"] = json!(1);
    took(&webhook, "1", "fulfillments/create", &first).await;
    assert_eq!(positions(&shop).await, "8 0, 10 0");
    took(&webhook, "2", "orders/create", &body).await;
    assert_eq!(positions(&shop).await, "8 3, 10 2");
    body["fulfillments"] = json!([
        shipment(91, 1, "success", &[(11, 0, 2)]),
        shipment(92, 2, "pending", &[(11, 0, 1), (12, 1, 2)])
    ]);
    took(&webhook, "3", "orders/partially_fulfilled", &body).await;
    assert_eq!(positions(&shop).await, "7 2, 8 0", "a shipment told twice counts once");
    for (n, status) in [(3, "failure"), (4, "error"), (5, "cancelled")] {
        let mut undone = shipment(92, n, status, &[(11, 0, 1), (12, 1, 2)]);
        undone["order_id"] = json!(1);
        took(&webhook, status, "fulfillments/update", &undone).await;
        assert_eq!(positions(&shop).await, "8 3, 10 2", "{status}");
    }
    took(&webhook, "6", "orders/updated", &body).await;
    assert_eq!(positions(&shop).await, "8 3, 10 2", "what is older changes nothing");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_returned_unit_has_left_and_a_cancelled_one_has_not() {
    for (how, after) in [("return", "9 3"), ("cancel", "8 2"), ("legacy_restock", "8 2")] {
        let (shop, webhook) = open(Seed { on_hand: 10, ..Seed::default() }).await;
        let mut body = order_at(1, 1, &[(11, 0, 5)]);
        body["fulfillments"] = json!([shipment(91, 1, "success", &[(11, 0, 2)])]);
        took(&webhook, "1", "orders/partially_fulfilled", &body).await;
        assert_eq!(positions(&shop).await, "8 3");
        took(&webhook, "2", "refunds/create", &refund(1, &[(51, 11, 1, how)])).await;
        assert_eq!(positions(&shop).await, after, "{how}");
        shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn gift_cards_what_is_not_shipped_and_test_orders_where_the_shop_says_so_take_nothing() {
    let (shop, webhook) = open(Seed { on_hand: 10, ..Seed::default() }).await;
    let mut body = order_at(1, 1, &[(11, 0, 1)]);
    let lines = body["line_items"].as_array_mut().unwrap();
    lines.push(json!({"id": 12, "sku": null, "variant_id": 7, "quantity": 1, "gift_card": true}));
    lines.push(
        json!({"id": 13, "sku": "SKU-0001", "variant_id": 7, "quantity": 1, "requires_shipping": false}),
    );
    body["test"] = json!(true);
    took(&webhook, "1", "orders/create", &body).await;
    assert_eq!((positions(&shop).await, shop.db.count("inbox_exception").await), ("10 1".into(), 0));
    shop.db.execute("update shopify_shop set ignores_test_orders = true").await;
    body["id"] = json!(2);
    took(&webhook, "2", "orders/create", &body).await;
    took(&webhook, "3", "orders/fulfilled", &body).await;
    assert_eq!(positions(&shop).await, "10 1");
    body["test"] = json!(false);
    body["id"] = json!(3);
    took(&webhook, "4", "orders/create", &body).await;
    assert_eq!(positions(&shop).await, "10 2");
}

#[tokio::test]
async fn a_deleted_order_gives_back_what_it_holds_for_good() {
    let (shop, webhook) = open(Seed { on_hand: 10, ..Seed::default() }).await;
    took(&webhook, "1", "orders/create", &order_at(1, 1, &[(11, 0, 3)])).await;
    took(&webhook, "2", "orders/delete", &json!({"id": 1})).await;
    took(&webhook, "3", "orders/updated", &order_at(2, 1, &[(11, 0, 4)])).await;
    assert_eq!(positions(&shop).await, "10 0");
    took(&webhook, "4", "orders/delete", &json!({"id": 2})).await;
    took(&webhook, "5", "orders/create", &order_at(1, 2, &[(21, 0, 3)])).await;
    assert_eq!(positions(&shop).await, "10 0", "deleted before it was created");
    shop.db.assert_consistent().await;
}

/// A receipt through the function that every arrival of goods goes through.
async fn arrive(shop: &Shop, units: i64) {
    let (tenant, sku) = (shop.tenant.id, shop.tenant.skus[0]);
    shop.db
        .execute(format!(
            "begin; select set_config('app.tenant_id', '{tenant}', true);
             select holdfast.shift('{tenant}', array[row('{sku}', {units}, 0, 0, 'receipt')::holdfast.position_change],
               null, null, null, 'test'); commit"
        ))
        .await;
}

async fn held(shop: &Shop) -> String {
    let held = "select string_agg(o.external_id || ':' || h.qty_held, ' ' order by o.external_id)
                from channel_hold h join channel_order o on o.id = h.channel_order_id";
    shop.db.text(held).await
}

#[tokio::test]
async fn arriving_stock_goes_to_who_lacks_it_oldest_first_before_ats_rises() {
    let (shop, webhook) = open(Seed { on_hand: 1, order_qty: 9, ..Seed::default() }).await;
    // Told in another order than they were placed; 10 and 9 at once: the lower number is the older one.
    for (id, placed) in [(30, 3), (10, 2), (9, 2), (20, 1)] {
        let mut body = order_at(1, id, &[(id * 10, 0, 2)]);
        body["created_at"] = json!(format!("2026-01-15T09:0{placed}:00Z"));
        took(&webhook, &id.to_string(), "orders/create", &body).await;
    }
    assert_eq!(held(&shop).await, "10:0 20:0 30:1 9:0");
    assert_eq!(open_shortfalls(&shop).await, "channel_order 7");
    let told = "outbox where event_type = 'sku.ats_changed'";
    let before = shop.db.count(told).await;
    arrive(&shop, 3).await;
    assert_eq!(held(&shop).await, "10:0 20:2 30:1 9:1");
    assert_eq!(open_shortfalls(&shop).await, "channel_order 4");
    assert_eq!(shop.db.count(told).await, before, "nothing came to be for sale");
    arrive(&shop, 9).await;
    assert_eq!(held(&shop).await, "10:2 20:2 30:2 9:2");
    assert_eq!((positions(&shop).await, open_shortfalls(&shop).await), ("13 8".into(), String::new()));
    let last = "select payload::json ->> 'data' from outbox where event_type = 'sku.ats_changed' order by id desc limit 1";
    assert_eq!(shop.db.text(last).await, r#"{"atsAfter":5}"#);
    assert_eq!(shop.db.count(told).await, before + 1, "one event, of what is left");
    // What a buyer releases goes there, too.
    let sandbox = shop.db.endpoint();
    let allocate = shop.allocate(0).key(&testing::fresh_key()).json(&shop.one(0, 5));
    assert_eq!(Reply::from(allocate::handle(&sandbox, allocate.request()).await).status, 200);
    took(&webhook, "40", "orders/create", &order_at(1, 40, &[(400, 0, 2)])).await;
    let release = shop.release(0).key(&testing::fresh_key()).json(&shop.one(0, 3));
    let reply = Reply::from(release::handle(&sandbox, release.request()).await);
    assert_eq!((reply.status, &reply.json()["lines"][0]["atsAfter"]), (200, &json!(1)));
    assert_eq!(held(&shop).await, "10:2 20:2 30:2 40:2 9:2");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn goods_that_left_are_missing_at_the_youngest_order_that_holds_them() {
    let (shop, webhook) = open(Seed { on_hand: 3, ..Seed::default() }).await;
    for id in [1, 2] {
        let mut body = order_at(1, id, &[(id * 10, 0, 2)]);
        body["created_at"] = json!(format!("2026-01-15T09:0{id}:00Z"));
        took(&webhook, &id.to_string(), "orders/create", &body).await;
    }
    assert_eq!(held(&shop).await, "1:2 2:1");
    // The third takes two from the shelf that the books had not given to it.
    let mut body = order_at(1, 3, &[(30, 0, 2)]);
    body["fulfillments"] = json!([shipment(91, 1, "success", &[(30, 0, 2)])]);
    took(&webhook, "3", "orders/fulfilled", &body).await;
    assert_eq!((held(&shop).await, positions(&shop).await), ("1:1 2:0 3:0".into(), "1 1".into()));
    assert_eq!(open_shortfalls(&shop).await, "channel_order 3");
    shop.db.assert_consistent().await;
}
