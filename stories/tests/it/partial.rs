//! `"partial":true`: what there is. All or none stays the default.

use serde_json::{Value, json};
use testing::{Seed, lines};
use uuid::Uuid;

use crate::desk::{Desk, refusal, refused};

/// The body of a partial allocation of (SKU, units).
fn what_there_is(wanted: &[(Uuid, i64)]) -> Value {
    let mut body = lines(wanted);
    body["partial"] = json!(true);
    body
}

/// `[qty, requested, atsAfter]` and `limitedBy` of each line of a partial answer.
fn told(answer: &Value) -> Vec<([i64; 3], Option<String>)> {
    let one = |line: &Value| {
        let numbers = ["qty", "requested", "atsAfter"].map(|name| line[name].as_i64().unwrap());
        assert!(line.as_object().unwrap().contains_key("limitedBy"), "{line}");
        (numbers, line["limitedBy"].as_str().map(str::to_owned))
    };
    answer["lines"].as_array().unwrap().iter().map(one).collect()
}

fn cut(numbers: [i64; 3], by: &str) -> ([i64; 3], Option<String>) {
    (numbers, Some(by.to_owned()))
}

fn whole(numbers: [i64; 3]) -> ([i64; 3], Option<String>) {
    (numbers, None)
}

#[tokio::test]
async fn the_ordered_quantity_the_ats_and_the_limit_each_cut_a_line() {
    let seed = Seed {
        skus: 3,
        on_hand: 8,
        orders: 1,
        order_qty: 6,
        credit_limit_minor: Some(13_500),
        ..Seed::default()
    };
    let desk = Desk::open(seed).await;
    let [a, b, c] = [0, 1, 2].map(|n| desk.sku(n));
    // Of B four are left.
    desk.shop.receive(1, -4).await;
    let reply = desk.post(&desk.order(0, "/allocate"), &what_there_is(&[(a, 9), (b, 6), (c, 5)])).await;
    assert_eq!(reply.status, 200, "{}", reply.json());
    let answer = reply.json();
    assert_eq!((&answer["ok"], &answer["orderId"]), (&json!(true), &json!(desk.shop.tenant.orders[0])));
    let expected = [
        cut([6, 9, 2], "exceeds_ordered"),
        cut([4, 6, 0], "insufficient_ats"),
        cut([3, 5, 5], "credit_limit_exceeded"),
    ];
    assert_eq!(told(&answer), expected);
    let sent: Vec<&Value> = answer["lines"].as_array().unwrap().iter().map(|line| &line["skuId"]).collect();
    assert_eq!(sent, [&json!(a), &json!(b), &json!(c)]);
    assert_eq!(desk.exposure().await, 13_000);
    assert_eq!(desk.shop.db.count("allocation_ledger where entry_type = 'allocate'").await, 3);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_repeated_sku_is_served_line_by_line_and_moved_once() {
    let desk = Desk::open(Seed { skus: 2, on_hand: 8, orders: 1, order_qty: 20, ..Seed::default() }).await;
    let [a, b] = [desk.sku(0), desk.sku(1)];
    let wanted = what_there_is(&[(b, 3), (a, 5), (b, 2), (a, 5), (a, 1)]);
    let answer = desk.post(&desk.order(0, "/allocate"), &wanted).await.json();
    let expected = [
        whole([3, 3, 3]),
        whole([5, 5, 0]),
        whole([2, 2, 3]),
        cut([3, 5, 0], "insufficient_ats"),
        cut([0, 1, 0], "insufficient_ats"),
    ];
    assert_eq!(told(&answer), expected, "atsAfter is that of the SKU after the whole request");
    let mut events = desk.events(desk.shop.tenant.orders[0]).await;
    events.sort_by_key(|(_, data)| data["qty"].as_i64());
    assert_eq!(events.len(), 2, "one per distinct SKU: {events:?}");
    for ((name, data), (sku, qty, ats)) in events.iter().zip([(b, 5, 3), (a, 8, 0)]) {
        assert_eq!(name, "order.line_allocated");
        assert_eq!(
            (&data["skuId"], &data["qty"], &data["atsAfter"]),
            (&json!(sku), &json!(qty), &json!(ats))
        );
    }
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn units_that_cost_nothing_are_promised_whatever_the_limit_is() {
    let seed =
        Seed { on_hand: 50, orders: 1, order_qty: 10, credit_limit_minor: Some(100_000), ..Seed::default() };
    let desk = Desk::open(seed).await;
    // Four are invoiced and given back: their invoice counts already. The limit leaves room for two more, and a half.
    desk.promise(0, 0, 4).await;
    assert_eq!(desk.post(&desk.order(0, "/invoices"), &json!({})).await.status, 201);
    assert_eq!(desk.post(&desk.order(0, "/release"), &desk.shop.one(0, 4)).await.status, 200);
    let limit = json!({"baseVersion": 1, "creditLimitMinor": 6_500});
    assert_eq!(desk.patch(&desk.customer(), &limit).await.status, 200);
    let ask = what_there_is(&[(desk.sku(0), 3), (desk.sku(0), 5)]);
    let answer = desk.post(&desk.order(0, "/allocate"), &ask).await.json();
    assert_eq!(told(&answer), [whole([3, 3, 44]), cut([3, 5, 44], "credit_limit_exceeded")]);
    assert_eq!(desk.exposure().await, 6_000);

    let seed =
        Seed { on_hand: 50, orders: 1, unit_price_minor: 0, credit_limit_minor: Some(0), ..Seed::default() };
    let desk = Desk::open(seed).await;
    let answer = desk.post(&desk.order(0, "/allocate"), &what_there_is(&[(desk.sku(0), 6)])).await.json();
    assert_eq!(told(&answer), [whole([6, 6, 44])]);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn the_limit_buys_whole_units_and_a_later_line_may_still_fit() {
    let mut desk =
        Desk::open(Seed { skus: 3, on_hand: 50, credit_limit_minor: Some(2_500), ..Seed::default() }).await;
    let [a, b, c] = [0, 1, 2].map(|n| desk.sku(n));
    let create = json!({"customerId": desk.shop.tenant.customer, "lines": [
        {"skuId": a, "qty": 10, "unitPriceMinor": 1_000}, {"skuId": b, "qty": 10, "unitPriceMinor": 600},
        {"skuId": c, "qty": 10, "unitPriceMinor": 200}]});
    let id = desk.post("/orders", &create).await.json()["id"].as_str().unwrap().parse().unwrap();
    desk.shop.tenant.orders.push(id);
    let ask = what_there_is(&[(a, 5), (b, 1), (c, 3)]);
    let answer = desk.post(&desk.order(2, "/allocate"), &ask).await.json();
    let by = "credit_limit_exceeded";
    assert_eq!(told(&answer), [cut([2, 5, 48], by), cut([0, 1, 50], by), cut([2, 3, 48], by)]);
    assert_eq!(desk.exposure().await, 2_400);
    assert_eq!(desk.types(id).await, ["order.created", "order.line_allocated", "order.line_allocated"]);
    assert_eq!(desk.shop.db.count("allocation_ledger").await, 2, "nothing is written for a line of nothing");
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn what_is_no_matter_of_quantity_refuses_all() {
    let mut desk = Desk::open(Seed { skus: 2, on_hand: 3, orders: 1, ..Seed::default() }).await;
    let [a, b] = [desk.sku(0), desk.sku(1)];
    let other = desk.shop.db.seed(Seed::default()).await;
    let create = json!({"customerId": desk.shop.tenant.customer, "lines": [{"skuId": a, "qty": 10, "unitPriceMinor": 1}]});
    let id = desk.post("/orders", &create).await.json()["id"].as_str().unwrap().parse().unwrap();
    desk.shop.tenant.orders.push(id);
    let path = desk.order(1, "/allocate");
    let unknown = Uuid::new_v4();
    let state = desk.shop.db.state().await;
    for (wanted, code, named) in [
        (
            vec![(a, 2), (unknown, 4), (b, 1)],
            "unknown_sku",
            json!([{"skuId": unknown, "requested": 4, "available": 0}]),
        ),
        (
            vec![(other.skus[0], 4), (a, 2)],
            "unknown_sku",
            json!([{"skuId": other.skus[0], "requested": 4, "available": 0}]),
        ),
        (
            vec![(a, 2), (b, 1), (b, 2)],
            "sku_not_on_order",
            json!([{"skuId": b, "requested": 3, "available": 0}]),
        ),
    ] {
        let reply = desk.post(&path, &what_there_is(&wanted)).await;
        assert_eq!(refused(&reply), refusal(422, code));
        assert_eq!(reply.json()["lines"], named);
    }
    for bad in [json!("yes"), json!(1), json!(null)] {
        let mut body = what_there_is(&[(a, 1)]);
        body["partial"] = bad;
        assert_eq!(refused(&desk.post(&path, &body).await), refusal(400, "invalid_body"), "{body}");
    }
    let release = desk.post(&desk.order(1, "/release"), &what_there_is(&[(a, 1)])).await;
    assert_eq!(refused(&release), refusal(400, "invalid_body"), "release knows no partial");
    let none = json!({"lines": [], "partial": true});
    assert_eq!(refused(&desk.post(&path, &none).await), refusal(400, "invalid_body"));
    let stale = desk.event("POST", &path, &what_there_is(&[(a, 1)])).header("if-match", "\"7\"");
    assert_eq!(refused(&desk.send(&stale).await), refusal(412, "version_conflict"));
    let nowhere = format!("/orders/{}/allocate", Uuid::new_v4());
    assert_eq!(
        refused(&desk.post(&nowhere, &what_there_is(&[(a, 1)])).await),
        refusal(404, "order_not_found")
    );
    assert_eq!(desk.shop.db.state().await, state);

    let hold = desk.patch(&desk.customer(), &json!({"baseVersion": 1, "onHold": true})).await;
    assert_eq!(hold.status, 200);
    let reply = desk.post(&path, &what_there_is(&[(a, 2), (unknown, 1)])).await;
    assert_eq!(refused(&reply), refusal(422, "customer_on_hold"));
    assert_eq!(desk.post(&desk.order(1, "/cancel"), &json!({})).await.status, 200);
    assert_eq!(refused(&desk.post(&path, &what_there_is(&[(a, 1)])).await), refusal(409, "order_not_open"));
}

#[tokio::test]
async fn where_there_is_nothing_it_is_refused_as_all_or_none_is() {
    let seed = Seed { skus: 3, on_hand: 6, orders: 2, credit_limit_minor: Some(100_000), ..Seed::default() };
    let desk = Desk::open(seed).await;
    let [a, b, c] = [0, 1, 2].map(|n| desk.sku(n));
    // Order 0 holds all it wants of A; B is out of stock; C is there.
    desk.promise(0, 0, 6).await;
    desk.promise(1, 1, 6).await;
    let refuses = async |wanted: &[(Uuid, i64)], code: &str| {
        let state = desk.shop.db.state().await;
        let all = desk.post(&desk.order(0, "/allocate"), &lines(wanted)).await;
        let some = desk.post(&desk.order(0, "/allocate"), &what_there_is(wanted)).await;
        assert_eq!(refused(&some), refusal(422, code), "{}", some.json());
        assert_eq!(some.json(), all.json());
        assert_eq!(desk.shop.db.state().await, state, "{code}");
        some.json()
    };
    assert_eq!(
        refuses(&[(a, 2)], "exceeds_ordered").await["lines"],
        json!([{"skuId": a, "requested": 2, "available": 0}])
    );
    assert_eq!(
        refuses(&[(b, 2)], "insufficient_ats").await["lines"],
        json!([{"skuId": b, "requested": 2, "available": 0}])
    );
    // The rules stand in one order, whatever the order of the lines.
    refuses(&[(b, 2), (a, 1)], "exceeds_ordered").await;
    let limit = json!({"baseVersion": 1, "creditLimitMinor": 12_900});
    assert_eq!(desk.patch(&desk.customer(), &limit).await.status, 200);
    let problem = refuses(&[(c, 2)], "credit_limit_exceeded").await;
    let members = ["limit", "exposure", "requested"].map(|name| problem[name].as_i64().unwrap());
    assert_eq!(members, [12_900, 12_000, 2_000]);
    refuses(&[(b, 1), (c, 2)], "credit_limit_exceeded").await;
    refuses(&[(b, 1), (c, 2), (a, 1)], "exceeds_ordered").await;
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn all_or_none_stays_the_default() {
    let desk = Desk::open(Seed { on_hand: 4, orders: 1, ..Seed::default() }).await;
    let path = desk.order(0, "/allocate");
    for body in [desk.shop.one(0, 6), json!({"skuId": desk.sku(0), "qty": 6, "partial": false})] {
        assert_eq!(refused(&desk.post(&path, &body).await), refusal(422, "insufficient_ats"), "{body}");
    }
    let body = json!({"lines": [{"skuId": desk.sku(0), "qty": 2}], "partial": false});
    let answer = desk.post(&path, &body).await.json();
    assert_eq!(answer["lines"], json!([{"skuId": desk.sku(0), "qty": 2, "atsAfter": 2}]));
}

#[tokio::test]
async fn a_partial_answer_is_replayed_and_belongs_to_its_own_request() {
    let desk = Desk::open(Seed { on_hand: 4, orders: 1, ..Seed::default() }).await;
    let path = desk.order(0, "/allocate");
    let body = json!({"skuId": desk.sku(0), "qty": 6, "partial": true});
    let event = desk.event("POST", &path, &body);
    let first = desk.send(&event).await;
    assert_eq!((first.status, told(&first.json())), (200, vec![cut([4, 6, 0], "insufficient_ats")]));
    assert_eq!(first.json()["lines"][0]["skuId"], json!(desk.sku(0)));
    desk.shop.receive(0, 10).await;
    let state = desk.shop.db.state().await;
    let again = desk.send(&event).await;
    assert_eq!(
        (again.status, &again.body, again.header("idempotent-replayed")),
        (200, &first.body, Some("true"))
    );
    let other = desk.send(&event.clone().json(&desk.shop.one(0, 6))).await;
    assert_eq!(refused(&other), refusal(422, "idempotency_key_reused"));
    assert_eq!(desk.shop.db.state().await, state);
    desk.shop.db.assert_consistent().await;
}
