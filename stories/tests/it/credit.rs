//! The credit limit and the hold, against everything that raises what a customer owes and holds.

use futures_util::future::join;
use serde_json::{Value, json};
use testing::{Seed, lines};
use uuid::Uuid;

use crate::desk::{Desk, answer, lines_of, refusal, refused};

/// `limit`, `exposure` and `requested` of a refusal.
fn members(problem: &Value) -> [i64; 3] {
    ["limit", "exposure", "requested"].map(|name| problem[name].as_i64().unwrap())
}

fn priced(sku: Uuid, qty: i64, price: i64) -> Value {
    json!({"skuId": sku, "qty": qty, "unitPriceMinor": price})
}

/// `[limit, exposure]` of each `customer.over_limit`.
async fn told_over(desk: &Desk) -> Vec<[i64; 2]> {
    let events = desk.events(desk.shop.tenant.customer).await;
    events
        .iter()
        .filter(|(name, _)| name == "customer.over_limit")
        .map(|(_, data)| ["limit", "exposure"].map(|name| data[name].as_i64().unwrap()))
        .collect()
}

#[tokio::test]
async fn a_save_that_raises_the_price_of_promised_units_stays_within_the_limit() {
    let limit = Some(5_000_000);
    let seed = Seed {
        on_hand: 2_000,
        orders: 2,
        order_qty: 1_000,
        unit_price_minor: 0,
        credit_limit_minor: limit,
        ..Seed::default()
    };
    let desk = Desk::open(seed).await;
    let sku = desk.sku(0);
    desk.promise(0, 0, 1_000).await;
    assert_eq!(desk.exposure().await, 0);
    let state = desk.shop.db.state().await;
    let raise = json!({"baseVersion": 1, "notes": "dearer", "lines": [priced(sku, 1_000, 10_000)]});
    let event = desk.event("PATCH", &desk.order(0, ""), &raise);
    let reply = desk.send(&event).await;
    assert_eq!(refused(&reply), refusal(422, "credit_limit_exceeded"));
    assert_eq!(members(&reply.json()), [5_000_000, 0, 10_000_000]);
    assert_eq!(desk.shop.db.state().await, state, "a refusal changes nothing");
    let again = desk.send(&event).await;
    assert_eq!((&again.body, again.header("idempotent-replayed")), (&reply.body, Some("true")));

    // To the limit, and by one minor unit a piece beyond it.
    let save =
        |version: i64, price: i64| json!({"baseVersion": version, "lines": [priced(sku, 1_000, price)]});
    assert_eq!(desk.patch(&desk.order(0, ""), &save(1, 5_000)).await.status, 200);
    assert_eq!(desk.exposure().await, 5_000_000);
    let reply = desk.patch(&desk.order(0, ""), &save(2, 5_001)).await;
    assert_eq!(members(&reply.json()), [5_000_000, 5_000_000, 1_000]);
    // Units that are not promised cost nothing, and a lower price is never refused.
    assert_eq!(desk.patch(&desk.order(1, ""), &save(1, 9_000_000)).await.status, 200);
    assert_eq!(desk.patch(&desk.order(0, ""), &save(2, 4_000)).await.status, 200);
    assert_eq!(desk.exposure().await, 4_000_000);
    // Units that were shipped and are not billed count as promised ones do.
    desk.ship(0, &[(0, 600)]).await;
    let reply = desk.patch(&desk.order(0, ""), &save(3, 6_000)).await;
    assert_eq!(refused(&reply), refusal(422, "credit_limit_exceeded"));
    assert_eq!(members(&reply.json()), [5_000_000, 4_000_000, 2_000_000]);
    // Invoiced units are billed already: their price may rise.
    assert_eq!(desk.post(&desk.order(0, "/invoices"), &json!({})).await.status, 201);
    assert_eq!(desk.patch(&desk.order(0, ""), &save(3, 10_000)).await.status, 200);
    assert_eq!(desk.exposure().await, 4_000_000, "their invoice stands as it is");
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_save_is_refused_for_the_first_rule_that_it_breaks() {
    let seed = Seed {
        skus: 2,
        on_hand: 100,
        orders: 2,
        order_qty: 10,
        credit_limit_minor: Some(10_000),
        ..Seed::default()
    };
    let desk = Desk::open(seed).await;
    let [a, b] = [desk.sku(0), desk.sku(1)];
    desk.promise(0, 0, 4).await;
    desk.promise(0, 1, 2).await;
    assert_eq!(desk.post(&desk.order(1, "/cancel"), &json!({})).await.status, 200);
    let unknown = json!({"lines": [priced(Uuid::new_v4(), 1, 1), priced(a, 3, 90_000), priced(b, 2, 1)]});
    let below = json!({"lines": [priced(a, 3, 90_000), priced(b, 2, 1)]});
    let dear = json!({"lines": [priced(a, 4, 90_000), priced(b, 2, 1_000)]});
    let with = |body: &Value, version: i64| {
        let mut body = body.clone();
        body["baseVersion"] = json!(version);
        body
    };
    let state = desk.shop.db.state().await;
    let nowhere = format!("/orders/{}", Uuid::new_v4());
    for (path, body, status, code) in [
        (nowhere, with(&unknown, 7), 404, "order_not_found"),
        (desk.order(1, ""), with(&unknown, 7), 409, "order_not_open"),
        (desk.order(0, ""), with(&unknown, 7), 409, "version_conflict"),
        (desk.order(0, ""), with(&unknown, 1), 422, "unknown_sku"),
        (desk.order(0, ""), with(&below, 1), 422, "below_allocated"),
        (desk.order(0, ""), with(&dear, 1), 422, "credit_limit_exceeded"),
    ] {
        let reply = desk.patch(&path, &body).await;
        assert_eq!(refused(&reply), refusal(status, code), "{body}");
        if code == "credit_limit_exceeded" {
            assert_eq!(members(&reply.json()), [10_000, 6_000, 356_000]);
        }
    }
    assert_eq!(desk.shop.db.state().await, state);
}

#[tokio::test]
async fn a_customer_on_hold_is_promised_nothing_new_and_everything_else_goes_on() {
    let desk = Desk::open(Seed { skus: 2, on_hand: 100, orders: 3, ..Seed::default() }).await;
    let [a, b] = [desk.sku(0), desk.sku(1)];
    for order in [0, 1] {
        desk.promise(order, 0, 4).await;
    }
    let held = desk.patch(&desk.customer(), &json!({"baseVersion": 1, "onHold": true})).await;
    assert_eq!((held.status, &held.json()["customer"]["onHold"]), (200, &json!(true)));
    let create = |customer: Uuid, sku: Uuid| json!({"customerId": customer, "lines": [priced(sku, 1, 1)]});
    let (customer, unknown) = (desk.shop.tenant.customer, Uuid::new_v4());
    let state = desk.shop.db.state().await;
    for (path, body) in [
        (desk.order(0, "/allocate"), desk.shop.one(0, 1)),
        (desk.order(0, "/allocate"), lines(&[(unknown, 1)])),
        (desk.order(0, "/allocate"), lines(&[(b, 9_000)])),
        ("/orders".into(), create(customer, a)),
        ("/orders".into(), create(customer, unknown)),
    ] {
        let reply = desk.post(&path, &body).await;
        assert_eq!(refused(&reply), refusal(422, "customer_on_hold"), "{path} {body}");
    }
    let reply = desk.post("/orders", &create(unknown, a)).await;
    assert_eq!(refused(&reply), refusal(422, "unknown_customer"));
    let stale =
        desk.event("POST", &desk.order(0, "/allocate"), &desk.shop.one(0, 1)).header("if-match", "\"9\"");
    assert_eq!(refused(&desk.send(&stale).await), refusal(412, "version_conflict"));
    assert_eq!(desk.shop.db.state().await, state);

    for (path, body, status) in [
        (desk.order(0, "/release"), desk.shop.one(0, 1), 200),
        (desk.order(0, "/invoices"), json!({}), 201),
        (desk.order(1, "/cancel"), json!({}), 200),
    ] {
        assert_eq!(desk.post(&path, &body).await.status, status, "{path}");
    }
    let refusal_of_ended = desk.post(&desk.order(1, "/allocate"), &desk.shop.one(0, 1)).await;
    assert_eq!(refused(&refusal_of_ended), refusal(409, "order_not_open"), "before hold");
    assert_eq!(desk.patch(&desk.order(0, ""), &json!({"baseVersion": 1, "notes": "x"})).await.status, 200);
    desk.ship(0, &[(0, 2)]).await;
    assert_eq!(desk.post(&desk.order(0, "/close"), &json!({})).await.status, 200);

    let lifted = desk.patch(&desk.customer(), &json!({"baseVersion": 2, "onHold": false})).await;
    assert_eq!(lifted.status, 200);
    desk.promise(2, 0, 1).await;
    assert_eq!(desk.post("/orders", &create(customer, a)).await.status, 201);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_beside_an_allocate_never_passes_the_limit_of_both() {
    let seed =
        Seed { on_hand: 100, orders: 2, order_qty: 20, credit_limit_minor: Some(14_999), ..Seed::default() };
    let desk = Desk::open(seed).await;
    let second = desk.shop.db.endpoint();
    second.db.warm().await;
    let sku = desk.sku(0);
    desk.promise(0, 0, 5).await;
    let customer = format!("select 1 from customer where id = '{}' for update", desk.shop.tenant.customer);
    let mut version = 1;
    let mut won = [0, 0];
    for round in 0..30 {
        // 5,000 are held, and each of the two adds 5,000: together one minor unit too much.
        let save = json!({"baseVersion": version, "lines": [priced(sku, 20, 2_000)]});
        let save = desk.event("PATCH", &desk.order(0, ""), &save);
        let mut body = desk.shop.one(0, 5);
        body["partial"] = json!(false);
        let allocate = desk.event("POST", &desk.order(1, "/allocate"), &body);
        // In every third round both wait for the customer and start from there.
        let held = if round % 3 == 0 { Some(desk.shop.db.hold(customer.clone()).await) } else { None };
        let letting_go = async {
            if let Some(held) = held {
                desk.shop.db.until_blocked(2).await;
                held.let_go().await;
            }
        };
        let ((saved, allocated), ()) =
            join(join(desk.send(&save), answer(&second, &allocate)), letting_go).await;
        assert_eq!(
            [&saved, &allocated].iter().filter(|reply| reply.status == 200).count(),
            1,
            "{saved:?} {allocated:?}"
        );
        assert_eq!(desk.exposure().await, 10_000, "round {round}");
        let loser = if saved.status == 200 { &allocated } else { &saved };
        assert_eq!(refused(loser), refusal(422, "credit_limit_exceeded"));
        assert_eq!(members(&loser.json()), [14_999, 10_000, 5_000]);
        if saved.status == 200 {
            won[0] += 1;
            let back = json!({"baseVersion": version + 1, "lines": [priced(sku, 20, 1_000)]});
            assert_eq!(desk.patch(&desk.order(0, ""), &back).await.status, 200);
            version += 2;
        } else {
            won[1] += 1;
            assert_eq!(desk.post(&desk.order(1, "/release"), &desk.shop.one(0, 5)).await.status, 200);
        }
        assert_eq!(desk.exposure().await, 5_000);
    }
    assert_eq!(won.iter().sum::<i32>(), 30);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_limit_below_what_is_owed_is_taken_and_told() {
    let desk = Desk::open(Seed { on_hand: 100, orders: 1, order_qty: 20, ..Seed::default() }).await;
    desk.promise(0, 0, 10).await;
    let limit = async |version: i64, limit: Value| {
        let reply =
            desk.patch(&desk.customer(), &json!({"baseVersion": version, "creditLimitMinor": limit})).await;
        assert_eq!((reply.status, &reply.json()["customer"]["creditLimitMinor"]), (200, &limit));
    };
    limit(1, json!(10_000)).await;
    assert_eq!(told_over(&desk).await, [[0; 2]; 0], "reached is not passed");
    limit(2, json!(9_999)).await;
    assert_eq!(told_over(&desk).await, [[9_999, 10_000]]);
    let event = desk.events(desk.shop.tenant.customer).await.pop().unwrap();
    assert_eq!((event.0.as_str(), &event.1["version"]), ("customer.over_limit", &json!(3)));
    let reply = desk.post(&desk.order(0, "/allocate"), &desk.shop.one(0, 1)).await;
    assert_eq!(members(&reply.json()), [9_999, 10_000, 1_000]);
    limit(3, json!(null)).await;
    desk.promise(0, 0, 5).await;
    limit(4, json!(0)).await;
    assert_eq!(told_over(&desk).await, [[9_999, 10_000], [0, 15_000]]);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_shipment_that_passes_the_limit_is_booked_and_told() {
    let seed =
        Seed { on_hand: 100, orders: 2, order_qty: 10, credit_limit_minor: Some(6_000), ..Seed::default() };
    let desk = Desk::open(seed).await;
    desk.promise(0, 0, 4).await;
    desk.ship(0, &[(0, 4)]).await;
    desk.ship(0, &[(0, 2)]).await;
    assert_eq!(desk.exposure().await, 6_000);
    assert_eq!(
        told_over(&desk).await,
        [[0; 2]; 0],
        "what was held costs nothing more; the limit is only reached"
    );
    desk.ship(1, &[(0, 3)]).await;
    assert_eq!(desk.exposure().await, 9_000);
    assert_eq!(told_over(&desk).await, [[6_000, 9_000]]);
    assert_eq!(lines_of(&desk.get(&desk.order(1, "")).await), [[10, 0, 3, 0, 1_000]]);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_void_and_a_payment_that_bounced_are_taken_and_told_where_they_pass_the_limit() {
    let seed =
        Seed { on_hand: 100, orders: 2, order_qty: 6, credit_limit_minor: Some(8_000), ..Seed::default() };
    let desk = Desk::open(seed).await;
    desk.promise(0, 0, 6).await;
    let invoice = desk.post(&desk.order(0, "/invoices"), &json!({})).await.json();
    let of = |verb: &str| format!("/invoices/{}/{verb}", invoice["id"].as_str().unwrap());
    let pay = async |amount: i64, reference: &str| {
        let reply = desk.post(&of("payments"), &json!({"amountMinor": amount, "reference": reference})).await;
        assert_eq!(reply.status, 201, "{}", reply.json());
    };
    pay(6_000, "transfer 1").await;
    assert_eq!(desk.exposure().await, 0);
    desk.promise(1, 0, 6).await;
    pay(-5_000, "bounced 1").await;
    // Whatever the invoice's state is called: five of its six thousand are due again.
    assert_eq!(desk.exposure().await, 11_000);
    assert_eq!(told_over(&desk).await, [[8_000, 11_000]]);

    let desk =
        Desk::open(Seed { on_hand: 100, orders: 1, credit_limit_minor: Some(8_000), ..Seed::default() })
            .await;
    desk.promise(0, 0, 6).await;
    let invoice = desk.post(&desk.order(0, "/invoices"), &json!({})).await.json();
    // Billed units may become dearer; once their bill is taken back they count at the new price.
    let dear = json!({"baseVersion": 1, "lines": [priced(desk.sku(0), 6, 2_000)]});
    assert_eq!(desk.patch(&desk.order(0, ""), &dear).await.status, 200);
    assert_eq!(told_over(&desk).await, [[0; 2]; 0]);
    let path = format!("/invoices/{}/void", invoice["id"].as_str().unwrap());
    let voided = desk.post(&path, &json!({"reason": "a wrong price"})).await;
    assert_eq!((voided.status, &voided.json()["status"]), (200, &json!("void")), "{}", voided.json());
    assert_eq!(desk.exposure().await, 12_000);
    assert_eq!(told_over(&desk).await, [[8_000, 12_000]]);
    assert_eq!(desk.post(&desk.order(0, "/invoices"), &json!({})).await.json()["totalMinor"], 12_000);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn a_limit_that_is_set_while_units_are_being_promised_is_told_when_it_is_passed() {
    let desk = Desk::open(Seed { on_hand: 100, orders: 1, order_qty: 10, ..Seed::default() }).await;
    let sandboxes = [desk.shop.db.endpoint(), desk.shop.db.endpoint()];
    for sandbox in &sandboxes {
        sandbox.db.warm().await;
    }
    let stock = desk.shop.hold(0).await;
    let allocate = desk.event("POST", &desk.order(0, "/allocate"), &desk.shop.one(0, 10));
    let body = json!({"baseVersion": 1, "creditLimitMinor": 4_000});
    let lower = desk.event("PATCH", &desk.customer(), &body);
    let [first, second] = sandboxes;
    let promising = tokio::spawn(async move { answer(&first, &allocate).await });
    desk.shop.db.until_blocked(1).await;
    let lowering = tokio::spawn(async move { answer(&second, &lower).await });
    // It may wait for the allocation, or pass it.
    desk.shop
        .db
        .until(
            "(select max(version) = 2 from customer) or (select count(*) = 2 from pg_stat_activity
               where datname = current_database() and usename = 'holdfast_app' and wait_event_type = 'Lock')",
        )
        .await;
    stock.let_go().await;
    assert_eq!(lowering.await.unwrap().status, 200);
    let promised = promising.await.unwrap();
    let exposure = desk.exposure().await;
    assert_eq!(exposure > 4_000, promised.status == 200, "{promised:?}");
    let told = told_over(&desk).await;
    assert!(
        exposure <= 4_000 || told == [[4_000, 10_000]],
        "over the limit by {exposure}, and told: {told:?}"
    );
    desk.shop.db.assert_consistent().await;
}
