//! What Shopify asks of every app: a person's data, a shop that leaves.

use super::*;

const TRACES: [&str; 4] = ["jo@buyer.test", "first_name", "Jo", "#1001"];

async fn bodies(shop: &Shop) -> String {
    text(shop, "select coalesce(string_agg(encode(body, 'escape') || coalesce(command::text, ''), ' ' order by event_id), '') from inbox_exception").await
}

#[tokio::test]
async fn a_redacted_person_is_gone_and_the_order_can_still_be_retried() {
    let (shop, webhook) = open(Seed::default()).await;
    let mut body = order(1, &[(11, 0, 2)]);
    body["line_items"][0]["sku"] = json!("NEW-1");
    took(&webhook, "1", "orders/create", &body).await;
    took(&webhook, "2", "orders/create", &json!({"id": "x", "email": "jo@buyer.test", "line_items": 5}))
        .await;
    took(&webhook, "3", "customers/data_request", &json!({"customer": {"id": 77, "email": "jo@buyer.test"}}))
        .await;
    let mut other = order(2, &[(21, 0, 1)]);
    other["line_items"][0]["sku"] = json!("NEW-2");
    other["customer"] = json!({"id": 78, "first_name": "Kim"});
    other["email"] = json!("kim@buyer.test");
    took(&webhook, "4", "orders/create", &other).await;
    assert_eq!(shop.db.count("inbox_exception").await, 4);

    let redact = json!({"shop_domain": DOMAIN, "customer": {"id": 77, "email": "jo@buyer.test", "phone": null}, "orders_to_redact": [1]});
    took(&webhook, "5", "customers/redact", &redact).await;
    let left = bodies(&shop).await;
    assert!(!["jo@buyer.test", "\"Jo\""].iter().any(|trace| left.contains(*trace)), "{left}");
    assert!(left.contains("kim@buyer.test") && left.contains("Kim"), "another person's stands");
    assert_eq!(shop.db.count("inbox_exception where redacted_at is not null").await, 3);
    // No table of this tenant holds a name to begin with.
    let tables = "select string_agg(o::text || l::text, ' ') from channel_order o, channel_order_line l";
    let kept = text(&shop, &format!("select coalesce(({tables}), '')")).await;
    assert!(!TRACES.iter().any(|trace| kept.contains(trace)), "{kept}");

    shop.db.execute("update sku set code = 'NEW-1'").await;
    let reply = super::exceptions::retry(&shop, "1").await;
    assert_eq!(reply.status, 200);
    assert_eq!(positions(&shop).await, "6 2");
}

#[tokio::test]
async fn a_shop_that_leaves_is_remembered_as_gone_and_its_bodies_erased() {
    let (shop, webhook) = open(Seed::default()).await;
    let mut body = order(1, &[(11, 0, 2)]);
    body["line_items"][0]["sku"] = json!("NEW-1");
    took(&webhook, "1", "orders/create", &body).await;
    took(&webhook, "2", "app/uninstalled", &json!({"id": 5, "domain": DOMAIN})).await;
    assert_eq!(shop.db.count("shopify_shop where uninstalled_at is not null").await, 1);
    assert!(bodies(&shop).await.contains("jo@buyer.test"));
    took(&webhook, "3", "shop/redact", &json!({"shop_id": 5, "shop_domain": DOMAIN})).await;
    let left = bodies(&shop).await;
    assert!(!TRACES.iter().any(|trace| left.contains(trace)), "{left}");
    // A shop that was never ours may ask as well.
    let redact =
        json!({"customer": {"id": 77, "email": "jo@buyer.test"}, "orders_to_redact": [1]}).to_string();
    assert_eq!(
        send(&webhook, &signed("strange.myshopify.com", "1", "orders/create", body.to_string().as_bytes()))
            .await
            .status,
        200
    );
    assert!(bodies(&shop).await.contains("jo@buyer.test"));
    assert_eq!(
        send(&webhook, &signed("strange.myshopify.com", "2", "customers/redact", redact.as_bytes()))
            .await
            .status,
        200
    );
    assert!(!bodies(&shop).await.contains("jo@buyer.test"));
    took(&webhook, "4", "products/update", &json!({"id": 1})).await;
    assert_eq!(shop.db.count("inbox_exception").await, 2);
}
