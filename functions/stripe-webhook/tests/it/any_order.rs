//! Every order of arrival of one invoice's events ends in the same state.

use super::*;

/// All orders of `0..n`.
fn orders(n: usize) -> Vec<Vec<usize>> {
    if n == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(n - 1);
    shorter
        .iter()
        .flat_map(|order| {
            (0..n).map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, n - 1);
                longer
            })
        })
        .collect()
}

/// A paid, partly and then wholly refunded invoice with a failure and a dispute: five facts. With `named` the refunds name their
/// invoice, so they need not wait for the payment.
fn story(tag: &str, invoice: Uuid, named: bool) -> Vec<Value> {
    let pi = format!("pi_{tag}");
    let mut refunds =
        [refunded(&format!("{tag}_p"), &pi, 5_000, 1_000), refunded(&format!("{tag}_r"), &pi, 5_000, 5_000)];
    if named {
        for refund in &mut refunds {
            refund["data"]["object"]["metadata"] = json!({"invoice_id": invoice});
        }
    }
    let [part, rest] = refunds;
    vec![
        event(
            &format!("{tag}_f"),
            "payment_intent.payment_failed",
            json!({"id": pi, "amount": 5_000, "currency": "usd",
            "metadata": {"invoice_id": invoice}, "latest_charge": {"id": format!("ch_0{tag}")}}),
        ),
        succeeded(&format!("{tag}_s"), &pi, invoice, 5_000),
        part,
        rest,
        event(
            &format!("{tag}_d"),
            "charge.dispute.created",
            json!({"id": format!("dp_{tag}"), "payment_intent": {"id": pi},
            "amount": 5_000, "currency": "usd"}),
        ),
    ]
}

#[tokio::test]
async fn every_order_of_arrival_with_duplicates_ends_in_the_same_state() {
    let (shop, webhook) = open().await;
    let all = orders(5);
    assert_eq!(all.len(), 120);
    let both = all.iter().flat_map(|order| [(order, false), (order, true)]);
    for (index, (order, named)) in both.enumerate() {
        let (tag, invoice) = (format!("{index:03}"), invoice(&shop).await);
        let story = story(&tag, invoice, named);
        for (place, fact) in order.iter().enumerate() {
            assert_eq!(tell(&webhook, &story[*fact]).await.json(), received());
            // Some of them twice, under the same id and under another.
            let again = &story[order[(place * index) % (place + 1)]];
            assert_eq!(tell(&webhook, again).await.json(), duplicate());
            let mut renamed = again.clone();
            renamed["id"] = json!(format!("{tag}_again_{place}"));
            assert_eq!(tell(&webhook, &renamed).await.status, 200);
        }
        let state = text(&shop, format!(
            "select concat_ws(' ', i.status, i.paid_at is not null, i.disputed_at is not null,
               (select string_agg(kind || ':' || amount_minor, ' ' order by kind, amount_minor) from payment_ledger l where l.invoice_id = i.id),
               (select string_agg(o.event_type, ' ' order by o.event_type) from outbox o where o.aggregate_id = i.id),
               (select string_agg(o.sequence::text, ' ' order by o.id) from outbox o where o.aggregate_id = i.id))
             from invoice i where i.id = '{invoice}'"
        )).await;
        assert_eq!(
            state,
            "refunded t t dispute:5000 failure:5000 payment:5000 refund:1000 refund:5000 invoice.paid invoice.refunded 1 2",
            "{order:?} {named}"
        );
    }
    let open = "inbox_exception where resolved_at is null and reason not like 'the payment is disputed%'";
    assert_eq!(shop.db.count(open).await, 0, "what waited for its payment has been settled by it");
    assert!(
        shop.db.count("inbox_exception where resolved_at is not null and tenant_id is not null").await > 50
    );
    shop.db.assert_consistent().await;
}
