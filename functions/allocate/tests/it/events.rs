//! The ledger lines and the events of an allocation.

use serde_json::{Value, json};
use sqlx::Row;
use testing::{Event, Seed, Shop, issue_api_key, lines};
use uuid::Uuid;

use crate::send;

fn seed() -> Seed {
    Seed { skus: 3, on_hand: 50, orders: 2, order_qty: 20, ..Seed::default() }
}

struct OutboxRow {
    destination: Option<Uuid>,
    event: Uuid,
    aggregate: (String, Uuid),
    sequence: i64,
    kind: String,
    payload: Value,
    processed: bool,
}

async fn outbox(shop: &Shop) -> Vec<OutboxRow> {
    let sql = "select destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload,
        processed_at is not null as processed from outbox order by id";
    let rows = sqlx::query(sql).fetch_all(&mut shop.db.owner().await).await.unwrap();
    rows.iter()
        .map(|row| OutboxRow {
            destination: row.get("destination_id"),
            event: row.get("event_id"),
            aggregate: (row.get("aggregate_type"), row.get("aggregate_id")),
            sequence: row.get("sequence"),
            kind: row.get("event_type"),
            payload: serde_json::from_str(row.get("payload")).unwrap(),
            processed: row.get("processed"),
        })
        .collect()
}

#[tokio::test]
async fn a_ledger_line_names_who_did_it() {
    let shop = Shop::open(seed()).await;
    let (sandbox, tenant) = (shop.db.endpoint(), &shop.tenant);
    let partner = issue_api_key(&shop.db, tenant.id, tenant.users[1], &["orders:write"]).await;
    let path = format!("/orders/{}/allocate", tenant.orders[0]);
    for (n, token) in [tenant.token(), tenant.second_token(), partner].iter().enumerate() {
        let event = Event::post(&path).bearer(token).key(&format!("k{n}")).json(&shop.one(0, 1));
        assert_eq!(send(&sandbox, &event).await.status, 200);
    }
    let actors: Vec<String> = sqlx::query_scalar("select actor from allocation_ledger order by id")
        .fetch_all(&mut shop.db.owner().await)
        .await
        .unwrap();
    let key: Uuid = shop.db.scalar("select id from api_key").await;
    assert!(actors[0].contains(&tenant.users[0].to_string()), "{actors:?}");
    assert!(actors[1].contains(&tenant.users[1].to_string()), "{actors:?}");
    assert!(actors[2].contains(&key.to_string()), "a partner's line names its API key: {actors:?}");
    let plain = "allocation_ledger where entry_type = 'allocate' and qty = 1 and order_kind = 'wholesale'
        and created_at between now() - interval '1 minute' and clock_timestamp()";
    assert_eq!(shop.db.count(plain).await, 3);
}

#[tokio::test]
async fn an_allocation_writes_one_event_per_distinct_sku_of_each_kind_in_the_envelope_of_the_contract() {
    let shop = Shop::open(seed()).await;
    let [a, b, _] = shop.tenant.skus[..].try_into().unwrap();
    let (order, tenant) = (shop.tenant.orders[0], shop.tenant.id);
    let reply =
        send(&shop.db.endpoint(), &shop.allocate(0).key("k").json(&lines(&[(b, 2), (a, 1), (b, 3)]))).await;
    assert_eq!(reply.status, 200);
    let rows = outbox(&shop).await;
    let mut seen: Vec<_> =
        rows.iter().map(|r| (r.kind.as_str(), r.aggregate.0.as_str(), r.aggregate.1)).collect();
    seen.sort();
    let mut expected = vec![
        ("order.line_allocated", "wholesale_order", order),
        ("order.line_allocated", "wholesale_order", order),
        ("sku.ats_changed", "sku", a),
        ("sku.ats_changed", "sku", b),
    ];
    expected.sort();
    assert_eq!(seen, expected);
    let mut data: Vec<Value> = rows.iter().map(|row| row.payload["data"].clone()).collect();
    data.sort_by_key(Value::to_string);
    let mut wanted = vec![
        json!({"skuId": a, "qty": 1, "atsAfter": 49}),
        json!({"skuId": b, "qty": 5, "atsAfter": 45}),
        json!({"atsAfter": 49}),
        json!({"atsAfter": 45}),
    ];
    wanted.sort_by_key(Value::to_string);
    assert_eq!(data, wanted);
    for row in &rows {
        let mut payload = row.payload.clone();
        let (timestamp, _) = (payload["timestamp"].take(), payload["data"].take());
        let timestamp: String = timestamp.as_str().unwrap().into();
        assert!(timestamp.ends_with('Z') && timestamp.contains('T'), "RFC 3339 UTC: {timestamp}");
        let fits =
            format!("(select abs(extract(epoch from clock_timestamp() - '{timestamp}'::timestamptz)) < 60)");
        shop.db.until(&fits).await;
        let aggregate = json!({"type": row.aggregate.0, "id": row.aggregate.1, "sequence": row.sequence});
        assert_eq!(
            payload,
            json!({"id": row.event, "type": row.kind, "schemaVersion": 1, "timestamp": null, "tenantId": tenant,
                   "aggregate": aggregate, "data": null})
        );
    }
    shop.db.assert_consistent().await;
}

#[tokio::test]
async fn an_event_without_a_subscriber_is_one_row_without_destination_already_processed() {
    let shop = Shop::open(seed()).await;
    shop.db.destination(&shop.tenant, "https://elsewhere.test", &["order.saved"]).await;
    assert_eq!(send(&shop.db.endpoint(), &shop.allocate(0).key("k").json(&shop.one(0, 1))).await.status, 200);
    let rows = outbox(&shop).await;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.destination.is_none() && row.processed));
}

#[tokio::test]
async fn siblings_share_event_id_and_sequence_and_go_to_every_subscriber_active_or_not() {
    let shop = Shop::open(seed()).await;
    let all = shop.db.destination(&shop.tenant, "https://all.test", &["*"]).await.id;
    let orders = shop
        .db
        .destination(&shop.tenant, "https://orders.test", &["order.line_allocated", "order.saved"])
        .await
        .id;
    let paused = shop.db.destination(&shop.tenant, "https://paused.test", &["order.line_allocated"]).await.id;
    let disabled = shop.db.destination(&shop.tenant, "https://disabled.test", &["sku.ats_changed"]).await.id;
    let other = shop.db.seed(seed()).await;
    shop.db.destination(&other, "https://other-tenant.test", &["*"]).await;
    shop.db.execute(format!("update destination set state = 'paused' where id = '{paused}'")).await;
    shop.db.execute(format!("update destination set state = 'disabled' where id = '{disabled}'")).await;
    assert_eq!(send(&shop.db.endpoint(), &shop.allocate(0).key("k").json(&shop.one(0, 1))).await.status, 200);
    let rows = outbox(&shop).await;
    let to = |kind: &str| {
        let mut to: Vec<_> =
            rows.iter().filter(|row| row.kind == kind).map(|row| row.destination.unwrap()).collect();
        to.sort();
        to
    };
    let sorted = |mut ids: Vec<Uuid>| {
        ids.sort();
        ids
    };
    assert_eq!(to("order.line_allocated"), sorted(vec![all, orders, paused]));
    assert_eq!(to("sku.ats_changed"), sorted(vec![all, disabled]));
    for kind in ["order.line_allocated", "sku.ats_changed"] {
        let siblings: Vec<_> = rows.iter().filter(|row| row.kind == kind).collect();
        assert!(
            siblings.iter().all(|row| row.event == siblings[0].event && row.sequence == siblings[0].sequence)
        );
        assert!(siblings.iter().all(|row| row.payload == siblings[0].payload && !row.processed));
    }
}

#[tokio::test]
async fn a_destination_bound_to_a_customer_gets_only_that_customers_orders() {
    let shop = Shop::open(seed()).await;
    let bound = shop.db.destination(&shop.tenant, "https://bound.test", &["*"]).await.id;
    let (tenant, customer, theirs) = (shop.tenant.id, shop.tenant.customer, Uuid::new_v4());
    let foreign = shop.db.destination(&shop.tenant, "https://foreign.test", &["*"]).await.id;
    shop.db
        .execute(format!(
            "insert into customer (tenant_id, id, name, currency) values ('{tenant}', '{theirs}', 'Another', 'USD');
             update destination set customer_id = '{customer}' where id = '{bound}';
             update destination set customer_id = '{theirs}' where id = '{foreign}'"
        ))
        .await;
    assert_eq!(send(&shop.db.endpoint(), &shop.allocate(0).key("k").json(&shop.one(0, 1))).await.status, 200);
    let rows = outbox(&shop).await;
    let owed: Vec<_> = rows.iter().map(|row| (row.kind.as_str(), row.destination)).collect();
    assert_eq!(owed.len(), 2);
    assert!(owed.contains(&("order.line_allocated", Some(bound))), "{owed:?}");
    assert!(owed.contains(&("sku.ats_changed", None)), "{owed:?}");
}

#[tokio::test]
async fn sequences_of_an_aggregate_count_without_a_gap_over_requests_refusals_and_replays() {
    let shop = Shop::open(seed()).await;
    let sandbox = shop.db.endpoint();
    for n in 0..6 {
        let order = n % 2;
        let event = shop
            .allocate(order)
            .key(&format!("k{n}"))
            .json(&lines(&[(shop.tenant.skus[n % 3], 2), (shop.tenant.skus[2], 1)]));
        assert_eq!(send(&sandbox, &event).await.status, 200);
        assert_eq!(send(&sandbox, &event).await.status, 200);
        let refused = shop.allocate(order).key(&format!("r{n}")).json(&shop.one(0, 1_000));
        assert_eq!(send(&sandbox, &refused).await.status, 422);
    }
    shop.db.assert_consistent().await;
    let rows = outbox(&shop).await;
    for order in &shop.tenant.orders {
        let sequence: Vec<i64> =
            rows.iter().filter(|row| row.aggregate.1 == *order).map(|row| row.sequence).collect();
        let count = i64::try_from(sequence.len()).unwrap();
        assert_eq!(sequence, (1..=count).collect::<Vec<_>>(), "in the order of writing");
    }
}
