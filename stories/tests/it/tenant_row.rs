//! One row per tenant is a queue: nothing waits for it but what takes an order's number, and that comes last.

use serde_json::json;
use testing::Seed;

use crate::desk::Desk;

/// Takes what a request that counts on the tenant's row would take.
async fn hold_the_tenant(desk: &Desk) -> testing::Hold {
    let tenant = desk.shop.tenant.id;
    desk.shop.db.hold(format!("select from tenant where id = '{tenant}' for no key update")).await
}

#[tokio::test]
async fn exceptions_and_destinations_count_on_their_own_rows() {
    let desk = Desk::open(Seed { skus: 2, on_hand: 10, orders: 1, order_qty: 5, ..Seed::default() }).await;
    let [told, gone] =
        [0, 1].map(|_| desk.shop.db.destination(&desk.shop.tenant, "https://example.com/", &["*"]));
    let (told, gone) = (told.await.id, gone.await.id);
    let held = hold_the_tenant(&desk).await;
    // Neither the warehouse nor a buyer waits.
    desk.ship(0, &[(0, 7)]).await;
    desk.promise(0, 1, 3).await;
    let mut worker = desk.shop.db.owner().await;
    let disable = format!("select holdfast.disable_destination('{gone}', 'answered 410 Gone')");
    let disabled: bool =
        sqlx::query_scalar(sqlx::AssertSqlSafe(disable)).fetch_one(&mut worker).await.unwrap();
    assert!(disabled);
    held.let_go().await;

    let exception = format!(
        "outbox o join inbox_exception e on e.id = o.aggregate_id
         where o.event_type = 'inbox.exception' and o.aggregate_type = 'inbox_exception' and o.sequence = 1
           and e.event_sequence = 1 and o.destination_id in ('{told}', '{gone}')"
    );
    assert_eq!(desk.shop.db.count(&exception).await, 2);
    let disabled = format!(
        "outbox where event_type = 'destination.disabled' and aggregate_type = 'destination' and aggregate_id = '{gone}'
           and sequence = 1 and destination_id = '{told}'"
    );
    assert_eq!(desk.shop.db.count(&disabled).await, 1);
    assert_eq!(desk.shop.db.count("outbox where aggregate_type = 'tenant'").await, 0);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn an_order_waits_for_its_number_with_all_else_done_and_others_pass_it_before() {
    let desk = Desk::open(Seed { skus: 2, on_hand: 10, orders: 1, order_qty: 5, ..Seed::default() }).await;
    let create = |sku: usize| {
        let lines = json!([{"skuId": desk.sku(sku), "qty": 1, "unitPriceMinor": 100}]);
        desk.event("POST", "/orders", &json!({"customerId": desk.shop.tenant.customer, "lines": lines}))
    };
    // The first order's line waits for its SKU; the second order has another.
    let held = desk.shop.db.hold(format!("select from sku where id = '{}' for update", desk.sku(0))).await;
    let first = create(0);
    let other = desk.shop.db.endpoint();
    let waiting =
        tokio::spawn(async move { testing::Reply::from(order_save::handle(&other, first.request()).await) });
    desk.shop.db.until_blocked(1).await;
    let passed = desk.send(&create(1)).await;
    held.let_go().await;
    let waited = waiting.await.unwrap();
    assert_eq!((passed.status, waited.status), (201, 201), "{passed:?} {waited:?}");
    let number = |reply: &testing::Reply| reply.json()["number"].as_str().unwrap().parse::<i64>().unwrap();
    assert_eq!(number(&waited), number(&passed) + 1, "numbers go without a gap to those that commit");
    desk.shop.db.assert_consistent().await;
}
