//! Which connected account's events count for whom.

use super::*;

fn of(account: &str, mut event: Value) -> Value {
    event["account"] = json!(account);
    event
}

#[tokio::test]
async fn a_tenant_takes_the_events_of_its_own_account_and_of_no_other() {
    let (shop, webhook) = open().await;
    let (invoice, tenant) = (invoice(&shop).await, shop.tenant.id);
    tell(&webhook, &of("acct_1", succeeded("evt_1", "pi_1", invoice, 5_000))).await;
    assert_eq!(
        state(&shop, invoice).await,
        "awaiting_payment 0 0",
        "an unbound tenant takes none of a connected account"
    );
    shop.db
        .execute(format!("insert into stripe_account (tenant_id, id) values ('{tenant}', 'acct_1')"))
        .await;
    tell(&webhook, &succeeded("evt_2", "pi_2", invoice, 5_000)).await;
    tell(&webhook, &of("acct_2", succeeded("evt_3", "pi_3", invoice, 5_000))).await;
    assert_eq!(state(&shop, invoice).await, "awaiting_payment 0 0");
    assert_eq!(shop.db.count("payment_ledger").await, 0);
    let told = format!("inbox_exception where tenant_id = '{tenant}' and reason like '%account%'");
    assert_eq!(shop.db.count(&told).await, 3);
    tell(&webhook, &of("acct_1", succeeded("evt_4", "pi_4", invoice, 5_000))).await;
    assert_eq!(state(&shop, invoice).await, "paid 5000 0");
    tell(&webhook, &of("acct_2", refunded("evt_5", "pi_4", 5_000, 5_000))).await;
    tell(&webhook, &refunded("evt_6", "pi_4", 5_000, 5_000)).await;
    assert_eq!(state(&shop, invoice).await, "paid 5000 0", "nor does a stranger refund");
    tell(&webhook, &of("acct_1", refunded("evt_7", "pi_4", 5_000, 5_000))).await;
    assert_eq!(state(&shop, invoice).await, "refunded 5000 5000");
    shop.db.assert_consistent().await;
}
