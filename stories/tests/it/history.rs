//! `GET /orders/{orderId}/history`: who did what to an order.

use serde_json::{Value, json};
use testing::{Event, Seed};
use uuid::Uuid;

use crate::desk::{Desk, refusal, refused};

#[tokio::test]
async fn the_history_of_an_order_tells_who_did_what_from_the_first_to_the_last() {
    let mut desk = Desk::open(Seed { on_hand: 100, orders: 1, ..Seed::default() }).await;
    let sku = desk.sku(0);
    let create = json!({"customerId": desk.shop.tenant.customer, "customerPo": "PO-1",
        "lines": [{"skuId": sku, "qty": 8, "unitPriceMinor": 500}]});
    let created = desk.post("/orders", &create).await.json();
    desk.shop.tenant.orders.push(created["id"].as_str().unwrap().parse().unwrap());
    let save = json!({"baseVersion": 1, "customerPo": "PO-2",
        "lines": [{"skuId": sku, "qty": 10, "unitPriceMinor": 700}]});
    assert_eq!(desk.send(&desk.event_of(1, "PATCH", &desk.order(1, ""), &save)).await.status, 200);
    desk.promise(1, 0, 9).await;
    desk.ship(1, &[(0, 6)]).await;
    assert_eq!(desk.send(&desk.event_of(1, "POST", &desk.order(1, "/close"), &json!({}))).await.status, 200);
    // Of another order: none of it may appear.
    desk.promise(0, 0, 1).await;
    // Kept for good: not by what is reaped.
    desk.shop.db.execute("delete from idempotency_key; delete from outbox").await;

    let page = desk.get(&desk.order(1, "/history")).await;
    assert_eq!(page["next"], json!(null));
    let items = page["items"].as_array().unwrap();
    let done: Vec<[&str; 2]> = items
        .iter()
        .filter(|item| item["action"] != "allocated_units_shipped")
        .map(|item| [item["action"].as_str().unwrap(), item["byName"].as_str().unwrap_or("")])
        .collect();
    let expected = [
        ["created", "Ann"],
        ["saved", "Ben"],
        ["allocated", "Ann"],
        ["shipped", ""],
        ["released", "Ben"],
        ["closed", "Ben"],
    ];
    assert_eq!(done, expected, "{items:#?}");
    let times: Vec<&str> = items.iter().map(|item| item["at"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(items.iter().any(|item| item["by"].as_str().unwrap().contains("north-3pl")), "{items:#?}");

    let saved = items.iter().find(|item| item["action"] == "saved").unwrap();
    for (when, qty, price, po) in [("before", 8, 500, "PO-1"), ("after", 10, 700, "PO-2")] {
        let told = &saved["details"][when];
        assert_eq!(told["customerPo"], po, "{saved}");
        let line = &told["lines"][0];
        assert_eq!(
            (&line["skuId"], &line["qty"], &line["unitPriceMinor"]),
            (&json!(sku), &json!(qty), &json!(price))
        );
    }
    let allocated = items.iter().find(|item| item["action"] == "allocated").unwrap();
    assert_eq!((&allocated["details"]["skuId"], &allocated["details"]["qty"]), (&json!(sku), &json!(9)));

    for limit in [1, 2, 4] {
        let (mut paged, mut after): (Vec<Value>, _) = (Vec::new(), String::new());
        loop {
            let path = format!("/history?limit={limit}{after}");
            let page = desk.get(&desk.order(1, &path)).await;
            let some = page["items"].as_array().unwrap();
            assert!(some.len() <= limit && !some.is_empty());
            paged.extend(some.iter().cloned());
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(&paged, items, "pages of {limit}");
    }
}

#[tokio::test]
async fn invoices_their_payments_and_their_end_are_part_of_the_history() {
    let desk = Desk::open(Seed { on_hand: 100, orders: 1, ..Seed::default() }).await;
    desk.promise(0, 0, 2).await;
    let path = desk.order(0, "/invoices");
    let first = desk.send(&desk.event_of(1, "POST", &path, &json!({}))).await.json();
    let void = format!("/invoices/{}/void", first["id"].as_str().unwrap());
    assert_eq!(desk.post(&void, &json!({"reason": "a wrong price"})).await.status, 200);
    let second = desk.post(&path, &json!({})).await.json();
    let pay = format!("/invoices/{}/payments", second["id"].as_str().unwrap());
    let body = json!({"amountMinor": 2_000, "reference": "transfer 7"});
    assert_eq!(desk.send(&desk.event_of(1, "POST", &pay, &body)).await.status, 201);

    let page = desk.get(&desk.order(0, "/history")).await;
    let items = page["items"].as_array().unwrap();
    let names: Vec<&str> = items.iter().map(|item| item["byName"].as_str().unwrap_or("")).collect();
    assert_eq!(names, ["Ann", "Ben", "Ann", "Ann", "Ben"], "{items:#?}");
    let told = |n: usize, of: &Value| items[n].to_string().contains(of["id"].as_str().unwrap());
    assert!(told(1, &first) && told(2, &first) && told(3, &second) && told(4, &second), "{items:#?}");
    assert_eq!(items[1]["action"], items[3]["action"]);
    assert!(items[2].to_string().contains("a wrong price"), "{items:#?}");
    assert!(items[4].to_string().contains("transfer 7"), "{items:#?}");
}

#[tokio::test]
async fn the_history_of_no_order_or_of_anothers_is_not_told() {
    let desk = Desk::open(Seed::default()).await;
    let other = desk.shop.db.seed(Seed::default()).await;
    let foreign = format!("/orders/{}/history", other.orders[0]);
    let unknown = format!("/orders/{}/history", Uuid::new_v4());
    for path in [foreign.as_str(), unknown.as_str(), "/orders/x/history"] {
        assert_eq!(refused(&desk.read(path).await), refusal(404, "order_not_found"), "{path}");
    }
    for query in ["?limit=0", "?limit=201", "?after=", "?after=nothing", "?after=%00", "?limit=x"] {
        let reply = desk.read(&desk.order(0, &format!("/history{query}"))).await;
        assert_eq!(refused(&reply), refusal(400, "invalid_query"), "{query}");
    }
    let path = desk.order(0, "/history");
    assert_eq!(refused(&desk.send(&Event::get(&path)).await), refusal(401, "unauthenticated"));
    let writer = testing::token(desk.shop.tenant.id, desk.shop.tenant.users[0], "orders:write");
    assert_eq!(refused(&desk.send(&Event::get(&path).bearer(&writer)).await), refusal(403, "forbidden"));
}
