//! Published sample bodies, through every topic, with what a merchant expects of stock: `on_hand allocated` of each SKU of six on hand.

use testing::case;

use super::*;

const CODES: [&str; 4] = ["IPOD2008GREEN", "IPOD2008RED", "IPOD2008BLACK", "IPOD2009BLACK"];
const NOTHING: &str = "6 0, 6 0, 6 0, 6 0";
/// Topics whose body is an order that goes on.
const GOES_ON: [&str; 4] = ["orders/create", "orders/updated", "orders/paid", "orders/partially_fulfilled"];

/// A sample; what it holds while it goes on; after it was shipped; after it was cancelled. The first has three lines of one unit, two
/// of them refunded and restocked; the shipment of one of these failed.
const ORDERS: [(&str, &str, &str); 5] = [
    ("order-450789469", "6 0, 6 1, 6 0, 6 0", "6 0, 6 1, 6 0, 6 0"),
    ("order-cancelled-1", NOTHING, NOTHING),
    // A line with neither SKU nor variant is no goods.
    ("order-created-1", NOTHING, NOTHING),
    ("order-created-2", "6 0, 6 0, 6 0, 6 1", "6 0, 6 0, 6 0, 5 0"),
    ("order-created-3", "6 0, 6 0, 6 0, 6 1", "6 0, 6 0, 6 0, 5 0"),
];

async fn shop_with_these_skus() -> (Shop, Webhook) {
    let (shop, webhook) = open(Seed { skus: 4, ..Seed::default() }).await;
    for (sku, code) in shop.tenant.skus.iter().zip(CODES) {
        shop.db.execute(format!("update sku set code = '{code}' where id = '{sku}'")).await;
    }
    (shop, webhook)
}

#[tokio::test]
async fn every_published_order_through_every_topic_moves_what_its_merchant_expects() {
    let (shop, webhook) = shop_with_these_skus().await;
    for (name, going_on, shipped) in ORDERS {
        let Some(body) = case(&format!("shopify/payloads/{name}.json")) else { return };
        let topics = GOES_ON.iter().map(|topic| (*topic, going_on));
        let ends = [("orders/fulfilled", shipped), ("orders/cancelled", NOTHING)];
        for (topic, after) in topics.chain(ends) {
            let forget = "begin; set local session_replication_role = replica;
                delete from channel_hold; delete from channel_fulfillment_line; delete from channel_fulfillment;
                delete from channel_refund_line; delete from channel_order_line; delete from channel_order;
                delete from allocation_ledger; delete from stock_ledger where actor <> 'seed';
                update sku_position set on_hand = 6, allocated = 0; commit";
            shop.db.execute(forget).await;
            for id in ["first", "again"] {
                let id = format!("{name} {topic} {id}");
                assert_eq!(send(&webhook, &signed(DOMAIN, &id, topic, &body)).await.json(), received());
                assert_eq!(positions(&shop).await, after, "{id}");
            }
        }
    }
    assert_eq!(shop.db.count("inbox_exception").await, 0);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_published_order_is_refunded_and_cancelled() {
    let (shop, webhook) = shop_with_these_skus().await;
    for (id, topic, name, after) in [
        // The refund is told alone, before its order.
        ("1", "refunds/create", "refund-1", NOTHING),
        ("2", "orders/create", "order-450789469", "6 0, 6 1, 6 0, 6 0"),
        ("3", "orders/cancelled", "order-cancelled-1", NOTHING),
        ("4", "orders/updated", "order-450789469", NOTHING),
    ] {
        let Some(body) = case(&format!("shopify/payloads/{name}.json")) else { return };
        assert_eq!(send(&webhook, &signed(DOMAIN, id, topic, &body)).await.json(), received(), "{name}");
        assert_eq!(positions(&shop).await, after, "{name}");
    }
    shop.db.assert_consistent().await;
}
