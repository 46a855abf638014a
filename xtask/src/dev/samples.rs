//! Sample webhook payloads in `.local/samples/` that fit the demo data: a payment, a channel order, an ASN.

use anyhow::Result;
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use super::demo::PLENTIFUL_CODE;
use super::state::State;
use xtask::workspace::Workspace;

const INVOICE_TOTAL_MINOR: i64 = 5_000;

/// Writes the files anew, and first the invoice that the payment is for if the demo tenant has none.
pub async fn write(conn: &mut PgConnection, state: &State) -> Result<()> {
    let demo = &state.demo;
    sqlx::query(
        "insert into invoice (tenant_id, customer_id, total_minor, currency)
         select $1, $2, $3, 'USD' where not exists (select from invoice where tenant_id = $1)",
    )
    .bind(demo.tenant)
    .bind(demo.customer)
    .bind(INVOICE_TOTAL_MINOR)
    .execute(&mut *conn)
    .await?;
    let (invoice, total_minor): (Uuid, i64) = sqlx::query_as(
        "select id, total_minor from invoice where tenant_id = $1
         order by status = 'awaiting_payment' desc, created_at limit 1",
    )
    .bind(demo.tenant)
    .fetch_one(&mut *conn)
    .await?;
    let folder = Workspace::open()?.state("samples");
    std::fs::create_dir_all(&folder)?;
    for (name, sample) in [
        ("stripe.json", payment(invoice, total_minor)),
        ("shopify.json", channel_order()),
        ("3pl.json", asn()),
    ] {
        std::fs::write(folder.join(name), serde_json::to_vec_pretty(&sample)?)?;
    }
    Ok(())
}

fn payment(invoice: Uuid, total_minor: i64) -> Value {
    json!({
        "id": "evt_sample", "object": "event", "type": "payment_intent.succeeded", "livemode": false,
        "created": 1_767_225_600, "api_version": "2026-01-28",
        "data": {"object": {
            "id": "pi_sample", "object": "payment_intent", "amount": total_minor, "amount_received": total_minor,
            "currency": "usd", "status": "succeeded", "metadata": {"invoice_id": invoice},
        }},
    })
}

/// Its ids are beyond 2^53, as Shopify's can be.
fn channel_order() -> Value {
    json!({
        "id": 9_123_456_789_012_345_678_u64, "name": "#1001", "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z", "cancelled_at": null,
        "line_items": [{
            "id": 9_123_456_789_012_345_001_u64, "variant_id": 42, "sku": PLENTIFUL_CODE,
            "quantity": 2, "current_quantity": 2, "price": "198.00",
        }],
    })
}

fn asn() -> Value {
    json!({"type": "asn.created", "asnId": "ASN-SAMPLE-1", "lines": [{"lineId": "1", "sku": PLENTIFUL_CODE, "qty": 60}]})
}
