//! Every order of arrival of one invoice's events ends in the same state.

use testing::orders_of_arrival;

use super::*;

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
    let all = orders_of_arrival(5);
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
        let state = shop.db.text(format!(
            "select concat_ws(' ', i.status, i.paid_at is not null, i.disputed_at is not null,
               (select string_agg(kind || ':' || sum, ' ' order by kind)
                from (select kind, sum(amount_minor) from payment_ledger l where l.invoice_id = i.id group by kind) l),
               (select string_agg(o.event_type, ' ' order by o.event_type) from outbox o where o.aggregate_id = i.id),
               (select string_agg(o.sequence::text, ' ' order by o.id) from outbox o where o.aggregate_id = i.id))
             from invoice i where i.id = '{invoice}'"
        )).await;
        assert_eq!(
            state,
            "refunded t t dispute:5000 failure:5000 payment:5000 refund:5000 invoice.paid invoice.refunded 1 2",
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

/// Facts of one invoice of 5,000, and the state that they end in.
fn stories(tag: &str, invoice: Uuid) -> Vec<(Vec<Value>, &'static str)> {
    let id = |name: &str| format!("{tag}_{name}");
    let (a, b) = (id("a"), id("b"));
    let named = |mut event: Value| {
        event["data"]["object"]["metadata"] = json!({"invoice_id": invoice});
        event
    };
    let charged =
        named(event(&id("c"), "charge.succeeded", json!({"id": b, "amount": 5_000, "currency": "usd"})));
    let returned = event(
        &id("cr"),
        "refund.updated",
        json!({"id": id("re"), "amount": 5_000, "currency": "usd", "status": "succeeded", "charge": b}),
    );
    let session = named(event(
        &id("cs"),
        "checkout.session.completed",
        json!({"id": id("cs"), "payment_status": "paid", "payment_intent": a, "amount_total": 4_000, "currency": "usd"}),
    ));
    let failed = refund(&id("x"), "refund.failed", &a, (&id("re"), 2_000, "failed"));
    let lost = |n: i64, topic: &str, status: &str| at(n, disputed(&id(&format!("d{n}")), topic, &a, status));
    vec![
        (
            vec![
                succeeded(&id("1"), &a, invoice, 3_000),
                succeeded(&id("2"), &b, invoice, 2_000),
                refund(&id("3"), "refund.created", &b, (&id("re"), 2_000, "pending")),
                refunded(&id("4"), &b, 2_000, 2_000),
                refunded(&id("5"), &a, 3_000, 2_999),
            ],
            "awaiting_payment 5000 4999",
        ),
        (
            vec![
                succeeded(&id("1"), &a, invoice, 5_000),
                at(10, refunded(&id("2"), &a, 5_000, 2_000)),
                at(10, refund(&id("3"), "refund.created", &a, (&id("re"), 2_000, "succeeded"))),
                at(20, failed),
                at(30, refund(&id("5"), "charge.refund.updated", &a, (&id("re2"), 1_500, "succeeded"))),
            ],
            "paid 5000 1500",
        ),
        (vec![succeeded(&id("1"), &a, invoice, 5_000), charged, returned], "paid 10000 5000"),
        (
            vec![
                succeeded(&id("1"), &a, invoice, 5_000),
                lost(1, "created", "needs_response"),
                lost(2, "updated", "under_review"),
                lost(3, "closed", "lost"),
                at(4, refunded(&id("5"), &a, 5_000, 1_000)),
            ],
            "refunded 5000 5000",
        ),
        (
            vec![
                session,
                succeeded(&id("1"), &a, invoice, 5_000),
                lost(1, "funds_withdrawn", "needs_response"),
                lost(2, "closed", "won"),
            ],
            "paid 5000 0",
        ),
    ]
}

/// Up to 30 orders of `n` facts, always the same ones, the last as the first reversed.
fn some_orders(n: usize) -> Vec<Vec<usize>> {
    let all = orders_of_arrival(n);
    let step = all.len().div_ceil(30);
    all.iter().step_by(step).cloned().chain([(0..n).collect(), (0..n).rev().collect()]).collect()
}

#[tokio::test]
async fn whatever_came_first_an_invoice_ends_as_its_facts_add_up() {
    let (shop, webhook) = open().await;
    for story in 0..stories("", Uuid::nil()).len() {
        let facts = stories("", Uuid::nil())[story].0.len();
        for (index, order) in some_orders(facts).iter().enumerate() {
            let (tag, invoice) = (format!("{story}_{index}"), invoice(&shop).await);
            let (told, end) = stories(&tag, invoice).swap_remove(story);
            for fact in order {
                assert_eq!(tell(&webhook, &told[*fact]).await.json(), received());
                assert_eq!(tell(&webhook, &told[*fact]).await.json(), duplicate());
                let mut renamed = told[*fact].clone();
                renamed["id"] = json!(format!("{tag}_{fact}_again"));
                tell(&webhook, &renamed).await;
            }
            assert_eq!(state(&shop, invoice).await, end, "{order:?}");
            let summed = shop
                .db
                .text(format!(
                    "select concat_ws(' ', coalesce(sum(amount_minor) filter (where kind = 'payment'), 0),
                   coalesce(sum(amount_minor) filter (where kind in ('refund', 'chargeback')), 0))
                 from payment_ledger where invoice_id = '{invoice}'"
                ))
                .await;
            assert!(end.contains(&summed), "{order:?}: {summed} in the ledger, {end}");
            let last = shop.db.text(format!(
                "select coalesce((select event_type from outbox where aggregate_id = '{invoice}' order by sequence desc limit 1), '')"
            )).await;
            let tells = match end.split(' ').next().unwrap() {
                "paid" => vec!["invoice.paid"],
                "refunded" => vec!["invoice.refunded"],
                _ => vec!["", "invoice.reopened"],
            };
            assert!(tells.contains(&last.as_str()), "{order:?}: {last}");
        }
    }
    let unsettled = "inbox_exception where resolved_at is null and waits_for is not null";
    assert_eq!(shop.db.count(unsettled).await, 0);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_void_at_any_moment_is_final_or_refused() {
    let (shop, webhook) = open().await;
    let (mut voided, mut refused) = (0, 0);
    for (index, order) in orders_of_arrival(3).iter().enumerate() {
        let (tag, invoice) = (format!("v{index}"), invoice(&shop).await);
        for fact in order {
            match fact {
                0 => drop(tell(&webhook, &succeeded(&format!("{tag}_1"), &tag, invoice, 5_000)).await),
                1 => drop(tell(&webhook, &refunded(&format!("{tag}_2"), &tag, 5_000, 5_000)).await),
                _ => {
                    let tenant = shop.tenant.id;
                    let call = json!({"tenantId": tenant, "invoiceId": invoice, "actor": "user:x", "reason": "typo"});
                    let done =
                        shop.db.text(format!("select (holdfast.void_invoice('{call}')).status::text")).await;
                    if done == "200" { voided += 1 } else { refused += 1 }
                }
            }
        }
        let end = state(&shop, invoice).await;
        assert!(["void 5000 5000", "refunded 5000 5000"].contains(&end.as_str()), "{order:?}: {end}");
        let again = format!("{tag}_again");
        tell(&webhook, &succeeded(&again, &tag, invoice, 5_000)).await;
        assert_eq!(state(&shop, invoice).await, end, "it is final");
    }
    assert_eq!((voided, refused), (5, 1), "only between payment and refund it holds money");
    assert_eq!(shop.db.count("inbox_exception where reason like 'the invoice is void%'").await, 3);
    shop.db.assert_consistent().await;
}
