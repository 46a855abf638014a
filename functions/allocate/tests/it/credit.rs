//! The credit limit holds whatever runs at the same time.

use serde_json::json;
use testing::{Seed, Shop, fresh_key, lines};
use uuid::Uuid;

use crate::{at_once, crowd, send, warm};

/// The contract's exposure, computed from the tables independently.
async fn exposure(shop: &Shop) -> i64 {
    let customer = shop.tenant.customer;
    let sql = format!(
        "select (coalesce((select sum(total_minor) from invoice
                   where customer_id = '{customer}' and status = 'awaiting_payment'), 0)
               + coalesce((select sum(greatest(0, l.qty_allocated + l.qty_shipped - l.qty_invoiced) * l.unit_price_minor)
                   from order_line l join wholesale_order o on o.id = l.order_id and o.tenant_id = l.tenant_id
                   where o.customer_id = '{customer}'), 0))::bigint"
    );
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut shop.db.owner().await).await.unwrap()
}

async fn invoice(shop: &Shop, total_minor: i64) -> Uuid {
    let (id, tenant, customer) = (Uuid::new_v4(), shop.tenant.id, shop.tenant.customer);
    shop.db
        .execute(format!(
            "insert into invoice (tenant_id, id, customer_id, total_minor, currency)
               values ('{tenant}', '{id}', '{customer}', {total_minor}, 'USD')"
        ))
        .await;
    id
}

async fn pay(shop: &Shop, invoice: Uuid) {
    shop.db
        .execute(format!("update invoice set status = 'paid', paid_at = now() where id = '{invoice}'"))
        .await;
}

#[tokio::test]
async fn exposure_counts_awaiting_invoices_and_promised_or_shipped_units_not_yet_invoiced() {
    let shop = Shop::open(Seed {
        skus: 2,
        on_hand: 1_000,
        orders: 4,
        order_qty: 100,
        unit_price_minor: 10,
        credit_limit_minor: Some(5_000),
    })
    .await;
    let sandbox = shop.db.endpoint();
    let [main, over, cancelled, _] = shop.tenant.orders[..].try_into().unwrap();
    let [a, b] = shop.tenant.skus[..].try_into().unwrap();
    invoice(&shop, 1_500).await;
    let paid = invoice(&shop, 100_000).await;
    pay(&shop, paid).await;
    let refunded = invoice(&shop, 100_000).await;
    shop.db.execute(format!("update invoice set status = 'refunded' where id = '{refunded}'")).await;
    // main: 20 shipped, 5 invoiced of A = 150; 40 invoiced of B = 0, never less. over: more invoiced than held = 0.
    // cancelled: what was shipped of it, 5 units of each SKU, is owed. Another customer's order of this tenant does not count either.
    let (tenant, stranger, user, theirs) =
        (shop.tenant.id, Uuid::new_v4(), shop.tenant.users[0], Uuid::new_v4());
    shop.db
        .execute(format!(
            "update order_line set qty_shipped = 20, qty_invoiced = 5 where order_id = '{main}' and sku_id = '{a}';
             update order_line set qty_invoiced = 40 where order_id = '{main}' and sku_id = '{b}';
             update order_line set qty_invoiced = 90 where order_id = '{over}' and sku_id = '{a}';
             update order_line set qty_shipped = 5 where order_id = '{cancelled}';
             update wholesale_order set status = 'cancelled' where id = '{cancelled}';
             insert into customer (tenant_id, id, name, currency) values ('{tenant}', '{stranger}', 'Another', 'USD');
             insert into wholesale_order (tenant_id, id, number, customer_id, currency, created_by, updated_by)
               values ('{tenant}', '{theirs}', 'SO-theirs', '{stranger}', 'USD', '{user}', '{user}');
             insert into order_line (tenant_id, order_id, sku_id, qty, qty_shipped, unit_price_minor)
               values ('{tenant}', '{theirs}', '{a}', 90, 90, 10000)"
        ))
        .await;
    assert_eq!(exposure(&shop).await, 1_750);
    let ask = async |wanted: &[(Uuid, i64)]| {
        send(&sandbox, &shop.allocate(3).key(&fresh_key()).json(&lines(wanted))).await
    };
    shop.db.execute("update customer set credit_limit_minor = 3750").await;
    assert_eq!(ask(&[(a, 100), (b, 100)]).await.status, 200, "1,750 + 2,000 reach 3,750");
    shop.db.execute("update customer set credit_limit_minor = 3800; update order_line set qty = 200").await;
    let problem = ask(&[(a, 3), (b, 3)]).await.json();
    assert_eq!(problem["error"], "credit_limit_exceeded");
    assert_eq!(
        (&problem["limit"], &problem["exposure"], &problem["requested"]),
        (&json!(3_800), &json!(3_750), &json!(60))
    );
    assert_eq!(ask(&[(a, 2), (b, 3)]).await.status, 200);
}

#[tokio::test]
async fn a_request_may_reach_the_limit_and_not_pass_it() {
    let shop = Shop::open(Seed {
        on_hand: 1_000,
        orders: 1,
        order_qty: 1_000,
        unit_price_minor: 7,
        credit_limit_minor: Some(70),
        ..Seed::default()
    })
    .await;
    let sandbox = shop.db.endpoint();
    let ask =
        async |qty: i64| send(&sandbox, &shop.allocate(0).key(&fresh_key()).json(&shop.one(0, qty))).await;
    assert_eq!(ask(4).await.status, 200);
    let refused = ask(7).await;
    assert_eq!((refused.status, refused.error().as_deref()), (422, Some("credit_limit_exceeded")));
    let problem = refused.json();
    assert_eq!(
        (&problem["limit"], &problem["exposure"], &problem["requested"]),
        (&json!(70), &json!(28), &json!(49))
    );
    assert_eq!(ask(6).await.status, 200, "exactly the limit is within it");
    assert_eq!(ask(1).await.json()["exposure"], 70);
    shop.db.execute("update customer set credit_limit_minor = 0").await;
    assert_eq!(ask(1).await.json()["limit"], 0);
    shop.db.execute("update customer set credit_limit_minor = null").await;
    assert_eq!(ask(100).await.status, 200, "no limit is set");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn units_already_invoiced_do_not_count_twice() {
    let shop = Shop::open(Seed {
        on_hand: 1_000,
        orders: 1,
        order_qty: 1_000,
        unit_price_minor: 10,
        credit_limit_minor: Some(1_000),
        ..Seed::default()
    })
    .await;
    let sandbox = shop.db.endpoint();
    let ask =
        async |qty: i64| send(&sandbox, &shop.allocate(0).key(&fresh_key()).json(&shop.one(0, qty))).await;
    assert_eq!(ask(60).await.status, 200);
    let invoice = invoice(&shop, 600).await;
    shop.db.execute("update order_line set qty_invoiced = 60").await;
    assert_eq!(exposure(&shop).await, 600);
    let problem = ask(41).await.json();
    assert_eq!((&problem["exposure"], &problem["requested"]), (&json!(600), &json!(410)));
    assert_eq!(ask(40).await.status, 200);
    pay(&shop, invoice).await;
    assert_eq!(exposure(&shop).await, 400);
    shop.db.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_allocations_of_one_customer_never_pass_its_limit() {
    let _turn = crowd().await;
    let shop = Shop::open(Seed {
        skus: 4,
        on_hand: 100_000,
        orders: 16,
        order_qty: 10_000,
        unit_price_minor: 10,
        credit_limit_minor: Some(3_000),
    })
    .await;
    let sandboxes = warm(&shop, 16).await;
    let (mut granted, mut refused, mut open) = (0, 0, Vec::new());
    for round in 0..20 {
        let events = (0..16)
            .map(|n| {
                shop.allocate(n)
                    .key(&fresh_key())
                    .json(&shop.one((n + round) % 4, 3 + i64::try_from(n % 5).unwrap()))
            })
            .collect();
        // Meanwhile an invoice is created and another is paid. What raises the exposure takes the customer's lock and keeps
        // within the limit itself.
        let others = async {
            match round % 4 {
                1 => open.push(invoice_within_limit(&shop, 400).await),
                3 => pay(&shop, open.pop().flatten().unwrap_or_default()).await,
                _ => {}
            }
        };
        let (replies, ()) = tokio::join!(at_once(&sandboxes, events), others);
        for reply in replies {
            match reply.error().as_deref() {
                None => granted += 1,
                Some("credit_limit_exceeded") => refused += 1,
                // On a very slow machine, with sixteen in one queue: an error, and nothing changed.
                Some("unavailable") => {}
                _ => panic!("{reply:?}"),
            }
        }
        assert!(exposure(&shop).await <= 3_000, "round {round}");
        // Room for the next round: everything is shipped and paid.
        if round % 5 == 4 {
            shop.db.execute("update order_line set qty_invoiced = qty_allocated where sku_id = (select min(id::text)::uuid from sku)").await;
        }
    }
    assert!(granted > 20 && refused > 20, "{granted} granted, {refused} refused");
    shop.db.assert_consistent().await;
}

/// Adds an awaiting invoice under the customer's lock if the limit allows it.
async fn invoice_within_limit(shop: &Shop, total_minor: i64) -> Option<Uuid> {
    let (tenant, customer) = (shop.tenant.id, shop.tenant.customer);
    let hold = shop
        .db
        .hold(format!(
            "select 1 from customer where tenant_id = '{tenant}' and id = '{customer}' for no key update"
        ))
        .await;
    let room = exposure(shop).await + total_minor <= 3_000;
    let id = if room { Some(invoice(shop, total_minor).await) } else { None };
    hold.let_go().await;
    id
}

#[tokio::test]
async fn a_limit_that_is_set_while_an_allocation_runs_counts_what_that_one_promises() {
    let shop = Shop::open(Seed { skus: 2, on_hand: 100, orders: 2, order_qty: 10, ..Seed::default() }).await;
    let sandboxes = warm(&shop, 2).await;
    let held = shop.hold(0).await;
    let event = shop.allocate(0).key(&fresh_key()).json(&shop.one(0, 10));
    let sandbox = sandboxes[0].clone();
    let before = tokio::spawn(async move { send(&sandbox, &event).await });
    shop.db.until_blocked(1).await;
    // 10,000 are being promised, within the limit; another 10,000 would exceed it.
    shop.db
        .execute(format!(
            "update customer set credit_limit_minor = 12000 where id = '{}'",
            shop.tenant.customer
        ))
        .await;
    let event = shop.allocate(1).key(&fresh_key()).json(&shop.one(1, 10));
    let sandbox = sandboxes[1].clone();
    let after = tokio::spawn(async move { send(&sandbox, &event).await });
    shop.db.until_blocked(2).await;
    held.let_go().await;
    assert_eq!(before.await.unwrap().status, 200);
    let refused = after.await.unwrap();
    assert_eq!(refused.error().as_deref(), Some("credit_limit_exceeded"), "{}", refused.json());
    assert_eq!(refused.json()["exposure"], 10_000);
    assert_eq!(exposure(&shop).await, 10_000);
}

#[tokio::test]
async fn a_limit_that_is_set_just_after_two_have_read_that_there_is_none_lets_one_pass() {
    let shop = Shop::open(Seed { on_hand: 100, orders: 2, order_qty: 10, ..Seed::default() }).await;
    let customer = shop.tenant.customer;
    let read_none = shop.db.hold(format!("select pg_advisory_xact_lock(2, uuid_hash('{customer}'))")).await;
    let stock = shop.hold(0).await;
    let running: Vec<_> = warm(&shop, 2)
        .await
        .into_iter()
        .enumerate()
        .map(|(order, sandbox)| {
            let event = shop.allocate(order).key(&fresh_key()).json(&shop.one(0, 10));
            tokio::spawn(async move { send(&sandbox, &event).await.status })
        })
        .collect();
    shop.db.until_blocked(2).await;
    shop.db.execute(format!("update customer set credit_limit_minor = 12000 where id = '{customer}'")).await;
    read_none.let_go().await;
    // One has passed the credit check and waits for the stock; the other must wait for the first one's transaction.
    shop.db
        .until("(select count(*) from pg_locks where locktype = 'advisory' and classid = 2 and granted) = 1")
        .await;
    shop.db.until_blocked(2).await;
    stock.let_go().await;
    let mut statuses = Vec::new();
    for request in running {
        statuses.push(request.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 422]);
    assert_eq!(exposure(&shop).await, 10_000);
}
