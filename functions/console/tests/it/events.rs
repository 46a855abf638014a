//! A partner reads its destination's events, and asks for them again.

use serde_json::{Value, json};
use testing::{Event, Reply, fresh_key};

use crate::Desk;

/// An API key with `events:read` of a destination.
async fn key_of(desk: &Desk, destination: &str) -> String {
    let key = format!("hf_{}", uuid::Uuid::new_v4().simple());
    let (tenant, user) = (desk.shop.tenant.id, desk.shop.tenant.users[0]);
    desk.shop
        .db
        .execute(format!(
            "insert into api_key (tenant_id, app_user_id, label, key_hash, scopes, destination_id)
             values ('{tenant}', '{user}', 'partner', sha256('{key}'), array['events:read'], '{destination}')"
        ))
        .await;
    key
}

async fn get(desk: &Desk, key: &str, path: &str) -> Reply {
    desk.send(&Event::get(path).bearer(key)).await
}

async fn post(desk: &Desk, key: &str, body: &Value) -> Reply {
    desk.send(&Event::post("/events/replay").bearer(key).key(&fresh_key()).json(body)).await
}

fn ids(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_partner_reads_its_own_destinations_events_oldest_first_and_no_other() {
    let desk = Desk::open().await;
    let (mine, other) = (desk.webhook().await, desk.webhook().await);
    let key = key_of(&desk, &mine).await;
    desk.shop.db.emit(&desk.shop.tenant, 5).await;
    assert_eq!(ids(&get(&desk, &key, "/events").await.json()), [""; 0], "what is younger than 30 s waits");
    desk.shop
        .db
        .execute("update outbox set created_at = now() - interval '1 h'; update outbox set processed_at = now() where sequence = 2")
        .await;
    let own: Vec<String> =
        desk.ids(&format!("/admin/outbox?destination={mine}")).await.into_iter().rev().collect();
    let all = get(&desk, &key, &format!("/events?destination={mine}")).await.json();
    assert_eq!((ids(&all), &all["next"]), (own.iter().map(String::as_str).collect(), &Value::Null));
    assert_eq!(
        (&all["items"][1]["state"], &all["items"][1]["envelope"]["aggregate"]["sequence"]),
        (&json!("delivered"), &json!(2))
    );
    let (mut seen, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(&desk, &key, &format!("/events?limit=2{after}")).await.json();
        seen.extend(ids(&page).into_iter().map(str::to_owned));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(seen, own);
    for path in
        [format!("/events?destination={other}"), format!("/events?destination={}", uuid::Uuid::new_v4())]
    {
        assert_eq!(get(&desk, &key, &path).await.error().as_deref(), Some("not_found"), "{path}");
    }
    assert_eq!(get(&desk, &key, "/events?after=99999").await.error().as_deref(), Some("invalid_query"));
    assert_eq!(get(&desk, &key, "/admin/outbox").await.error().as_deref(), Some("forbidden"));
    // A user with the scope reads any of the tenant's, and says which.
    assert_eq!(
        desk.read(&format!("/events?destination={other}")).await["items"].as_array().unwrap().len(),
        5
    );
    for path in ["/events", "/events?destination="] {
        let unnamed = desk.get(path).await;
        assert_eq!((unnamed.status, unnamed.error().as_deref()), (400, Some("invalid_query")), "{path}");
        assert_eq!(unnamed.json()["errors"][0]["path"], "destination");
    }
}

#[tokio::test]
async fn a_gap_heals_by_time_or_by_sequence_and_only_at_the_partners_own_destination() {
    let desk = Desk::open().await;
    let (mine, other) = (desk.webhook().await, desk.webhook().await);
    let key = key_of(&desk, &mine).await;
    desk.shop.db.emit(&desk.shop.tenant, 6).await;
    desk.shop
        .db
        .execute(
            "update outbox set processed_at = now(), created_at = '2026-01-01T00:00:00Z'::timestamptz + make_interval(mins => sequence::int);
             update outbox set processed_at = null, dead_lettered_at = now() where sequence = 6",
        )
        .await;
    let pending = async || {
        let sql = format!(
            "outbox where destination_id = '{mine}' and processed_at is null and dead_lettered_at is null"
        );
        desk.shop.db.count(&sql).await
    };
    let aggregate = desk.shop.tenant.id;
    let by_sequence =
        json!({"destination": mine, "aggregateId": aggregate, "fromSequence": 2, "toSequence": 3});
    assert_eq!(post(&desk, &key, &by_sequence).await.json(), json!({"requeued": 2, "next": null}));
    assert_eq!(pending().await, 2);
    let by_time = json!({"destination": mine, "from": "2026-01-01T00:05:00Z", "to": "2026-01-01T00:07:00Z"});
    assert_eq!(post(&desk, &key, &by_time).await.json(), json!({"requeued": 2, "next": null}));
    assert_eq!(pending().await, 4);
    assert_eq!(
        desk.shop.db.count(&format!("outbox where destination_id = '{other}' and requeues > 0")).await,
        0
    );
    let of_other =
        json!({"destination": other, "from": "2026-01-01T00:05:00Z", "to": "2026-01-01T00:07:00Z"});
    assert_eq!(post(&desk, &key, &of_other).await.error().as_deref(), Some("not_found"));
    for body in [
        json!({"destination": mine}),
        json!({"destination": mine, "from": "x", "to": "2026-01-01T00:07:00Z"}),
        json!({"destination": mine, "aggregateId": aggregate, "fromSequence": 2}),
        json!({"destination": mine, "aggregateId": aggregate, "fromSequence": 2, "toSequence": 3, "from": "2026-01-01T00:05:00Z"}),
    ] {
        assert_eq!(post(&desk, &key, &body).await.error().as_deref(), Some("invalid_body"), "{body}");
    }
}
