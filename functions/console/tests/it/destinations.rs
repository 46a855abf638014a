//! Creating and changing destinations.

use std::time::Duration;

use serde_json::{Value, json};
use shared::delivery::outbox::{self, ClaimRequest, LeaseTerms, Rearranged};
use shared::runtime::sealed::destination_place;
use testing::Seed;
use uuid::Uuid;

use crate::Desk;

const SECOND: Duration = Duration::from_secs(1);

fn webhook(url: &str) -> Value {
    json!({"name": "EDI \"gateway\"", "kind": "webhook", "url": url, "eventTypes": ["order.saved", "*"]})
}

/// The secrets of a destination, newest first, as the console's key opens them; in the database none stands as it is.
async fn stored(desk: &Desk, id: &str) -> Vec<String> {
    let secrets: Vec<String> = sqlx::query_scalar(
        "select secret from destination_secret where destination_id = $1::uuid order by created_at desc",
    )
    .bind(id)
    .fetch_all(&mut desk.shop.db.owner().await)
    .await
    .unwrap();
    assert!(secrets.iter().all(|secret| secret.starts_with("sealed:test:")), "{secrets:?}");
    secrets.iter().map(|secret| testing::sealer().open(&destination_place(id), secret).unwrap()).collect()
}

#[tokio::test]
async fn a_destination_is_created_listed_and_gets_events_and_no_answer_tells_its_secret() {
    let desk = Desk::open().await;
    let mut body = webhook("https://example.com/hook?a=1");
    body["customerId"] = json!(desk.shop.tenant.customer);
    (body["ordered"], body["maxAttempts"], body["maxPerSecond"]) = (json!(true), json!(3), json!(5));
    let event = desk.posting("/admin/destinations", &body);
    let created = desk.send(&event).await;
    assert_eq!(created.status, 201, "{}", created.json());
    assert_eq!(desk.send(&event).await.body, created.body);
    let destination = created.json();
    for (name, value) in body.as_object().unwrap() {
        assert_eq!(&destination[name], value, "{name}");
    }
    assert_eq!(destination["state"], "active");
    let id = destination["id"].as_str().unwrap();
    let plain = desk.webhook().await;
    assert_eq!(desk.ids("/admin/destinations").await, [plain.as_str(), id]);
    assert_eq!(desk.read("/admin/destinations?limit=1").await["next"], json!(plain));
    assert_eq!(desk.ids(&format!("/admin/destinations?after={plain}")).await, [id]);
    assert_eq!(desk.read("/admin/destinations").await["items"][1], destination);

    let secret = desk.read(&format!("/admin/destinations/{id}/secret")).await;
    let told = secret["secret"].as_str().unwrap();
    assert_eq!(stored(&desk, id).await, [told]);
    assert_eq!(desk.post(&format!("/admin/destinations/{id}/rotate"), &json!({})).await.status, 200);
    let rotated = desk.read(&format!("/admin/destinations/{id}/secret")).await;
    assert_eq!(json!(stored(&desk, id).await), json!([rotated["secret"], told]));
    assert_eq!(rotated["secrets"][1]["secret"], told);
    // One that was stored before there were keys is told as it stands; what was sealed elsewhere opens nowhere.
    let other = testing::sealer().seal("destination of another", "whsec_x").unwrap();
    desk.shop
        .db
        .execute(format!(
            "update destination_secret set secret = 'whsec_plain' where destination_id = '{plain}'"
        ))
        .await;
    assert_eq!(desk.read(&format!("/admin/destinations/{plain}/secret")).await["secret"], "whsec_plain");
    desk.shop
        .db
        .execute(format!("update destination_secret set secret = '{other}' where destination_id = '{plain}'"))
        .await;
    let unreadable = desk.get(&format!("/admin/destinations/{plain}/secret")).await;
    assert_eq!((unreadable.status, unreadable.error().as_deref()), (500, Some("internal")));
    assert!(told.starts_with("whsec_") && told.len() > 40);
    assert_eq!(secret["secrets"][0]["secret"], secret["secret"]);
    assert!(!String::from_utf8_lossy(&created.body).contains("whsec_"));
    assert!(!desk.read("/admin/destinations").await.to_string().contains("whsec_"));
    let recorded = desk
        .shop
        .db
        .count("idempotency_key where position('whsec_' in convert_from(response_body, 'UTF8')) > 0")
        .await;
    assert_eq!(recorded + desk.shop.db.count("outbox_audit where details::text like '%whsec_%'").await, 0);
}

#[tokio::test]
async fn what_is_no_destination_is_refused_with_every_mistake_named() {
    let desk = Desk::open().await;
    let good = webhook("https://example.com/");
    for (name, value, path) in [
        ("name", json!(" "), "/name"),
        ("name", Value::Null, "/name"),
        ("kind", json!("fax"), "/kind"),
        ("url", json!(7), "/url"),
        ("url", json!("example.com"), "/url"),
        ("url", json!("mailto:a@b.example"), "/url"),
        ("eventTypes", json!([]), "/eventTypes"),
        ("eventTypes", json!("*"), "/eventTypes"),
        ("eventTypes", json!(["order.eaten"]), "/eventTypes/0"),
        ("customerId", json!("x"), "/customerId"),
        ("ordered", json!(1), "/ordered"),
        ("maxAttempts", json!(0), "/maxAttempts"),
        ("maxAttempts", json!(101), "/maxAttempts"),
        ("maxPerSecond", json!(0), "/maxPerSecond"),
        ("accessToken", json!("x"), "/accessToken"),
        ("secret", json!("whsec_x"), "/secret"),
        ("state", json!("paused"), "/state"),
    ] {
        let mut body = good.clone();
        body[name] = value;
        let reply = desk.post("/admin/destinations", &body).await;
        assert_eq!((reply.status, reply.error().as_deref()), (400, Some("invalid_body")), "{body}");
        assert_eq!(reply.json()["errors"][0]["path"], path, "{body}");
    }
    for name in ["name", "kind", "url", "eventTypes"] {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(name);
        let reply = desk.post("/admin/destinations", &body).await;
        assert_eq!(reply.json()["errors"][0]["path"], format!("/{name}"));
    }
    assert_eq!(desk.shop.db.count("idempotency_key").await, 0, "a bad body leaves its key unused");
    let mut body = good.clone();
    body["customerId"] = json!(desk.shop.db.seed(Seed::default()).await.customer);
    let reply = desk.post("/admin/destinations", &body).await;
    assert_eq!((reply.status, reply.error().as_deref()), (422, Some("unknown_customer")));
}

#[tokio::test]
async fn only_what_is_named_changes_and_a_state_can_be_set() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    let path = format!("/admin/destinations/{id}");
    let before = desk.read("/admin/destinations").await["items"][0].clone();
    let changed = desk.patch(&path, &json!({"state": "paused", "maxAttempts": 2})).await;
    let mut expected = before.clone();
    (expected["state"], expected["maxAttempts"]) = (json!("paused"), json!(2));
    assert_eq!((changed.status, changed.json()), (200, expected));
    let changed = desk.patch(&path, &json!({"maxPerSecond": 4, "customerId": desk.shop.tenant.customer, "eventTypes": ["order.saved"]})).await;
    assert_eq!(
        (&changed.json()["maxPerSecond"], &changed.json()["eventTypes"]),
        (&json!(4), &json!(["order.saved"]))
    );
    let cleared = desk.patch(&path, &json!({"maxPerSecond": null, "customerId": null})).await;
    assert_eq!(
        (&cleared.json()["maxPerSecond"], &cleared.json()["customerId"]),
        (&Value::Null, &Value::Null)
    );
    for body in [
        json!({"kind": "email"}),
        json!({"state": "on"}),
        json!({"url": "https://10.0.0.1/"}),
        json!({"name": null}),
        json!({}),
    ] {
        assert_eq!(desk.patch(&path, &body).await.error().as_deref(), Some("invalid_body"), "{body}");
    }
    for body in [json!({"accessToken": "x"}), json!({"url": "mailto:a@b.example"})] {
        assert_eq!(desk.patch(&path, &body).await.error().as_deref(), Some("destination_kind"), "{body}");
    }
    let nowhere = format!("/admin/destinations/{}", Uuid::new_v4());
    assert_eq!(desk.patch(&nowhere, &json!({"name": "x"})).await.status, 404);
}

#[tokio::test]
async fn switching_one_off_and_on_is_told_to_the_others_and_not_to_itself() {
    let desk = Desk::open().await;
    let (id, other) = (desk.webhook().await, desk.webhook().await);
    let path = format!("/admin/destinations/{id}");
    for state in ["disabled", "disabled", "active", "paused", "active"] {
        assert_eq!(desk.patch(&path, &json!({ "state": state })).await.status, 200);
    }
    let told = desk.read("/admin/outbox").await;
    let told: Vec<_> =
        told["items"].as_array().unwrap().iter().map(|e| (&e["type"], &e["destinationId"])).collect();
    let other = json!(other);
    assert_eq!(told, [(&json!("destination.recovered"), &other), (&json!("destination.disabled"), &other)]);
    desk.shop.db.assert_consistent().await;
}

#[tokio::test]
async fn one_that_a_person_wants_tried_again_is_tried_at_once_and_told_of_when_it_has_answered() {
    let desk = Desk::open().await;
    let (id, _other) = (desk.webhook().await, desk.webhook().await);
    desk.shop.db.emit(&desk.shop.tenant, 3).await;
    desk.shop.db.execute(format!(
        "update outbox set attempts = 5, next_attempt_at = now() + interval '1 h' where destination_id = '{id}';
         update outbox set lease_token = gen_random_uuid(), leased_until = now() + interval '9 s'
           where id = (select min(id) from outbox where destination_id = '{id}');
         insert into destination_health (tenant_id, destination_id, failures, open_until, opened, probing)
         values ('{}', '{id}', 40, now() + interval '1 min', 3, true)", desk.shop.tenant.id)).await;
    let path = format!("/admin/destinations/{id}");
    assert_eq!(desk.patch(&path, &json!({"state": "active"})).await.status, 200);
    let due = format!("outbox where destination_id = '{id}' and next_attempt_at <= now()");
    assert_eq!(desk.shop.db.count(&due).await, 2, "all but the one that is on its way");
    let probe =
        "destination_health where open_until <= now() and opened = 1 and not probing and failures = 0";
    assert_eq!(desk.shop.db.count(probe).await, 1);
    assert_eq!(desk.shop.db.count("outbox where event_type <> 'inbox.exception'").await, 0);
    // Enabled again, it starts with a closed breaker, and the others get an event that a person enabled it.
    for state in ["disabled", "active"] {
        assert_eq!(desk.patch(&path, &json!({ "state": state })).await.status, 200);
    }
    let anew = "destination_health where open_until is null and opened = 0";
    assert_eq!(desk.shop.db.count(anew).await, 1);
    let told: String = desk.shop.db.scalar(
        "select string_agg(concat_ws(' ', event_type, payload::jsonb #>> '{data,state}', payload::jsonb #>> '{data,cause}'), ', '
           order by id) from outbox where event_type <> 'inbox.exception'").await;
    assert_eq!(told, "destination.disabled disabled person, destination.recovered active person");
}

#[tokio::test]
async fn after_a_rotation_both_secrets_live_for_a_day_and_an_older_one_no_longer() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    let secrets = async || {
        let told = desk.read(&format!("/admin/destinations/{id}/secret")).await;
        let all: Vec<String> = told["secrets"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s["secret"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(told["secret"], json!(all[0]));
        all
    };
    let first = secrets().await;
    let rotate = desk.posting(&format!("/admin/destinations/{id}/rotate"), &json!({}));
    let rotated = desk.send(&rotate).await;
    assert_eq!(rotated.status, 200, "{}", rotated.json());
    assert_eq!(desk.send(&rotate).await.body, rotated.body, "one click is one rotation");
    let second = secrets().await;
    assert_eq!((second.len(), &second[1]), (2, &first[0]));
    let in_a_day = desk
        .shop
        .db
        .count(
            "destination_secret where retires_at between now() + interval '23 h' and now() + interval '25 h'",
        )
        .await;
    assert_eq!(in_a_day, 1);
    desk.post(&format!("/admin/destinations/{id}/rotate"), &json!({})).await;
    let third = secrets().await;
    assert_eq!((third.len(), &third[1]), (2, &second[0]));
    assert_eq!(
        desk.post(&format!("/admin/destinations/{}/rotate", Uuid::new_v4()), &json!({})).await.status,
        404
    );
}

#[tokio::test]
async fn a_shop_keeps_its_token_to_itself_and_signs_nothing() {
    let desk = Desk::open().await;
    let body = json!({"name": "Shop", "kind": "shopify_inventory", "url": "https://shop.example/admin/api/graphql.json",
        "eventTypes": ["sku.ats_changed"], "accessToken": "shpat_1234", "locationId": "gid://shopify/Location/1"});
    let created = desk.post("/admin/destinations", &body).await;
    assert_eq!(
        (created.status, &created.json()["locationId"]),
        (201, &body["locationId"]),
        "{}",
        created.json()
    );
    let id = created.json()["id"].as_str().unwrap().to_owned();
    let everything = [created.json(), desk.read("/admin/destinations").await];
    assert!(!json!(everything).to_string().contains("shpat_"));
    assert_eq!(desk.shop.db.count("outbox_audit where details::text like '%shpat_%'").await, 0);
    assert_eq!(stored(&desk, &id).await, ["shpat_1234"]);
    let path = format!("/admin/destinations/{id}");
    assert_eq!(desk.get(&format!("{path}/secret")).await.status, 404);
    assert_eq!(
        desk.post(&format!("{path}/rotate"), &json!({})).await.error().as_deref(),
        Some("destination_kind")
    );
    assert_eq!(
        desk.patch(&path, &json!({"ordered": true})).await.error().as_deref(),
        Some("destination_kind")
    );
    assert_eq!(desk.patch(&path, &json!({"accessToken": "shpat_5678"})).await.status, 200);
    assert_eq!(stored(&desk, &id).await, ["shpat_5678"]);
    let mut ordered = body.clone();
    ordered["ordered"] = json!(true);
    assert_eq!(desk.post("/admin/destinations", &ordered).await.json()["errors"][0]["path"], "/ordered");
    let email = json!({"name": "Mail", "kind": "email", "url": "mailto:orders@brand.example", "eventTypes": ["order.line_allocated"]});
    assert_eq!(desk.post("/admin/destinations", &email).await.status, 201);
}

#[tokio::test]
async fn at_an_ordered_destination_only_the_head_of_each_aggregate_is_due() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    let due = "outbox where isfinite(next_attempt_at)";
    desk.shop.db.emit(&desk.shop.tenant, 3).await;
    assert_eq!(desk.shop.db.count(due).await, 3);
    let path = format!("/admin/destinations/{id}");
    assert_eq!(desk.patch(&path, &json!({"ordered": true})).await.status, 200);
    assert_eq!(desk.shop.db.count(due).await, 1);
    desk.shop.db.emit(&desk.shop.tenant, 3).await;
    assert_eq!(desk.shop.db.count(&format!("{due} and id = 1")).await, 1);
    assert_eq!(desk.shop.db.count(due).await, 1);
    assert_eq!(desk.post("/admin/outbox/1/discard", &json!({"reason": "x"})).await.status, 200);
    assert_eq!(desk.shop.db.count(&format!("{due} and id = 2")).await, 1);
    // A requeued event takes its old place in the queue.
    desk.shop.db.execute("update outbox set dead_lettered_at = now() where id = 2; update outbox set next_attempt_at = now() where id = 3").await;
    assert_eq!(desk.post("/admin/outbox/2/requeue", &json!({})).await.status, 200);
    assert_eq!(desk.shop.db.count(&format!("{due} and id = 2")).await, 1);
    assert_eq!(desk.shop.db.count(&format!("{due} and discarded_at is null")).await, 1);
    assert_eq!(desk.patch(&path, &json!({"ordered": false})).await.status, 200);
    assert_eq!(desk.shop.db.count(due).await, 6);
}

#[tokio::test]
async fn ordered_is_switched_with_a_large_backlog_and_the_relay_puts_it_in_order_in_steps() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    let (db, path) = (&desk.shop.db, format!("/admin/destinations/{id}"));
    db.execute("analyze outbox").await;
    db.emit(&desk.shop.tenant, 3_000).await;
    // An event whose transaction still knows the destination as it was.
    let late = desk.late_event().await;
    let switched = desk.patch(&path, &json!({"ordered": true})).await.json();
    assert_eq!((&switched["ordered"], &switched["rearranging"]), (&json!(true), &json!(true)));
    let worker = db.worker();
    let claim = async || {
        let terms = LeaseTerms { lease: SECOND * 30, retry_unit: SECOND, jitter: 1.0 };
        let request =
            ClaimRequest { slots: 20, after: Uuid::nil(), busy: &[], room_each: 20, watermarks: &[], terms };
        outbox::claim(&worker, &request).await.unwrap().0.iter().map(|row| row.id).collect::<Vec<_>>()
    };
    let mut steps = 0;
    while outbox::rearrange(&worker, 1_000).await.unwrap() == Rearranged::More {
        assert_eq!(claim().await, [0; 0], "nothing goes out in the wrong order meanwhile");
        steps += 1;
    }
    assert!((1..=3).contains(&steps), "{steps}");
    assert_eq!(
        desk.read("/admin/destinations").await["items"][0]["rearranging"],
        true,
        "one event may still come"
    );
    late.let_go().await;
    while outbox::rearrange(&worker, 1_000).await.unwrap() != Rearranged::Done {}
    assert_eq!(desk.read("/admin/destinations").await["items"][0]["rearranging"], false);
    assert_eq!(db.count("outbox where isfinite(next_attempt_at) or not keyed").await, 1);
    assert_eq!(claim().await, [1]);
    let back = desk.patch(&path, &json!({"ordered": false})).await.json();
    assert_eq!(back["rearranging"], true);
    while outbox::rearrange(&worker, 1_000).await.unwrap() != Rearranged::Done {}
    assert_eq!(db.count("outbox where isfinite(next_attempt_at)").await, 3_001);
}
