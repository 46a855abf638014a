//! `If-Match` is never dropped: an operation on an order honours it, and where nothing has a version it matches nothing.

use serde_json::json;
use shared::delivery::address::Guard;
use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply, Seed, Shop, fresh_key};

async fn answer(sandbox: &Endpoint, event: &Event, verb: &str) -> Reply {
    let request = event.request();
    Reply::from(match verb {
        "allocate" => allocate::handle(sandbox, request).await,
        "release" => release::handle(sandbox, request).await,
        "invoices" => invoice::handle(sandbox, request).await,
        _ => order_save::handle(sandbox, request).await,
    })
}

#[tokio::test]
async fn operations_on_an_order_are_refused_for_a_version_that_it_does_not_have_and_run_for_one_it_has() {
    let shop = Shop::open(Seed { on_hand: 50, order_qty: 20, ..Seed::default() }).await;
    let sandbox = shop.db.endpoint();
    let order = shop.tenant.orders[0];
    for (verb, body) in [
        ("allocate", shop.one(0, 2)),
        ("release", shop.one(0, 1)),
        ("invoices", json!({})),
        ("cancel", json!({})),
    ] {
        let event = |if_match: &str| {
            Event::post(&format!("/orders/{order}/{verb}"))
                .bearer(&shop.tenant.token())
                .key(&fresh_key())
                .header("If-Match", if_match)
                .json(&body)
        };
        let before = shop.db.state().await;
        for stale in ["\"7\"", "W/\"1\"", "\"01\"", "1"] {
            let event = event(stale);
            let reply = answer(&sandbox, &event, verb).await;
            assert_eq!(
                (reply.status, reply.error().as_deref()),
                (412, Some("version_conflict")),
                "{verb} {stale}"
            );
            assert_eq!(reply.json()["current"]["version"], 1, "{verb} {stale}");
            assert_eq!(
                reply.json()["yourBaseVersion"],
                if stale == "\"7\"" { json!(7) } else { json!(null) }
            );
            let again = answer(&sandbox, &event, verb).await;
            assert_eq!((again.header("idempotent-replayed"), &again.body), (Some("true"), &reply.body));
        }
        assert_eq!(shop.db.state().await, before, "{verb}");
        let current = event("\"7\", \"1\"");
        let reply = answer(&sandbox, &current, verb).await;
        assert!(reply.status < 300, "{verb}: {}", reply.json());
        // The precondition is part of the request.
        let other = answer(&sandbox, &current.clone().header("If-Match", "\"1\""), verb).await;
        assert!(matches!(other.status, 412 | 422), "{verb}: {}", other.json());
    }
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn where_nothing_has_a_version_if_match_is_412_and_the_key_stays_unused() {
    let shop = Shop::open(Seed::default()).await;
    let sandbox = shop.db.endpoint();
    let lines = json!([{"skuId": shop.tenant.skus[0], "qty": 1, "unitPriceMinor": 1}]);
    let create = Event::post("/orders")
        .bearer(&shop.tenant.token())
        .key("k")
        .json(&json!({"customerId": shop.tenant.customer, "lines": lines}));
    let reply = answer(&sandbox, &create.clone().header("If-Match", "*"), "orders").await;
    assert_eq!((reply.status, reply.error().as_deref()), (412, Some("version_conflict")), "{}", reply.json());
    assert_eq!(shop.db.count("idempotency_key").await, 0);
    assert_eq!(answer(&sandbox, &create, "orders").await.status, 201);

    let console = console::Console {
        endpoint: sandbox,
        guard: Guard::default(),
        page: Default::default(),
        sealer: testing::sealer(),
    };
    let body = json!({"name": "d", "kind": "webhook", "url": "https://example.com/", "eventTypes": ["*"]});
    let admin = Event::post("/admin/destinations").bearer(&shop.tenant.token()).key("k2").json(&body);
    let reply = Reply::from(console::handle(&console, admin.header("If-Match", "\"1\"").request()).await);
    assert_eq!(reply.status, 412, "{}", reply.json());
    assert_eq!(shop.db.count("destination").await, 0);
}
