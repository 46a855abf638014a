//! The documents, byte for byte: members, their order, and the form of values.

use std::collections::BTreeSet;

use crate::reader::Reader;
use serde_json::json;
use testing::{Reply, Seed, Tenant, TestDb};
use uuid::Uuid;

fn text(reply: &Reply) -> &str {
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    std::str::from_utf8(&reply.body).unwrap()
}

/// A shop whose first order has a value for every member.
async fn shop() -> (TestDb, Tenant) {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { skus: 3, on_hand: 9, orders: 2, ..Seed::default() }).await;
    let (order, [ann, ben], [first, second, third]) =
        (tenant.orders[0], tenant.users, [tenant.skus[0], tenant.skus[1], tenant.skus[2]]);
    db.execute(format!(
        r#"begin;
           update customer set name = 'Café "Zoë" \ Söhne' where id = '{customer}';
           update app_user set display_name = E'Ben\n\U0001F9E5' where id = '{ben}';
           update wholesale_order set customer_po = 'PO "7"', ship_window_start = '2026-02-28', ship_window_end = '2026-03-15',
             notes = E'two\nlines\t\u2028', version = 7, updated_by = '{ben}', created_by = '{ann}',
             updated_at = '2026-01-31T23:59:59.000250+02:00' where id = '{order}';
           update order_line set line_no = 2, qty_shipped = 1, qty_invoiced = 2, unit_price_minor = 10000000000
             where order_id = '{order}' and sku_id = '{first}';
           update order_line set line_no = 1, qty_allocated = 4 where order_id = '{order}' and sku_id = '{third}';
           update order_line set line_no = 1 where order_id = '{order}' and sku_id = '{second}';
           update sku_position set on_hand = -2, on_order = 9, allocated = 4 where sku_id = '{third}';
           commit"#,
        customer = tenant.customer,
    ))
    .await;
    (db, tenant)
}

#[tokio::test]
async fn an_order_shows_its_members_in_the_documented_order_with_its_version_as_etag() {
    let (db, tenant) = shop().await;
    let reader = Reader::of(&db, &tenant);
    let (order, customer, [ann, ben], [first, second, third]) =
        (tenant.orders[0], tenant.customer, tenant.users, [tenant.skus[0], tenant.skus[1], tenant.skus[2]]);
    let reply = reader.get(&format!("/orders/{order}")).await;
    assert_eq!(reply.header("etag"), Some("\"7\""));
    assert_eq!(
        text(&reply),
        [
            format!(r#"{{"id":"{order}","number":"SO-1","customerId":"{customer}","#),
            r#""customerName":"Café \"Zoë\" \\ Söhne","status":"open","currency":"USD","customerPo":"PO \"7\"","#.into(),
            r#""shipWindowStart":"2026-02-28","shipWindowEnd":"2026-03-15","notes":"two\nlines\t"#.to_owned(),
            "\u{2028}".into(),
            r#"","lines":["#.into(),
            format!(r#"{{"skuId":"{second}","code":"SKU-0002","qty":6,"qtyAllocated":0,"qtyShipped":0,"qtyInvoiced":0,"#),
            r#""unitPriceMinor":1000},"#.into(),
            format!(r#"{{"skuId":"{third}","code":"SKU-0003","qty":6,"qtyAllocated":4,"qtyShipped":0,"qtyInvoiced":0,"#),
            r#""unitPriceMinor":1000},"#.into(),
            format!(r#"{{"skuId":"{first}","code":"SKU-0001","qty":6,"qtyAllocated":0,"qtyShipped":1,"qtyInvoiced":2,"#),
            r#""unitPriceMinor":10000000000}],"#.into(),
            format!(r#""version":7,"createdBy":"{ann}","updatedBy":"{ben}","updatedByName":"Ben\n🧥","#),
            r#""updatedAt":"2026-01-31T21:59:59.000250Z"}"#.into(),
        ]
        .concat()
    );
}

#[tokio::test]
async fn what_an_order_lacks_is_null() {
    let (db, tenant) = shop().await;
    let reader = Reader::of(&db, &tenant);
    db.execute(format!("delete from order_line where order_id = '{}'", tenant.orders[1])).await;
    let order = reader.get(&format!("/orders/{}", tenant.orders[1])).await;
    let expected = r#""customerPo":null,"shipWindowStart":null,"shipWindowEnd":null,"notes":null,"lines":[],"version":1,"#;
    assert!(text(&order).contains(expected), "{}", text(&order));
}

#[tokio::test]
async fn a_sku_shows_its_position_and_what_is_available_to_sell() {
    let (db, tenant) = shop().await;
    let reader = Reader::of(&db, &tenant);
    let sku = tenant.skus[2];
    let style: Uuid = db.scalar("select style_id from sku limit 1").await;
    let reply = reader.get(&format!("/skus/{sku}")).await;
    let expected = format!(
        r#"{{"id":"{sku}","code":"SKU-0003","styleId":"{style}","styleName":"Parka","onHand":-2,"onOrder":9,"allocated":4,"ats":3}}"#
    );
    assert_eq!(text(&reply), expected);
    assert_eq!(reply.header("etag"), None, "a SKU has no version");
}

#[tokio::test]
async fn a_style_shows_its_prices_with_its_version_as_etag() {
    let (db, tenant) = shop().await;
    let reader = Reader::of(&db, &tenant);
    let style: Uuid = db.scalar("select id from style limit 1").await;
    db.execute("update style set updated_at = '2026-01-01T00:00:00Z'").await;
    let reply = reader.get(&format!("/styles/{style}")).await;
    let opening = format!(
        r#"{{"id":"{style}","name":"Parka","currency":"USD","wholesaleMinor":1000,"msrpMinor":2000,"version":"#
    );
    let ending = r#""updatedAt":"2026-01-01T00:00:00.000000Z"}"#;
    assert_eq!(text(&reply), format!(r#"{opening}1,"updatedBy":null,"updatedByName":null,{ending}"#));
    assert_eq!(reply.header("etag"), Some("\"1\""));

    let ann = tenant.users[0];
    db.execute(format!("update style set version = 2, updated_by = '{ann}'")).await;
    let reply = reader.get(&format!("/styles/{style}")).await;
    assert_eq!(text(&reply), format!(r#"{opening}2,"updatedBy":"{ann}","updatedByName":"Ann",{ending}"#));
    assert_eq!(reply.header("etag"), Some("\"2\""));
}

#[tokio::test]
async fn an_invoice_shows_whether_it_is_paid() {
    let (db, tenant) = shop().await;
    let reader = Reader::of(&db, &tenant);
    let (id, customer, order) = (Uuid::new_v4(), tenant.customer, tenant.orders[0]);
    db.execute(format!(
        "insert into invoice (tenant_id, id, customer_id, total_minor, currency, created_at)
         values ('{}', '{id}', '{customer}', 9007199254740991, 'USD', '2026-05-01T08:00:00.5Z')",
        tenant.id
    ))
    .await;
    let reply = reader.get(&format!("/invoices/{id}")).await;
    let middle = r#""totalMinor":9007199254740991,"paidMinor":0,"refundedMinor":0,"disputed":false,"payments":[],"currency":"USD","#;
    let ending = r#""createdAt":"2026-05-01T08:00:00.500000Z"}"#;
    assert_eq!(
        text(&reply),
        format!(
            r#"{{"id":"{id}","orderId":null,"customerId":"{customer}","status":"awaiting_payment",{middle}"paidAt":null,{ending}"#
        )
    );
    db.execute(format!(
        "update invoice set status = 'paid', paid_at = '2026-05-02T00:00:00Z', order_id = '{order}'"
    ))
    .await;
    assert_eq!(
        text(&reader.get(&format!("/invoices/{id}")).await),
        format!(
            r#"{{"id":"{id}","orderId":"{order}","customerId":"{customer}","status":"paid",{middle}"paidAt":"2026-05-02T00:00:00.000000Z",{ending}"#
        )
    );
}

#[tokio::test]
async fn list_items_are_the_whole_objects() {
    let (db, tenant) = shop().await;
    let reader = Reader::of(&db, &tenant);
    for (list, one, id) in
        [("/orders?q=SO-1", "/orders", tenant.orders[0]), ("/skus?q=0003", "/skus", tenant.skus[2])]
    {
        let item = reader.get(&format!("{one}/{id}")).await;
        assert_eq!(text(&reader.get(list).await), format!(r#"{{"items":[{}],"next":null}}"#, text(&item)));
    }
}

#[tokio::test]
async fn a_customer_shows_what_it_owes_and_holds_as_the_credit_check_counts_it() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { skus: 2, on_hand: 50, orders: 3, ..Seed::default() }).await;
    let reader = Reader::of(&db, &tenant);
    let (id, customer, idle) = (tenant.id, tenant.customer, Uuid::new_v4());
    let [open, cancelled, shipped] = [tenant.orders[0], tenant.orders[1], tenant.orders[2]];
    db.execute(format!(
        "insert into customer (tenant_id, id, name, currency, credit_limit_minor) values ('{id}', '{idle}', 'Atelier', 'EUR', 0);
         insert into invoice (tenant_id, customer_id, total_minor, currency, status) values
           ('{id}', '{customer}', 700, 'USD', 'awaiting_payment'), ('{id}', '{customer}', 50, 'USD', 'awaiting_payment'),
           ('{id}', '{customer}', 9999, 'USD', 'paid'), ('{id}', '{customer}', 9999, 'USD', 'refunded');
         update order_line set qty_allocated = 3, qty_shipped = 2, qty_invoiced = 1 where order_id = '{open}';
         update order_line set qty_shipped = 3, qty_invoiced = 3 where order_id = '{cancelled}';
         update wholesale_order set status = 'cancelled' where id = '{cancelled}';
         update order_line set qty_shipped = 1, qty_invoiced = 4 where order_id = '{shipped}';
         update wholesale_order set status = 'shipped' where id = '{shipped}'"
    ))
    .await;
    // Two lines of 3 + 2 - 1 units at 1,000; a line with more invoiced than held counts as 0.
    let exposure = 750 + 2 * 4 * 1000;
    let list = reader.get("/customers").await.json();
    let seen = |index: usize| {
        let item = list["items"][index].as_object().unwrap();
        assert_eq!(
            item.keys().map(String::as_str).collect::<BTreeSet<_>>(),
            BTreeSet::from([
                "id",
                "name",
                "currency",
                "creditLimitMinor",
                "exposureMinor",
                "onHold",
                "version",
                "updatedBy",
                "updatedByName",
                "updatedAt",
            ])
        );
        json!([
            item["id"],
            item["name"],
            item["currency"],
            item["creditLimitMinor"],
            item["exposureMinor"],
            item["onHold"],
            item["version"],
            item["updatedBy"]
        ])
    };
    assert_eq!(seen(0), json!([idle, "Atelier", "EUR", 0, 0, false, 1, null]));
    assert_eq!(seen(1), json!([customer, "Boutique", "USD", null, exposure, false, 1, null]));
    let one = reader.get(&format!("/customers/{customer}")).await;
    assert_eq!((one.header("etag"), one.json()), (Some("\"1\""), list["items"][1].clone()));
    let differing: i64 = db
        .scalar(
            "select count(*) from customer c where holdfast.exposure(c.tenant_id, c.id)
               <> (holdfast.customer_document(c.tenant_id, c.id)::json ->> 'exposureMinor')::numeric",
        )
        .await;
    assert_eq!(differing, 0, "the document and the credit check count alike");
}
