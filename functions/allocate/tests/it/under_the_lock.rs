//! A request sees what changed while it waited for a lock: rules are checked under locks, not before.

use serde_json::json;
use shared::http::json::fingerprint;
use testing::{Reply, Seed, Shop, fresh_key, lines};

use crate::{hex, send};

fn seed() -> Seed {
    Seed {
        skus: 2,
        on_hand: 10,
        orders: 2,
        order_qty: 10,
        unit_price_minor: 10,
        credit_limit_minor: Some(10_000),
    }
}

/// Sends an allocation that must wait for the open transaction `change`, commits that, and returns the answer.
async fn answer_after(shop: &Shop, qtys: [i64; 2], change: String) -> Reply {
    keyed_answer_after(shop, &fresh_key(), qtys, change).await
}

async fn keyed_answer_after(shop: &Shop, key: &str, qtys: [i64; 2], change: String) -> Reply {
    let hold = shop.db.hold(change).await;
    let wanted: Vec<_> = shop.tenant.skus.iter().copied().zip(qtys).filter(|(_, qty)| *qty > 0).collect();
    let sandbox = shop.db.endpoint();
    let event = shop.allocate(0).key(key).json(&lines(&wanted));
    let (reply, ()) = tokio::join!(send(&sandbox, &event), async {
        shop.db.until_blocked(1).await;
        hold.let_go().await;
    });
    assert_eq!(send(&sandbox, &event).await.body, reply.body);
    reply
}

#[tokio::test]
async fn stock_that_went_meanwhile_is_not_promised() {
    for qtys in [[8, 0], [8, 1]] {
        let shop = Shop::open(seed()).await;
        let (tenant, sku) = (shop.tenant.id, shop.tenant.skus[0]);
        let change = format!(
            "insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor) values ('{tenant}', '{sku}', -3, 'count', 'x');
             update sku_position set on_hand = on_hand - 3 where sku_id = '{sku}'"
        );
        let reply = answer_after(&shop, qtys, change).await;
        assert_eq!(reply.error().as_deref(), Some("insufficient_ats"));
        assert_eq!(reply.json()["lines"], json!([{"skuId": sku, "requested": 8, "available": 7}]));
        shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn stock_that_came_meanwhile_is_promised() {
    for qtys in [[10, 0], [10, 1]] {
        let shop = Shop::open(Seed { on_hand: 4, ..seed() }).await;
        let (tenant, sku) = (shop.tenant.id, shop.tenant.skus[0]);
        let change = format!(
            "insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor) values ('{tenant}', '{sku}', 7, 'count', 'x');
             update sku_position set on_hand = on_hand + 7 where sku_id = '{sku}'"
        );
        let reply = answer_after(&shop, qtys, change).await;
        assert_eq!((reply.status, &reply.json()["lines"][0]["atsAfter"]), (200, &json!(1)), "{reply:?}");
        shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn an_order_that_ended_meanwhile_gets_nothing() {
    for status in ["cancelled", "shipped"] {
        let shop = Shop::open(seed()).await;
        let change =
            format!("update wholesale_order set status = '{status}' where id = '{}'", shop.tenant.orders[0]);
        let reply = answer_after(&shop, [1, 1], change).await;
        assert_eq!((reply.status, reply.error().as_deref()), (409, Some("order_not_open")));
        assert_eq!(shop.db.count("allocation_ledger").await, 0);
    }
}

#[tokio::test]
async fn a_size_run_that_was_cut_meanwhile_is_the_one_that_counts() {
    let shop = Shop::open(seed()).await;
    let (order, [first, second]) = (shop.tenant.orders[0], shop.tenant.skus[..].try_into().unwrap());
    let change = format!(
        "select 1 from wholesale_order where id = '{order}' for no key update;
         update order_line set qty = 3 where order_id = '{order}' and sku_id = '{first}';
         delete from order_line where order_id = '{order}' and sku_id = '{second}'"
    );
    let reply = answer_after(&shop, [4, 1], change).await;
    assert_eq!(reply.error().as_deref(), Some("sku_not_on_order"));
    let change = format!(
        "select 1 from wholesale_order where id = '{order}' for no key update;
         update order_line set qty = 2 where order_id = '{order}' and sku_id = '{first}'"
    );
    let reply = answer_after(&shop, [3, 0], change).await;
    assert_eq!(reply.json()["lines"], json!([{"skuId": first, "requested": 3, "available": 2}]));
}

#[tokio::test]
async fn a_credit_limit_that_was_lowered_and_an_invoice_that_came_meanwhile_count() {
    let shop = Shop::open(seed()).await;
    let (tenant, customer) = (shop.tenant.id, shop.tenant.customer);
    let change = format!("update customer set credit_limit_minor = 30 where id = '{customer}'");
    let reply = answer_after(&shop, [2, 2], change).await;
    assert_eq!(
        (reply.error().as_deref(), &reply.json()["limit"]),
        (Some("credit_limit_exceeded"), &json!(30))
    );
    let change = format!(
        "select 1 from customer where id = '{customer}' for no key update;
         insert into invoice (tenant_id, customer_id, total_minor, currency) values ('{tenant}', '{customer}', 25, 'USD')"
    );
    let reply = answer_after(&shop, [1, 0], change).await;
    assert_eq!(
        (reply.error().as_deref(), &reply.json()["exposure"]),
        (Some("credit_limit_exceeded"), &json!(25))
    );
}

#[tokio::test]
async fn a_key_that_another_transaction_records_meanwhile_decides() {
    for (same, status) in [(true, 201), (false, 422)] {
        let shop = Shop::open(seed()).await;
        let path = format!("/orders/{}/allocate", shop.tenant.orders[0]);
        let body = lines(&[(shop.tenant.skus[0], 2)]);
        let recorded = if same { body } else { json!({}) };
        let hash = hex(&fingerprint("POST", &path, "", &recorded));
        // Locks that the claim does not hold, as if they had been lost.
        let change = format!(
            "insert into idempotency_key (tenant_id, key, request_method, request_path, request_hash, response_status,
               response_body, response_content_type)
             values ('{}', 'k', 'POST', '{path}', '\\x{hash}', 201, '{{}}', 'application/json')",
            shop.tenant.id
        );
        let reply = keyed_answer_after(&shop, "k", [2, 0], change).await;
        assert_eq!(reply.status, status, "{reply:?}");
        assert_eq!(reply.header("idempotent-replayed").is_some(), same);
        assert_eq!(shop.db.count("allocation_ledger").await, 0, "what ran beside it was undone");
        shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn a_transaction_that_the_database_gave_up_runs_again() {
    for code in ["serialization_failure", "deadlock_detected"] {
        let shop = Shop::open(seed()).await;
        shop.db
            .execute(format!(
                "create sequence tries; grant usage on sequence tries to holdfast_app;
                 create function break_it() returns trigger language plpgsql as $$ begin
                   if nextval('tries') < 3 then raise 'again' using errcode = '{code}'; end if; return new; end $$;
                 create trigger break_it before insert on allocation_ledger for each row execute function break_it()"
            ))
            .await;
        let reply = send(&shop.db.endpoint(), &shop.allocate(0).key("k").json(&shop.one(0, 2))).await;
        assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None), "{reply:?}");
        assert_eq!(shop.db.count("allocation_ledger").await, 1);
        assert_eq!(shop.db.scalar::<i64>("select last_value from tries").await, 3);
        shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn a_session_that_a_failover_left_on_a_read_only_server_is_given_up() {
    let shop = Shop::open(seed()).await;
    if shop.db.is_pooled() {
        testing::left_out("behind a pooler, which answers for the server");
        return;
    }
    let name = shop.db.name().to_owned();
    shop.db.execute(format!("alter database {name} set default_transaction_read_only = on")).await;
    let sandbox = shop.db.endpoint();
    sandbox.db.warm().await;
    let event = shop.allocate(0).key("k").json(&shop.one(0, 2));
    let reply = send(&sandbox, &event).await;
    assert_eq!((reply.status, reply.error().as_deref()), (503, Some("unavailable")), "{reply:?}");
    // The owner's session is read-only, too, unless it overrides the setting.
    shop.db
        .execute(format!(
            "begin read write; alter database {name} reset default_transaction_read_only; commit"
        ))
        .await;
    let reply = send(&sandbox, &event).await;
    assert_eq!((reply.status, reply.header("idempotent-replayed")), (200, None), "{reply:?}");
    shop.db.assert_consistent().await;
}
