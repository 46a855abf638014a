//! Shipments of wholesale orders.

use super::*;

#[tokio::test]
async fn a_shipment_lowers_on_hand_and_allocated_and_ends_the_order_when_all_is_gone() {
    let (shop, webhook) = open(Seed { skus: 2, on_hand: 10, ..Seed::default() }).await;
    promise(&shop, 0, 0, 6).await;
    promise(&shop, 0, 1, 6).await;
    took(&webhook, "1", &shipped(&shop, 0, "S1", &[("1", 0, 6), ("2", 1, 2)])).await;
    assert_eq!(positions(&shop).await, "4 0 0, 8 0 4");
    let lines = "select string_agg(concat_ws(' ', qty_allocated, qty_shipped), ', ' order by order_id, sku_id) from order_line where qty_shipped > 0";
    assert_eq!(shop.db.text(lines).await, "0 6, 4 2");
    took(&webhook, "2", &shipped(&shop, 0, "S1", &[("1", 0, 6), ("2", 1, 2)])).await;
    assert_eq!(positions(&shop).await, "4 0 0, 8 0 4", "told again under another id");
    assert_eq!(shop.db.count("wholesale_order where status = 'shipped'").await, 0);
    took(&webhook, "3", &shipped(&shop, 0, "S2", &[("1", 1, 4)])).await;
    assert_eq!(positions(&shop).await, "4 0 0, 4 0 0");
    let order = shop.tenant.orders[0];
    assert_eq!(
        shop.db
            .count(&format!("wholesale_order where id = '{order}' and status = 'shipped' and version = 1"))
            .await,
        1
    );
    let data =
        shop.db.text("select payload::json ->> 'data' from outbox where event_type = 'order.shipped'").await;
    assert_eq!(data, r#"{"version":1,"changed":["status"]}"#);
    assert_eq!(shop.db.count("shortfall").await + shop.db.count("inbox_exception").await, 0);
    assert_eq!(shop.db.count("allocation_ledger where entry_type = 'ship' and qty < 0").await, 3);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn on_hand_may_be_negative_until_the_late_receipt_comes() {
    let (shop, webhook) = open(Seed { on_hand: 0, ..Seed::default() }).await;
    took(&webhook, "1", &announced("A", &[("1", 0, 6)])).await;
    promise(&shop, 0, 0, 6).await;
    took(&webhook, "2", &shipped(&shop, 0, "S1", &[("1", 0, 6)])).await;
    assert_eq!(positions(&shop).await, "-6 6 0");
    took(&webhook, "3", &arrived("A", "R1", &[("1", 0, 6)], true)).await;
    assert_eq!(positions(&shop).await, "0 0 0");
    assert_eq!(shop.db.count("shortfall").await, 0);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn what_leaves_beyond_what_was_held_is_gone_all_the_same() {
    let (shop, webhook) = open(Seed { on_hand: 10, order_qty: 8, ..Seed::default() }).await;
    promise(&shop, 0, 0, 3).await;
    promise(&shop, 1, 0, 6).await;
    // Three were held. Of the five others, one was free and four are promised to the other order.
    took(&webhook, "1", &shipped(&shop, 0, "S1", &[("1", 0, 8)])).await;
    assert_eq!(positions(&shop).await, "6 0 6", "ATS falls to zero, the other order's promise stands");
    assert_eq!(open_shortfalls(&shop).await, "order.shipped 4");
    assert_eq!(shop.db.count("wholesale_order where status = 'shipped'").await, 1);
    assert_eq!(shop.db.count("inbox_exception").await, 0);
    // More than was ordered: a person must see it.
    took(&webhook, "2", &shipped(&shop, 1, "S2", &[("1", 0, 6)])).await;
    took(&webhook, "3", &shipped(&shop, 1, "S3", &[("1", 0, 5)])).await;
    assert_eq!(
        shop.db.count("inbox_exception where event_id = '3' and reason like 'shipped beyond%SKU-0001'").await,
        1
    );
    assert_eq!(shop.db.count("order_line where qty_shipped = 8 and qty_allocated = 0").await, 2);
    assert_eq!(open_shortfalls(&shop).await, "order.shipped 9");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_reason_for_many_lines_stays_short() {
    let (shop, webhook) = open(Seed::default()).await;
    let mut event = shipped(&shop, 0, "S1", &[("1", 0, 9)]);
    let unknown =
        (0..100).map(|n| json!({"lineId": format!("u{n}"), "sku": format!("NO-SUCH-{n}"), "qty": 1}));
    event["lines"].as_array_mut().unwrap().extend(unknown);
    took(&webhook, "1", &event).await;
    assert_eq!(positions(&shop).await, "0 0 0");
    assert_eq!(shop.db.count("inbox_exception where char_length(reason) = 500").await, 1);
}

#[tokio::test]
async fn a_cancelled_order_that_was_shipped_is_shipped_and_before_a_person() {
    let (shop, webhook) = open(Seed::default()).await;
    shop.db.execute("update wholesale_order set status = 'cancelled'").await;
    took(&webhook, "1", &shipped(&shop, 0, "S1", &[("1", 0, 2)])).await;
    assert_eq!(positions(&shop).await, "4 0 0");
    assert_eq!(shop.db.count("inbox_exception where reason = 'the order had been cancelled'").await, 1);
    let other = shop.db.seed(Seed::default()).await;
    let foreign =
        json!({"type": "order.shipped", "orderId": other.orders[0], "lines": lines(&[("1", 0, 1)])});
    took(&webhook, "2", &foreign).await;
    assert_eq!(shop.db.count("inbox_exception where reason = 'there is no such order'").await, 1);
    assert_eq!(shop.db.count("sku_position where on_hand <> 6").await, 1, "another tenant's order is none");
    shop.db.assert_consistent().await;
}
