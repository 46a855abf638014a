//! What arrived at us and at others: deliveries in the inbox, events at the partner, levels at the storefront.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::checks::Check;
use crate::intent::{Intent, Told, Try};
use crate::partner::Partner;
use crate::world::World;

/// An acknowledged delivery has one row in the inbox; a refused one has none.
pub async fn inbox(conn: &mut PgConnection, intents: &[Intent]) -> Result<Check> {
    let mut check = Check::new("a delivery counts once");
    let rows: Vec<(String, String)> =
        sqlx::query_as("select provider, event_id from webhook_inbox").fetch_all(conn).await?;
    let rows: BTreeSet<(String, String)> = rows.into_iter().collect();
    for intent in intents {
        let Some(delivery) = &intent.request.delivery else { continue };
        let Some(kept) = intent.answer() else { continue };
        check.looked_at += 1;
        if (kept.status == 200) != rows.contains(delivery) {
            check.violated(format!(
                "#{} {delivery:?} was answered {} and is in the inbox: {}",
                intent.id,
                kept.status,
                rows.contains(delivery)
            ));
        }
        // All but the first are duplicates; which try was the first nobody can know, so one answer at most is not.
        let first = |one: &&Try| matches!(&one.told, Told::Answer(kept) if kept.json()["duplicate"] != true);
        let firsts = intent.tries.iter().filter(first).count();
        if firsts > 1 {
            check.violated(format!("#{} {delivery:?} was taken {firsts} times", intent.id));
        }
    }
    Ok(check)
}

/// Every delivered row reached its destination with one id and its own bytes, and nothing else did.
pub async fn delivered(conn: &mut PgConnection, partner: &Partner) -> Result<Check> {
    let mut check = Check::new("what arrived is what was committed");
    let rows: Vec<(i64, Uuid, String, bool)> = sqlx::query_as(
        "select o.id, o.destination_id, o.payload, o.processed_at is not null
         from outbox o join destination d on d.id = o.destination_id where d.kind = 'webhook'",
    )
    .fetch_all(conn)
    .await?;
    let rows: HashMap<String, (Uuid, String, bool)> = rows
        .into_iter()
        .map(|(id, destination, payload, done)| (format!("outbox-{id}"), (destination, payload, done)))
        .collect();
    let mut taken = BTreeSet::new();
    for delivery in partner.deliveries() {
        check.looked_at += 1;
        match rows.get(&delivery.id) {
            Some((destination, payload, _))
                if *destination == delivery.destination && *payload == delivery.body =>
            {
                if delivery.taken {
                    taken.insert(delivery.id.clone());
                }
            }
            Some(_) => {
                check.violated(format!("{} arrived with another body or at another destination", delivery.id))
            }
            None => {
                check.violated(format!("{} arrived and is not in the outbox: {}", delivery.id, delivery.body))
            }
        }
    }
    for (id, (_, _, done)) in &rows {
        if *done && !taken.contains(id) {
            check.violated(format!("{id} counts as delivered and was never taken"));
        }
    }
    Ok(check)
}

/// The storefront's last push of a SKU equals its ATS.
pub async fn levels(conn: &mut PgConnection, world: &World, partner: &Partner) -> Result<Check> {
    let mut check = Check::new("the storefront shows the ATS");
    let rows: Vec<(Uuid, String, i64)> = sqlx::query_as(
        "select s.id, s.code, p.on_hand + p.on_order - p.allocated from sku s join sku_position p on p.sku_id = s.id
         where s.tenant_id = $1",
    )
    .bind(world.tenant)
    .fetch_all(conn)
    .await?;
    let levels = partner.levels();
    for (sku, code, ats) in rows {
        let Some(told) = levels.get(&code) else { continue };
        check.looked_at += 1;
        if *told != ats {
            check.violated(format!("{code}: the shop was told {told}, the ATS is {ats}"));
            check.concerned.insert(sku);
        }
    }
    Ok(check)
}
