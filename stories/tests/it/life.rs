//! How an order ends: closed, cancelled, shipped; and what arrives after its end.

use serde_json::{Value, json};
use testing::{Event, Seed, fresh_key};
use uuid::Uuid;

use crate::desk::{Desk, lines_of, refusal, refused};

fn stocked(skus: usize, orders: usize) -> Seed {
    Seed { skus, on_hand: 100, orders, order_qty: 10, ..Seed::default() }
}

#[tokio::test]
async fn a_part_shipped_order_is_closed_once_and_gives_back_the_rest() {
    let desk = Desk::open(stocked(3, 1)).await;
    let id = desk.shop.tenant.orders[0];
    desk.promise(0, 0, 10).await;
    desk.promise(0, 1, 4).await;
    desk.ship(0, &[(0, 6)]).await;
    assert_eq!(desk.exposure().await, 14_000);
    let before = desk.types(id).await.len();

    let close = desk.event_of(1, "POST", &desk.order(0, "/close"), &json!({}));
    let closed = desk.send(&close).await;
    assert_eq!((closed.status, closed.header("etag")), (200, Some("\"2\"")), "{}", closed.json());
    let order = closed.json();
    assert_eq!((&order["status"], &order["version"]), (&json!("shipped"), &json!(2)));
    assert_eq!(
        lines_of(&order),
        [[6, 0, 6, 0, 1000]],
        "shipped units are all that was wanted; other lines are gone"
    );
    assert_eq!(order["lines"][0]["skuId"], json!(desk.sku(0)));
    assert_eq!(order["updatedByName"], "Ben");
    assert_eq!(desk.get(&desk.order(0, "")).await, order);

    assert_eq!(desk.exposure().await, 6_000, "what was shipped and is not invoiced");
    for (sku, [on_hand, ats]) in [(0, [94, 94]), (1, [100, 100]), (2, [100, 100])] {
        let position = desk.get(&format!("/skus/{}", desk.sku(sku))).await;
        assert_eq!(
            (&position["onHand"], &position["ats"], &position["allocated"]),
            (&json!(on_hand), &json!(ats), &json!(0))
        );
    }
    let mut events = desk.events(id).await.split_off(before);
    let (shipped, data) = events.pop().unwrap();
    assert_eq!((shipped.as_str(), &data["version"]), ("order.shipped", &json!(2)));
    assert!(data["changed"].as_array().unwrap().contains(&json!("status")), "{data}");
    assert_eq!(events.len(), 2, "one per released SKU: {events:?}");
    for (sku, ats) in [(0, 94), (1, 100)] {
        let told = json!({"skuId": desk.sku(sku), "qty": 4, "atsAfter": ats});
        let named = |(name, data): &(String, Value)| {
            name == "order.line_released" && ["skuId", "qty", "atsAfter"].iter().all(|m| data[m] == told[m])
        };
        assert!(events.iter().any(named), "{told} in {events:?}");
    }
    desk.shop.db.assert_consistent().await;

    let state = desk.shop.db.state().await;
    let replay = desk.send(&close).await;
    assert_eq!((replay.status, &replay.body), (200, &closed.body));
    for name in ["etag", "content-type"] {
        assert_eq!(replay.header(name), closed.header(name));
    }
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    assert_eq!(
        refused(&desk.post(&desk.order(0, "/close"), &json!({})).await),
        refusal(409, "order_not_open")
    );
    assert_eq!(
        refused(&desk.post(&desk.order(0, "/cancel"), &json!({})).await),
        refusal(409, "order_not_open")
    );
    let save = json!({"baseVersion": 2, "notes": "x"});
    assert_eq!(refused(&desk.patch(&desk.order(0, ""), &save).await), refusal(409, "order_not_open"));
    let more = desk.post(&desk.order(0, "/allocate"), &desk.shop.one(0, 1)).await;
    assert_eq!(refused(&more), refusal(409, "order_not_open"));
    assert_eq!(desk.shop.db.state().await, state, "shipped is final");

    let bill = desk.post(&desk.order(0, "/invoices"), &json!({})).await;
    assert_eq!((bill.status, &bill.json()["totalMinor"]), (201, &json!(6_000)));
    assert_eq!(desk.exposure().await, 6_000);
}

#[tokio::test]
async fn what_cannot_be_closed_is_refused_in_order_and_left_as_it_was() {
    let desk = Desk::open(stocked(1, 3)).await;
    let other = desk.shop.db.seed(Seed::default()).await;
    desk.promise(0, 0, 5).await;
    assert_eq!(desk.post(&desk.order(1, "/cancel"), &json!({})).await.status, 200);
    let close = |order: &str| desk.event("POST", order, &json!({}));
    let stale = "\"9\"";
    let state = desk.shop.db.state().await;
    let unknown = format!("/orders/{}/close", Uuid::new_v4());
    let foreign = format!("/orders/{}/close", other.orders[0]);
    let reader = testing::token(desk.shop.tenant.id, desk.shop.tenant.users[0], "orders:read credit:write");
    for (event, status, error) in [
        (close(&unknown).header("if-match", stale), 404, "order_not_found"),
        (close(&foreign), 404, "order_not_found"),
        (close("/orders/x/close"), 404, "order_not_found"),
        (close(&desk.order(1, "/close")).header("if-match", stale), 409, "order_not_open"),
        (close(&desk.order(0, "/close")).header("if-match", stale), 412, "version_conflict"),
        (close(&desk.order(0, "/close")).header("if-match", "\"1\""), 409, "nothing_shipped"),
        (close(&desk.order(0, "/close")), 409, "nothing_shipped"),
        (desk.event("POST", &desk.order(0, "/close"), &json!({"reason": "x"})), 400, "invalid_body"),
        (Event::post(&desk.order(0, "/close")).bearer(&reader).key("k").json(&json!({})), 403, "forbidden"),
        (
            Event::post(&desk.order(0, "/close")).bearer(&desk.token(0)).json(&json!({})),
            400,
            "idempotency_key_invalid",
        ),
    ] {
        let reply = desk.send(&event).await;
        assert_eq!(refused(&reply), refusal(status, error), "{event:?}");
        if status == 412 {
            assert_eq!(reply.json()["current"], desk.get(&desk.order(0, "")).await);
        }
        if status == 409 {
            let again = desk.send(&event).await;
            assert_eq!((&again.body, again.header("idempotent-replayed")), (&reply.body, Some("true")));
        }
    }
    assert_eq!(desk.shop.db.state().await, state);

    desk.ship(0, &[(0, 2)]).await;
    let closed = desk.send(&close(&desk.order(0, "/close")).header("if-match", "\"1\"")).await;
    assert_eq!(closed.status, 200, "{}", closed.json());
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_part_shipped_order_is_not_cancelled_and_its_units_can_still_be_billed() {
    let desk = Desk::open(stocked(1, 1)).await;
    desk.promise(0, 0, 10).await;
    desk.ship(0, &[(0, 6)]).await;
    let state = desk.shop.db.state().await;
    let cancel = desk.event("POST", &desk.order(0, "/cancel"), &json!({}));
    let refusal_of_it = desk.send(&cancel).await;
    assert_eq!(refused(&refusal_of_it), refusal(409, "order_part_shipped"));
    assert_eq!(desk.send(&cancel).await.body, refusal_of_it.body);
    assert_eq!(desk.shop.db.state().await, state);
    assert_eq!(desk.exposure().await, 10_000);
    assert_eq!(desk.post(&desk.order(0, "/invoices"), &json!({})).await.json()["totalMinor"], 10_000);
}

#[tokio::test]
async fn a_save_that_leaves_nothing_to_ship_ends_the_order() {
    let desk = Desk::open(stocked(2, 2)).await;
    let [a, b] = [desk.sku(0), desk.sku(1)];
    // Six of ten are shipped, four given back, and the quantity is saved as six; the other line goes.
    desk.promise(0, 0, 10).await;
    desk.ship(0, &[(0, 6)]).await;
    assert_eq!(desk.post(&desk.order(0, "/release"), &desk.shop.one(0, 4)).await.status, 200);
    assert_eq!(desk.get(&desk.order(0, "")).await["status"], "open", "four are still wanted");
    let both = json!({"baseVersion": 1, "lines": [{"skuId": a, "qty": 6}, {"skuId": b, "qty": 3}]});
    let saved = desk.patch(&desk.order(0, ""), &both).await.json();
    assert_eq!((&saved["order"]["status"], &saved["version"]), (&json!("open"), &json!(2)));
    let save = desk.event(
        "PATCH",
        &desk.order(0, ""),
        &json!({"baseVersion": 2, "lines": [{"skuId": a, "qty": 6}]}),
    );
    let ended = desk.send(&save).await;
    assert_eq!((ended.status, ended.header("etag")), (200, Some("\"3\"")));
    assert_eq!(ended.json()["order"]["status"], "shipped");
    assert_eq!(desk.get(&desk.order(0, "")).await, ended.json()["order"]);
    let types = desk.types(desk.shop.tenant.orders[0]).await;
    assert_eq!(types[types.len() - 2..], ["order.saved", "order.shipped"]);
    assert_eq!(types.iter().filter(|name| *name == "order.shipped").count(), 1);
    assert_eq!(desk.send(&save).await.body, ended.body);

    // An order without lines waits for some; nothing can end it.
    let saved = desk.patch(&desk.order(1, ""), &json!({"baseVersion": 1, "lines": []})).await;
    assert_eq!((saved.status, &saved.json()["order"]["status"]), (200, &json!("open")));
    desk.ship(1, &[(0, 2)]).await;
    let order = desk.get(&desk.order(1, "")).await;
    assert_eq!((&order["status"], &order["lines"]), (&json!("open"), &json!([])));
    assert!(!desk.types(desk.shop.tenant.orders[1]).await.contains(&"order.shipped".into()));
    assert_eq!(desk.get(&format!("/skus/{a}")).await["onHand"], 92, "they left all the same");
    assert_eq!(desk.shop.db.count("inbox_exception").await, 1);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_shipment_after_the_close_leaves_on_hand_and_is_put_before_a_person() {
    let desk = Desk::open(stocked(2, 1)).await;
    desk.promise(0, 0, 10).await;
    desk.ship(0, &[(0, 6)]).await;
    assert_eq!(desk.post(&desk.order(0, "/close"), &json!({})).await.status, 200);
    let closed = desk.get(&desk.order(0, "")).await;
    desk.ship(0, &[(0, 3), (1, 1)]).await;
    assert_eq!(desk.get(&desk.order(0, "")).await, closed, "the order keeps what it was closed with");
    assert_eq!(desk.get(&format!("/skus/{}", desk.sku(0))).await["onHand"], 91);
    assert_eq!(desk.get(&format!("/skus/{}", desk.sku(1))).await["onHand"], 99);
    assert_eq!(desk.exposure().await, 6_000);
    assert_eq!(desk.shop.db.count("inbox_exception").await, 1);
    let told = "outbox where event_type = 'inbox.exception'";
    assert_eq!(desk.shop.db.count(told).await, 1);
    let ended = desk.types(desk.shop.tenant.orders[0]).await;
    assert_eq!(ended.iter().filter(|name| *name == "order.shipped").count(), 1);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_shipment_of_a_cancelled_order_counts_up_to_what_was_ordered_and_can_be_invoiced() {
    let desk = Desk::open(stocked(1, 1)).await;
    desk.promise(0, 0, 10).await;
    assert_eq!(desk.post(&desk.order(0, "/cancel"), &json!({})).await.status, 200);
    assert_eq!(desk.exposure().await, 0);
    desk.ship(0, &[(0, 4)]).await;
    assert_eq!(desk.exposure().await, 4_000);
    assert_eq!(desk.shop.db.count("inbox_exception").await, 1);
    desk.ship(0, &[(0, 8)]).await;
    let order = desk.get(&desk.order(0, "")).await;
    assert_eq!((&order["status"], lines_of(&order)), (&json!("cancelled"), vec![[10, 0, 10, 0, 1000]]));
    assert_eq!(desk.get(&format!("/skus/{}", desk.sku(0))).await["onHand"], 88);
    assert_eq!(desk.exposure().await, 10_000);
    assert_eq!(desk.shop.db.count("inbox_exception").await, 2);
    let bill = desk.post(&desk.order(0, "/invoices"), &json!({})).await;
    assert_eq!((bill.status, &bill.json()["totalMinor"]), (201, &json!(10_000)), "{}", bill.json());
    assert_eq!(desk.exposure().await, 10_000);
    let twice = desk.post(&desk.order(0, "/invoices"), &json!({})).await;
    assert!(matches!(twice.status, 409 | 422), "{}", twice.json());
    assert_eq!(desk.shop.db.count("invoice").await, 1);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shipment_beside_a_close_counts_before_it_or_is_put_before_a_person() {
    let desk = Desk::open(Seed { on_hand: 1_000, ..stocked(1, 12) }).await;
    let mut after = 0;
    for order in 0..12 {
        desk.promise(order, 0, 8).await;
        desk.ship(order, &[(0, 6)]).await;
        let close = desk.event("POST", &desk.order(order, "/close"), &json!({}));
        let id = desk.shop.tenant.orders[order];
        let held =
            desk.shop.db.hold(format!("select 1 from wholesale_order where id = '{id}' for update")).await;
        // Either of them may be the first to wait.
        let shipping = async {
            if order % 2 == 0 {
                desk.shop.db.until_blocked(1).await;
            }
            desk.ship(order, &[(0, 4)]).await;
        };
        let closing = async {
            if order % 2 == 1 {
                desk.shop.db.until_blocked(1).await;
            }
            desk.send(&close).await
        };
        let letting_go = async {
            desk.shop.db.until_blocked(2).await;
            held.let_go().await;
        };
        let (closed, (), ()) = tokio::join!(closing, shipping, letting_go);
        let line = lines_of(&desk.get(&desk.order(order, "")).await);
        match closed.status {
            200 => {
                after += 1;
                assert_eq!(line, [[6, 0, 6, 0, 1000]]);
            }
            _ => {
                assert_eq!(refused(&closed), refusal(409, "order_not_open"));
                assert_eq!(line, [[10, 0, 10, 0, 1000]]);
            }
        }
        assert_eq!(desk.get(&desk.order(order, "")).await["status"], "shipped");
        let types = desk.types(id).await;
        assert_eq!(types.iter().filter(|name| *name == "order.shipped").count(), 1, "{types:?}");
        assert_eq!(desk.shop.db.count("inbox_exception").await, after);
    }
    assert!((1..12).contains(&after), "{after} of twelve were closed first");
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_save_without_a_field_is_400_and_bumps_nothing_and_leaves_the_key_unused() {
    let desk = Desk::open(stocked(1, 1)).await;
    let style = format!("/styles/{}", desk.text("select id::text from style").await);
    for (path, field) in [
        (desk.order(0, ""), json!({"notes": "x"})),
        (style, json!({"msrpMinor": 9})),
        (desk.customer(), json!({"onHold": true})),
    ] {
        let key = fresh_key();
        let event = |body: &Value| Event::new("PATCH", &path).bearer(&desk.token(0)).key(&key).json(body);
        let state = desk.shop.db.state().await;
        for event in [event(&json!({"baseVersion": 1})), event(&json!({})).header("if-match", "\"1\"")] {
            let reply = desk.send(&event).await;
            assert_eq!(refused(&reply), refusal(400, "invalid_body"), "{path}");
            assert!(!reply.json()["errors"].as_array().unwrap().is_empty());
        }
        assert_eq!(desk.shop.db.state().await, state, "{path}");
        assert_eq!(desk.shop.db.count("idempotency_key").await, 0);
        let mut body = field.clone();
        body["baseVersion"] = json!(1);
        let saved = desk.send(&event(&body)).await;
        assert_eq!((saved.status, saved.header("etag")), (200, Some("\"2\"")), "{path}: {}", saved.json());
        desk.shop.db.execute("delete from idempotency_key").await;
    }
}
