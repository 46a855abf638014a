//! The effect of each event on stock.

use super::*;

#[tokio::test]
async fn an_order_takes_stock_once_however_often_it_is_told() {
    let (shop, webhook) = open(Seed { skus: 2, on_hand: 10, ..Seed::default() }).await;
    // The same SKU on two lines; as doubles the ids would be equal.
    let body = order(BIG, &[(BIG + 2, 0, 2), (BIG + 3, 0, 3), (BIG + 4, 1, 1)]);
    took(&webhook, "1", "orders/create", &body).await;
    assert_eq!(positions(&shop).await, "10 5, 10 1");
    assert_eq!(tell(&webhook, "1", "orders/create", &body).await.json(), duplicate());
    took(&webhook, "2", "orders/create", &body).await;
    shop.db.execute("delete from webhook_inbox").await;
    took(&webhook, "1", "orders/create", &body).await;
    assert_eq!(positions(&shop).await, "10 5, 10 1");
    let ids = shop
        .db
        .text("select string_agg(external_id, ' ' order by external_id) from channel_order_line")
        .await;
    assert_eq!(ids, format!("{} {} {}", BIG + 2, BIG + 3, BIG + 4));
    assert_eq!(shop.db.text("select external_id from channel_order").await, BIG.to_string());
    // The next id is another order.
    took(&webhook, "3", "orders/create", &order(BIG - 1, &[(BIG + 1, 0, 1)])).await;
    assert_eq!(positions(&shop).await, "10 6, 10 1");
    assert_eq!(
        shop.db.count("allocation_ledger where order_kind = 'channel' and entry_type = 'allocate'").await,
        3
    );
    assert_eq!(shop.db.count("outbox where event_type = 'sku.ats_changed'").await, 3);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn what_ats_does_not_cover_is_a_shortfall_and_goes_with_the_order() {
    let (shop, webhook) = open(Seed { on_hand: 3, ..Seed::default() }).await;
    took(&webhook, "1", "orders/create", &order(1, &[(11, 0, 2), (12, 0, 3)])).await;
    assert_eq!(
        (positions(&shop).await, open_shortfalls(&shop).await),
        ("3 3".into(), "channel_order 2".into())
    );
    took(&webhook, "2", "orders/create", &order(2, &[(21, 0, 4)])).await;
    assert_eq!(open_shortfalls(&shop).await, "channel_order 6", "one open row per SKU and cause");
    let told = "select string_agg(payload::json ->> 'data', ' ' order by id) from outbox where event_type = 'inventory.shortfall'";
    assert_eq!(
        shop.db.text(told).await,
        r#"{"qty":2,"cause":"channel_order"} {"qty":6,"cause":"channel_order"}"#
    );
    took(&webhook, "3", "orders/cancelled", &order(2, &[(21, 0, 4)])).await;
    assert_eq!(
        (positions(&shop).await, open_shortfalls(&shop).await),
        ("3 3".into(), "channel_order 2".into())
    );
    // A decrease reduces the shortfall first: the customer still wants three, and three are allocated.
    took(&webhook, "4", "refunds/create", &refund(1, &[(91, 12, 2, "cancel")])).await;
    assert_eq!((positions(&shop).await, open_shortfalls(&shop).await), ("3 3".into(), String::new()));
    took(&webhook, "5", "orders/cancelled", &order(1, &[(11, 0, 2), (12, 0, 3)])).await;
    assert_eq!(positions(&shop).await, "3 0");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn refunds_give_back_as_their_restock_type_says() {
    let restocked = [
        ("cancel", "10 3", "7 0"),
        ("return", "10 3", "7 0"),
        ("legacy_restock", "10 3", "7 0"),
        ("no_restock", "8 3", "5 0"),
    ];
    for (how, unshipped, shipped) in restocked {
        let (shop, webhook) = open(Seed { on_hand: 10, ..Seed::default() }).await;
        let (body, back) = (order(1, &[(11, 0, 5)]), refund(1, &[(91, 11, 2, how)]));
        took(&webhook, "1", "orders/create", &body).await;
        took(&webhook, "2", "refunds/create", &back).await;
        assert_eq!(positions(&shop).await, unshipped, "{how}: before it was shipped");
        took(&webhook, "3", "refunds/create", &back).await;
        assert_eq!(positions(&shop).await, unshipped, "{how}: told again");
        took(&webhook, "4", "orders/fulfilled", &body).await;
        assert_eq!(positions(&shop).await, shipped, "{how}: the rest is shipped");
        // In the other order: shipped, then refunded.
        took(&webhook, "5", "orders/create", &order(2, &[(21, 0, 5)])).await;
        took(&webhook, "6", "orders/fulfilled", &order(2, &[(21, 0, 5)])).await;
        let before: i64 = shop.db.scalar("select on_hand from sku_position").await;
        took(&webhook, "7", "refunds/create", &refund(2, &[(92, 21, 2, how)])).await;
        let after: i64 = shop.db.scalar("select on_hand from sku_position").await;
        assert_eq!(after - before, if how == "no_restock" { 0 } else { 2 }, "{how}: after it was shipped");
        // Then cancelled, too: what was not refunded comes back, and nothing twice.
        took(&webhook, "8", "orders/cancelled", &order(2, &[(21, 0, 5)])).await;
        took(&webhook, "9", "orders/cancelled", &body).await;
        assert_eq!(
            positions(&shop).await,
            if how == "no_restock" { "6 0" } else { "10 0" },
            "{how}: cancelled"
        );
        shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn a_cancelled_order_gives_back_all_but_what_its_own_refunds_wrote_off() {
    let (shop, webhook) = open(Seed { on_hand: 10, ..Seed::default() }).await;
    let mut body = order(1, &[(11, 0, 4), (12, 0, 3)]);
    took(&webhook, "1", "orders/create", &body).await;
    body["refunds"] = json!([{"id": 1, "refund_line_items": refund_lines(&[(91, 11, 1, "cancel"), (92, 12, 2, "no_restock")])}]);
    took(&webhook, "2", "orders/cancelled", &body).await;
    assert_eq!(positions(&shop).await, "8 0");
    took(&webhook, "3", "refunds/create", &refund(1, &[(91, 11, 1, "cancel"), (92, 12, 2, "no_restock")]))
        .await;
    assert_eq!(positions(&shop).await, "8 0", "the refund's own event tells nothing new");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn cancelled_before_created_takes_nothing() {
    let (shop, webhook) = open(Seed::default()).await;
    let body = order(1, &[(11, 0, 4)]);
    took(&webhook, "1", "orders/cancelled", &body).await;
    took(&webhook, "2", "orders/create", &body).await;
    took(&webhook, "3", "orders/fulfilled", &body).await;
    assert_eq!(positions(&shop).await, "6 0");
    assert_eq!(shop.db.count("allocation_ledger").await + shop.db.count("shortfall").await, 0);
    // Fulfilled before created: ships, and created takes nothing more.
    took(&webhook, "4", "orders/fulfilled", &order(2, &[(21, 0, 4)])).await;
    took(&webhook, "5", "orders/create", &order(2, &[(21, 0, 4)])).await;
    assert_eq!(positions(&shop).await, "2 0");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn more_refunded_than_was_ordered_gives_back_no_more_than_was_taken() {
    let (shop, webhook) = open(Seed { skus: 2, on_hand: 10, ..Seed::default() }).await;
    took(&webhook, "1", "orders/create", &order(1, &[(11, 0, 3), (12, 1, 4)])).await;
    // One order line with several refund lines, of one and of several refunds; one refund of an unknown line.
    took(
        &webhook,
        "2",
        "refunds/create",
        &refund(1, &[(91, 11, 1, "cancel"), (92, 11, 1, "return"), (93, 19, 5, "return")]),
    )
    .await;
    assert_eq!(positions(&shop).await, "10 1, 10 4");
    took(
        &webhook,
        "3",
        "refunds/create",
        &refund(1, &[(94, 11, 9, "legacy_restock"), (95, 12, 0, "cancel")]),
    )
    .await;
    assert_eq!(positions(&shop).await, "10 0, 10 4");
    // Of line 11 nothing is left to be written off; of line 12 no more than there is.
    took(
        &webhook,
        "4",
        "refunds/create",
        &refund(1, &[(96, 11, 2, "no_restock"), (97, 12, 9, "no_restock")]),
    )
    .await;
    assert_eq!(positions(&shop).await, "10 0, 6 0");
    took(&webhook, "5", "orders/cancelled", &order(1, &[(11, 0, 3), (12, 1, 4)])).await;
    took(&webhook, "6", "orders/fulfilled", &order(1, &[(11, 0, 3), (12, 1, 4)])).await;
    assert_eq!(positions(&shop).await, "10 0, 6 0");
    assert_eq!(shop.db.count("channel_refund_line").await, 6);
    assert_eq!(shop.db.count("shortfall").await + shop.db.count("inbox_exception").await, 0);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn an_order_is_its_shops_and_a_shop_its_tenants() {
    let (shop, webhook) = open(Seed::default()).await;
    let other = shop.db.seed(Seed::default()).await;
    let (mine, theirs) = (shop.tenant.id, other.id);
    shop.db
        .execute(format!(
            "insert into shopify_shop (domain, tenant_id) values ('birch.myshopify.com', '{mine}'), ('cedar.myshopify.com', '{theirs}')"
        ))
        .await;
    let body = order(1, &[(11, 0, 2)]).to_string();
    // The same order, line and webhook ids at three shops; one sends its name in another letter case.
    for domain in [DOMAIN, "birch.myshopify.com", "Cedar.MyShopify.com"] {
        let event = signed(domain, "1", "orders/create", body.as_bytes());
        assert_eq!(send(&webhook, &event).await.json(), received(), "{domain}");
        assert_eq!(send(&webhook, &event).await.json(), duplicate(), "{domain}");
    }
    assert_eq!(positions(&shop).await, "6 4");
    let at = format!("sku_position where tenant_id = '{theirs}' and allocated = 2");
    assert_eq!(shop.db.count(&at).await, 1);
    let providers = "select string_agg(provider, ' ' order by provider) from webhook_inbox";
    assert_eq!(
        shop.db.text(providers).await,
        "shopify:alder.myshopify.com shopify:birch.myshopify.com shopify:cedar.myshopify.com"
    );
    // A refund there, of a line with the same id, has no effect here.
    let back = refund(1, &[(91, 11, 1, "cancel")]).to_string();
    send(&webhook, &signed("birch.myshopify.com", "r", "refunds/create", back.as_bytes())).await;
    send(&webhook, &signed(DOMAIN, "again", "orders/create", body.as_bytes())).await;
    assert_eq!(positions(&shop).await, "6 3");
    let cancelled = signed("birch.myshopify.com", "2", "orders/cancelled", body.as_bytes());
    send(&webhook, &cancelled).await;
    assert_eq!(positions(&shop).await, "6 2");
    assert_eq!(shop.db.count("channel_order where cancelled_at is not null").await, 1);
    assert_eq!(shop.db.count("channel_order").await, 3);
    let ledger =
        "select string_agg(distinct entry_type || ' ' || actor, ', ') from allocation_ledger where qty < 0";
    assert_eq!(
        shop.db.text(ledger).await,
        "cancel shopify:birch.myshopify.com/2, release shopify:birch.myshopify.com/r"
    );
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn the_ledgers_say_what_was_done_and_an_unhandled_topic_does_nothing() {
    let (shop, webhook) = open(Seed { on_hand: 10, ..Seed::default() }).await;
    let body = order(1, &[(11, 0, 5)]);
    took(&webhook, "0", "orders/risk_assessment_changed", &json!({"provider_id": 1, "order_id": 1})).await;
    took(&webhook, "1", "products/update", &body).await;
    assert_eq!(shop.db.count("webhook_inbox").await, 2);
    assert_eq!(shop.db.count("channel_order").await + shop.db.count("inbox_exception").await, 0);
    took(&webhook, "2", "orders/create", &body).await;
    took(&webhook, "3", "refunds/create", &refund(1, &[(91, 11, 1, "cancel")])).await;
    took(&webhook, "4", "refunds/create", &refund(1, &[(92, 11, 1, "no_restock")])).await;
    took(&webhook, "5", "orders/fulfilled", &body).await;
    took(&webhook, "6", "refunds/create", &refund(1, &[(93, 11, 1, "return")])).await;
    let ledgers = "select string_agg(concat_ws(' ', split_part(actor, '/', 2), entry_type, n), ', ' order by actor, entry_type, kind)
        from (select actor, entry_type, qty as n, 1 as kind from allocation_ledger
              union all select actor, entry_type, on_hand_delta, 2 from stock_ledger where actor <> 'seed') l";
    assert_eq!(
        shop.db.text(ledgers).await,
        "2 allocate 5, 3 release -1, 4 release -1, 4 write_off -1, 5 ship -3, 5 ship -3, 6 return 1"
    );
    // The newest body counts: a line that came later, and one that was raised.
    took(&webhook, "7", "orders/create", &order_at(1, 2, &[(21, 0, 1)])).await;
    took(&webhook, "8", "orders/fulfilled", &order_at(2, 2, &[(21, 0, 3), (22, 0, 2)])).await;
    assert_eq!(positions(&shop).await, "2 0");
    shop.db
        .execute("update channel_order set fulfilled_at = '2020-01-01', cancelled_at = '2020-01-01'")
        .await;
    took(&webhook, "9", "orders/fulfilled", &body).await;
    took(&webhook, "10", "orders/cancelled", &body).await;
    let first = "channel_order where fulfilled_at = '2020-01-01' and cancelled_at = '2020-01-01'";
    assert_eq!(shop.db.count(first).await, 2, "when it was first told");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn lines_without_a_sku_are_no_goods_and_unknown_ones_are_kept_beside_the_known() {
    let (shop, webhook) = open(Seed::default()).await;
    let mut body = order(1, &[(11, 0, 2)]);
    let lines = body["line_items"].as_array_mut().unwrap();
    lines.push(json!({"id": 12, "sku": null, "variant_id": null, "quantity": 3, "title": "Tip"}));
    lines.push(json!({"id": 13, "sku": "SKU-0001", "variant_id": 1, "quantity": 0}));
    took(&webhook, "1", "orders/create", &body).await;
    assert_eq!((positions(&shop).await, shop.db.count("inbox_exception").await), ("6 2".into(), 0));
    body["id"] = json!(2);
    let lines = body["line_items"].as_array_mut().unwrap();
    lines.push(json!({"id": 14, "sku": "NO-SUCH", "variant_id": 5, "quantity": 1}));
    lines.push(json!({"id": 15, "sku": "", "variant_id": 6, "quantity": 1}));
    lines.push(json!({"id": 16, "sku": " SKU-0001 ", "variant_id": 1, "quantity": 1}));
    took(&webhook, "2", "orders/create", &body).await;
    assert_eq!(positions(&shop).await, "6 5");
    let kept =
        "select convert_from(body, 'UTF8') || ' ' || reason from inbox_exception where tenant_id is not null";
    let kept = shop.db.text(kept).await;
    assert_eq!(kept, format!("{body} no SKU of ours: (none, line 15), NO-SUCH"));
    shop.db.assert_consistent().await;
}
