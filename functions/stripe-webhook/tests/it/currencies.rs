//! Stripe's amounts in currencies that it counts in another way than ISO 4217.

use super::*;

#[tokio::test]
async fn an_invoice_is_paid_by_its_total_in_every_special_currency() {
    let (shop, webhook) = open().await;
    let at_stripe = [
        ("ISK", 500_000),
        ("UGX", 500_000),
        ("MGA", 50),
        ("HUF", 5_000),
        ("TWD", 5_000),
        ("BIF", 5_000),
        ("CLP", 5_000),
        ("DJF", 5_000),
        ("GNF", 5_000),
        ("JPY", 5_000),
        ("KMF", 5_000),
        ("KRW", 5_000),
        ("PYG", 5_000),
        ("RWF", 5_000),
        ("VND", 5_000),
        ("VUV", 5_000),
        ("XAF", 5_000),
        ("XOF", 5_000),
        ("XPF", 5_000),
        ("BHD", 5_000),
        ("JOD", 5_000),
        ("KWD", 5_000),
        ("OMR", 5_000),
        ("TND", 5_000),
    ];
    for (currency, whole) in at_stripe {
        let (invoice, pi) = (invoice_in(&shop, currency, 5_000).await, format!("pi_{currency}"));
        let part = whole / 50;
        for (id, amount, is) in [("a", part, "awaiting_payment 100 0"), ("b", whole - part, "paid 5000 0")] {
            let mut event = succeeded(&format!("{currency}_{id}"), &format!("{pi}_{id}"), invoice, amount);
            event["data"]["object"]["currency"] = json!(currency.to_lowercase());
            tell(&webhook, &event).await;
            assert_eq!(state(&shop, invoice).await, is, "{currency}");
        }
        let mut back = refunded(&format!("{currency}_c"), &format!("{pi}_a"), part, part);
        back["data"]["object"]["currency"] = json!(currency.to_lowercase());
        tell(&webhook, &back).await;
        assert_eq!(state(&shop, invoice).await, "awaiting_payment 5000 100", "{currency}");
    }
    assert_eq!(shop.db.count("inbox_exception").await, 0);
    let isk = invoice_in(&shop, "ISK", 50).await;
    let mut odd = succeeded("odd", "pi_odd", isk, 5_050);
    odd["data"]["object"]["currency"] = json!("isk");
    tell(&webhook, &odd).await;
    assert_eq!(
        shop.db
            .count("inbox_exception where reason = 'data.object.amount_received is no whole amount'")
            .await,
        1
    );
}
