//! ASNs (advance shipping notices): announced, received, closed, cancelled.

use super::*;

#[tokio::test]
async fn an_asn_raises_on_order_and_receipts_move_it_on_hand() {
    let (shop, webhook) = open(Seed { skus: 2, ..Seed::default() }).await;
    took(&webhook, "1", &announced("A", &[("1", 0, 10), ("2", 1, 4), ("3", 0, 2)])).await;
    assert_eq!(positions(&shop).await, "6 12 0, 6 4 0");
    assert_eq!(tell(&webhook, "1", &announced("A", &[("1", 0, 10)])).await.json(), duplicate());
    took(&webhook, "2", &announced("A", &[("1", 0, 10)])).await;
    assert_eq!(positions(&shop).await, "6 12 0, 6 4 0", "under another id it is the same line");
    took(&webhook, "3", &arrived("A", "R1", &[("1", 0, 5)], false)).await;
    assert_eq!(positions(&shop).await, "11 7 0, 6 4 0");
    took(&webhook, "4", &arrived("A", "R1", &[("1", 0, 5)], false)).await;
    took(&webhook, "5", &arrived("A", "R2", &[("1", 0, 9), ("2", 1, 1)], false)).await;
    assert_eq!(positions(&shop).await, "20 0 0, 7 3 0", "two more than announced are there all the same");
    took(&webhook, "6", &arrived("A", "R3", &[], true)).await;
    assert_eq!(positions(&shop).await, "20 0 0, 7 0 0", "what is closed brings nothing more");
    took(&webhook, "7", &arrived("A", "R4", &[("1", 1, 3)], false)).await;
    assert_eq!(positions(&shop).await, "20 0 0, 10 0 0", "and if it does, it is there");
    let ledger = shop.db.text("select string_agg(distinct actor, ' ' order by actor) from stock_ledger where entry_type like 'asn.%'").await;
    assert_eq!(ledger, "3pl:north-3pl/1 3pl:north-3pl/3 3pl:north-3pl/5 3pl:north-3pl/6 3pl:north-3pl/7");
    // Receipts within the announced quantity do not change the ATS, so there is no event.
    assert_eq!(shop.db.count("outbox where event_type = 'sku.ats_changed'").await, 2 + 1 + 1 + 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_receipt_before_its_asn_waits_and_settles_with_it() {
    let (shop, webhook) = open(Seed::default()).await;
    took(&webhook, "1", &arrived("A", "R1", &[("1", 0, 4)], false)).await;
    took(&webhook, "2", &arrived("A", "R2", &[("1", 0, 1)], true)).await;
    assert_eq!(positions(&shop).await, "6 0 0");
    assert_eq!(
        shop.db
            .count(
                "inbox_exception where waits_for = 'asn:A' and resolved_at is null and topic = 'asn.received'"
            )
            .await,
        2
    );
    assert_eq!(shop.db.count("outbox where event_type = 'inbox.exception'").await, 2);
    took(&webhook, "3", &announced("A", &[("1", 0, 10)])).await;
    assert_eq!(positions(&shop).await, "11 0 0");
    assert_eq!(shop.db.count("inbox_exception where resolved_at is null").await, 0);
    assert_eq!(shop.db.count("inbox_exception where resolved_by = '3pl:north-3pl/3'").await, 2);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_receipt_beside_its_asn_is_never_forgotten() {
    let (shop, first) = open(Seed { on_hand: 0, ..Seed::default() }).await;
    let second = webhook(&shop);
    for round in 0..25 {
        let asn = format!("A{round}");
        let (there, here) =
            (announced(&asn, &[("1", 0, 2)]), arrived(&asn, &format!("R{round}"), &[("1", 0, 2)], false));
        let (one, two) = (format!("c{round}"), format!("r{round}"));
        let replies = futures_util::join!(tell(&first, &one, &there), tell(&second, &two, &here));
        assert_eq!((replies.0.status, replies.1.status), (200, 200));
        assert_eq!(positions(&shop).await, format!("{} 0 0", 2 * (round + 1)));
    }
}

#[tokio::test]
async fn what_is_promised_and_will_not_come_is_a_shortfall() {
    let (shop, webhook) = open(Seed { on_hand: 0, ..Seed::default() }).await;
    took(&webhook, "1", &announced("A", &[("1", 0, 10)])).await;
    took(&webhook, "3", &announced("B", &[("1", 0, 3)])).await;
    promise(&shop, 0, 0, 6).await;
    promise(&shop, 1, 0, 3).await;
    took(&webhook, "2", &cancelled("A")).await;
    assert_eq!(positions(&shop).await, "0 9 9", "ATS falls to zero");
    assert_eq!(open_shortfalls(&shop).await, "asn.cancelled 6");
    took(&webhook, "4", &cancelled("B")).await;
    assert_eq!(positions(&shop).await, "0 9 9");
    assert_eq!(open_shortfalls(&shop).await, "asn.cancelled 9", "one open row per SKU and cause");
    assert_eq!(shop.db.count("shortfall where owed_on_order = 9 and owed_on_hand = 0").await, 1);
    let told = shop.db.text("select string_agg(payload::json -> 'data' ->> 'qty', ' ' order by id) from outbox where event_type = 'inventory.shortfall'").await;
    assert_eq!(told, "6 9");
    took(&webhook, "5", &cancelled("B")).await;
    took(&webhook, "6", &cancelled("A")).await;
    assert_eq!(open_shortfalls(&shop).await, "asn.cancelled 9");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn an_unknown_sku_is_kept_and_the_known_ones_beside_it_count() {
    let (shop, webhook) = open(Seed::default()).await;
    let event = json!({"type": "asn.created", "asnId": 9_007_199_254_740_993_i64, "lines": [
        {"lineId": 1, "sku": "SKU-0001", "qty": 3}, {"lineId": 2, "sku": "NO-SUCH", "qty": 4, "note": "x"}]});
    took(&webhook, "1", &event).await;
    assert_eq!(positions(&shop).await, "6 3 0");
    assert_eq!(shop.db.count("asn where external_id = '9007199254740993'").await, 1);
    let kept = shop
        .db
        .text("select convert_from(body, 'UTF8') || reason from inbox_exception where event_id = '1'")
        .await;
    assert_eq!(kept, format!("{event}no SKU of ours: NO-SUCH"));
    // The same line with another quantity moves nothing again, and a person must see it.
    took(&webhook, "2", &json!({"type": "asn.created", "asnId": "9007199254740993", "lines": [{"lineId": "1", "sku": "SKU-0001", "qty": 9}]})).await;
    assert_eq!(positions(&shop).await, "6 3 0");
    assert_eq!(
        shop.db.count("inbox_exception where event_id = '2' and reason like '%differently%'").await,
        1
    );
    for (id, malformed) in [
        ("m1", json!({"type": "asn.created", "lines": lines(&[("1", 0, 1)])})),
        ("m2", json!({"type": "asn.created", "asnId": "B", "lines": [{"sku": "SKU-0001", "qty": 1}]})),
        ("m3", json!({"type": "asn.created", "asnId": "B", "lines": lines(&[("1", 0, -1)])})),
        ("m3a", json!({"type": "inventory.adjusted", "lines": lines(&[("1", 0, -1_000_001)])})),
        ("m3b", json!({"type": "asn.received", "asnId": "B", "lines": lines(&[("1", 0, i64::MIN)])})),
        ("m4", json!({"type": "asn.created", "asnId": "B", "lines": lines(&[("1", 0, 1_000_001)])})),
        ("m5", json!({"type": "asn.created", "asnId": "B\0", "lines": lines(&[("1", 0, 1)])})),
        (
            "m6",
            json!({"type": "asn.created", "asnId": "B", "lines": [{"lineId": "1", "sku": "SKU-0001", "qty": 1.5}]}),
        ),
        ("m7", json!({"type": "order.shipped", "orderId": "SO-1", "lines": []})),
        (
            "m8",
            json!({"type": "order.shipped", "orderId": uuid::Uuid::new_v4(), "lines": lines(&[("1", 0, 1)])}),
        ),
        ("m9", json!([1])),
    ] {
        took(&webhook, id, &malformed).await;
        assert_eq!(
            shop.db
                .count(&format!("inbox_exception where event_id = '{id}' and tenant_id is not null"))
                .await,
            1,
            "{id}"
        );
    }
    assert_eq!(positions(&shop).await, "6 3 0");
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_list_where_an_object_belongs_is_kept_whole_and_books_nothing() {
    let (shop, webhook) = open(Seed::default()).await;
    let line = json!({"type": "asn.created", "asnId": "A", "lines": [{"lineId": "1", "sku": "SKU-0001", "qty": 4}, ["2", "SKU-0001", 4]]});
    for (id, body) in [("1", &line), ("2", &json!(["asn.created"]))] {
        took(&webhook, id, body).await;
    }
    assert_eq!(positions(&shop).await, "6 0 0");
    let kept = "select string_agg(concat_ws(' ', convert_from(body, 'UTF8'), reason), '; ' order by event_id) from inbox_exception";
    assert_eq!(
        shop.db.text(kept).await,
        format!(r#"{line} lines[1] is not an object; ["asn.created"] the body is not an object"#)
    );
}

#[tokio::test]
async fn a_person_retries_what_can_be_done_and_has_seen_what_cannot() {
    let (shop, webhook) = open(Seed { skus: 2, ..Seed::default() }).await;
    took(&webhook, "1", &announced("A", &[("1", 0, 10)])).await;
    // The line with other values, and another line with an unknown SKU.
    let mut otherwise = announced("A", &[("1", 0, 9), ("2", 5, 4)]);
    took(&webhook, "2", &otherwise).await;
    let reason = "select reason from inbox_exception where event_id = '2'";
    assert_eq!(shop.db.text(reason).await, "no SKU of ours: SKU-0006; told before, and differently: line 1");
    assert_eq!(retry(&shop, "2").await, "open: no SKU of ours: SKU-0006");
    shop.db.execute("update sku set code = 'SKU-0006' where code = 'SKU-0002'").await;
    assert_eq!(retry(&shop, "2").await, "user:x: no SKU of ours: SKU-0006");
    assert_eq!(positions(&shop).await, "6 10 0, 6 4 0");
    // A line id with another SKU is a conflict, not a change.
    otherwise["lines"] = lines(&[("2", 5, 5)]);
    took(&webhook, "3", &otherwise).await;
    assert_eq!(retry(&shop, "3").await, "user:x: told before, and differently: line 2");
    // What waits goes on waiting; when its ASN comes, it resolves without a person.
    took(&webhook, "4", &arrived("B", "R1", &[("1", 5, 4)], false)).await;
    took(&webhook, "5", &arrived("B", "R1", &[("1", 5, 3)], true)).await;
    assert_eq!(retry(&shop, "4").await, "open: ASN B has not been announced");
    assert_eq!(
        shop.db.count("inbox_exception where waits_for = 'asn:B' and command -> 'retry' is null").await,
        2
    );
    took(&webhook, "6", &announced("B", &[("1", 5, 4)])).await;
    assert_eq!(positions(&shop).await, "6 10 0, 10 4 0");
    let states = "select string_agg(concat_ws(' ', event_id, attempts, resolved_by, waits_for), ', ' order by event_id) from inbox_exception where event_id in ('4', '5')";
    assert_eq!(shop.db.text(states).await, "4 3 3pl:north-3pl/6, 5 2");
    assert_eq!(shop.db.count("inbox_exception where event_id = '5' and resolved_at is null").await, 1);
    assert_eq!(
        shop.db.text("select reason from inbox_exception where event_id = '5'").await,
        "told before, and differently: line 1"
    );
    assert_eq!(shop.db.count("asn where external_id = 'B' and closed_at is not null").await, 1);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn an_account_has_documents_and_a_tenant_of_its_own() {
    let (shop, webhook) = open(Seed::default()).await;
    account(&shop, "south-3pl", SECRET).await;
    let other = shop.db.seed(Seed::default()).await;
    shop.db
        .execute(format!(
            "insert into threepl_account (id, tenant_id, secret) values ('west-3pl', '{}', '{SECRET}')",
            other.id
        ))
        .await;
    let by = |account: &str, id: &str, event: &Value| {
        let body = event.to_string();
        Event::post(&format!("/webhooks/3pl/{account}"))
            .header("webhook-id", id)
            .header("webhook-timestamp", &NOW.to_string())
            .header("webhook-signature", &sign(SECRET, id, NOW, body.as_bytes()))
            .body(body.as_bytes())
    };
    // Both accounts receive under the same ASN id, and only one of them announces it.
    for account in [ACCOUNT, "south-3pl", "west-3pl"] {
        let reply = send(&webhook, &by(account, "1", &arrived("A", "R1", &[("1", 0, 2)], false))).await;
        assert_eq!(reply.json(), received(), "{account}");
    }
    send(&webhook, &by(ACCOUNT, "2", &announced("A", &[("1", 0, 5)]))).await;
    assert_eq!(positions(&shop).await, "8 3 0");
    assert_eq!(shop.db.count("inbox_exception where waits_for = 'asn:A' and resolved_at is null").await, 2);
    send(&webhook, &by("west-3pl", "2", &announced("A", &[("1", 0, 2)]))).await;
    assert_eq!(positions(&shop).await, "8 3 0");
    assert_eq!(
        shop.db
            .count(&format!("sku_position where tenant_id = '{}' and on_hand = 8 and on_order = 0", other.id))
            .await,
        1
    );
    send(&webhook, &by("south-3pl", "2", &announced("A", &[("1", 0, 5)]))).await;
    assert_eq!(positions(&shop).await, "10 6 0");
    send(&webhook, &by("south-3pl", "3", &cancelled("A"))).await;
    assert_eq!(positions(&shop).await, "10 3 0");
    assert_eq!(shop.db.count("asn").await, 3);
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn only_what_is_in_use_has_to_be_there() {
    let (shop, webhook) = open(Seed::default()).await;
    let spare = json!({"type": "asn.created", "asnId": "A", "orderId": 5, "closed": null, "receiptId": null,
        "lines": [{"lineId": 1, "sku": "SKU-0001", "qty": 3}, {"lineId": 2, "sku": "SKU-0001", "qty": 0}]});
    took(&webhook, "1", &spare).await;
    assert_eq!(positions(&shop).await, "6 3 0");
    took(&webhook, "2", &json!({"type": "asn.received", "asnId": "A", "receiptId": 9, "lines": null})).await;
    took(&webhook, "3", &json!({"type": "asn.cancelled", "asnId": "A", "lines": [{"sku": "SKU-0001"}]}))
        .await;
    assert_eq!(positions(&shop).await, "6 0 0");
    assert_eq!(shop.db.count("inbox_exception").await, 0);
    assert_eq!(shop.db.count("threepl_line").await, 1);
}

#[tokio::test]
async fn a_documents_name_need_not_be_unique_beyond_its_asn_or_order() {
    let (shop, webhook) = open(Seed { on_hand: 20, ..Seed::default() }).await;
    for (n, asn) in ["A", "B"].iter().enumerate() {
        took(&webhook, &format!("c{n}"), &announced(asn, &[("1", 0, 5)])).await;
        took(&webhook, &format!("r{n}"), &arrived(asn, "R1", &[("1", 0, 5)], false)).await;
        took(&webhook, &format!("again{n}"), &arrived(asn, "R1", &[("1", 0, 5)], false)).await;
        promise(&shop, n, 0, 2).await;
        took(&webhook, &format!("s{n}"), &shipped(&shop, n, "R1", &[("1", 0, 2)])).await;
    }
    assert_eq!(positions(&shop).await, "26 0 0");
    // A document without an id takes the id of its ASN or order.
    let mut nameless = arrived("A", "", &[("2", 0, 1)], false);
    nameless.as_object_mut().unwrap().remove("receiptId");
    took(&webhook, "n1", &nameless).await;
    took(&webhook, "n2", &nameless).await;
    let mut parcel = shipped(&shop, 0, "", &[("9", 0, 1)]);
    parcel.as_object_mut().unwrap().remove("shipmentId");
    took(&webhook, "n3", &parcel).await;
    took(&webhook, "n4", &parcel).await;
    assert_eq!(positions(&shop).await, "26 0 0");
    assert_eq!(shop.db.count("inbox_exception").await, 0);
    shop.db.assert_consistent().await;
}
