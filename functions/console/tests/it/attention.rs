//! What waits for a person, and how deliveries go.

use serde_json::{Value, json};

use crate::Desk;

/// The sums of what is told of a destination: delivered and failed, by minute and by hour.
fn sums(rates: &Value, id: &str) -> [(i64, i64); 2] {
    let found = rates["destinations"].as_array().unwrap().iter().find(|d| d["id"] == id).unwrap();
    [("minutes", 60), ("hours", 24)].map(|(name, length)| {
        let all = found[name].as_array().unwrap();
        assert_eq!(all.len(), length);
        let sum = |n: usize| all.iter().map(|pair| pair[n].as_i64().unwrap()).sum();
        (sum(0), sum(1))
    })
}

#[tokio::test]
async fn what_waits_is_counted_by_kind_and_what_has_ended_is_not() {
    let desk = Desk::open().await;
    let nothing = json!({"most": 1000, "deadLetters": 0, "exceptions": 0, "shortfalls": 0, "held": 0, "destinations": 0});
    assert_eq!(desk.read("/admin/attention").await, nothing);
    let (tenant, sku) = (desk.shop.tenant.id, desk.shop.tenant.skus[0]);
    let destination = desk.webhook().await;
    let dead = "insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload,
        dead_lettered_at, discarded_at)";
    let row = format!("'{tenant}', '{destination}', gen_random_uuid(), 'sku', '{sku}'");
    for sql in [
        format!("{dead} values ({row}, 1, 'sku.ats_changed', '{{}}', now(), null)"),
        format!("{dead} values ({row}, 2, 'sku.ats_changed', '{{}}', null, now())"),
        format!(
            "insert into shortfall (tenant_id, sku_id, qty, cause, settled_at)
             values ('{tenant}', '{sku}', 3, 'asn.cancelled', null), ('{tenant}', '{sku}', 3, 'asn.received', now())"
        ),
        format!(
            "insert into inbox_exception (tenant_id, provider, event_id, topic, reason, body, resolved_at)
             values ('{tenant}', 'stripe', 'e1', 't', 'r', '', null), ('{tenant}', 'stripe', 'e2', 't', 'r', '', now())"
        ),
        format!("insert into reconcile_run (tenant_id, snapshot_date, state, finished_at) values ('{tenant}', '2026-01-01', 'held', null), ('{tenant}', '2026-01-02', 'done', now())"),
        format!("update destination set state = 'disabled' where id = '{destination}'"),
    ] {
        desk.shop.db.execute(sql).await;
    }
    let one = json!({"most": 1000, "deadLetters": 1, "exceptions": 1, "shortfalls": 1, "held": 1, "destinations": 1});
    assert_eq!(desk.read("/admin/attention").await, one);
    let other = Desk::open().await;
    assert_eq!(other.read("/admin/attention").await, nothing);
}

#[tokio::test]
async fn a_slot_of_an_earlier_hour_is_not_shown_and_is_written_anew() {
    let desk = Desk::open().await;
    let id = desk.webhook().await;
    let tally = |span: &str, ago: &str| {
        format!(
            "insert into delivery_tally (tenant_id, destination_id, span, slot, at, delivered, failed)
             select '{}', '{id}', '{span}', holdfast.tally_slot('{span}', q.at), q.at, 5, 2
             from (select date_trunc('{span}', now() - interval '{ago}', 'UTC') as at) q",
            desk.shop.tenant.id
        )
    };
    for (span, ago) in [("minute", "10 min"), ("minute", "65 min"), ("hour", "3 h"), ("hour", "26 h")] {
        desk.shop.db.execute(tally(span, ago)).await;
    }
    assert_eq!(sums(&desk.read("/admin/health/rates").await, &id), [(5, 2), (5, 2)]);
    // An attempt in the slot of an hour ago: what it held is over.
    desk.shop.db.execute("update delivery_tally set at = at - interval '60 min' where span = 'minute'").await;
    assert_eq!(sums(&desk.read("/admin/health/rates").await, &id)[0], (0, 0));
}
