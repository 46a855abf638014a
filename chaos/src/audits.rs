//! What one query each decides when all is quiet again.

use anyhow::Result;
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use crate::checks::Check;

/// Runs them all.
pub async fn all(conn: &mut PgConnection) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for (name, count, wrong) in BY_QUERY {
        checks.push(audit(conn, name, count, wrong).await?);
    }
    Ok(checks)
}

/// One that a query decides: it returns what is wrong, one text per row; `all` counts what it looks at.
async fn audit(conn: &mut PgConnection, name: &'static str, all: &str, wrong: &str) -> Result<Check> {
    let looked_at: i64 = sqlx::query_scalar(AssertSqlSafe(all.to_owned())).fetch_one(&mut *conn).await?;
    let rows = sqlx::query(AssertSqlSafe(wrong.to_owned())).fetch_all(&mut *conn).await?;
    let mut check = Check { looked_at: looked_at.unsigned_abs(), ..Check::new(name) };
    for row in rows {
        check.violations.push(row.try_get::<String, _>(0)?);
        if let Ok(Some(id)) = row.try_get::<Option<Uuid>, _>(1) {
            check.concerned.insert(id);
        }
    }
    Ok(check)
}

/// Checks that one query decides: what it looks at, and what is wrong of it (a text, and perhaps an id).
const BY_QUERY: [(&str, &str, &str); 11] = [
    (
        "positions equal their ledgers",
        "select count(*) from sku_position",
        "select 'position ' || sku_id || ': ' || p::text, sku_id from position_audit p",
    ),
    (
        "lines equal their ledger",
        "select count(*) from order_line",
        "select 'line of ' || order_id || ': ' || l::text, order_id from order_line_audit l",
    ),
    (
        "nothing is oversold",
        "select count(*) from sku_position",
        "select 'oversold ' || sku_id, sku_id from sku_position where allocated > on_hand + on_order",
    ),
    (
        "no line holds more than it wants",
        "select count(*) from order_line",
        "select 'line of ' || order_id, order_id from order_line where qty_allocated + qty_shipped > qty or qty_allocated < 0",
    ),
    (
        "no credit limit was passed unsaid",
        "select count(*) from customer where credit_limit_minor is not null",
        "select format('customer %s owes %s of %s', c.id, holdfast.exposure(c.tenant_id, c.id), c.credit_limit_minor), c.id
         from customer c where holdfast.exposure(c.tenant_id, c.id) > c.credit_limit_minor
           and not exists (select from outbox o where o.event_type = 'customer.over_limit' and o.aggregate_id = c.id)",
    ),
    (
        "sequences have no gap",
        "select count(distinct (aggregate_type, aggregate_id)) from outbox",
        "select format('%s %s: %s events, numbers %s to %s', aggregate_type, aggregate_id, count(distinct sequence),
           min(sequence), max(sequence)), aggregate_id
         from outbox group by tenant_id, aggregate_type, aggregate_id
         having min(sequence) <> 1 or max(sequence) <> count(distinct sequence) or count(distinct event_id) <> count(distinct sequence)",
    ),
    (
        "every event is delivered",
        "select count(*) from outbox where destination_id is not null",
        "select format('%s %s: attempts %s, next %s, error %s', id, holdfast.outbox_state(o), attempts, next_attempt_at, last_error),
           aggregate_id
         from outbox o where destination_id is not null and processed_at is null",
    ),
    (
        "invoices equal their payments",
        "select count(*) from invoice",
        "select format('invoice %s: paid %s, ledger %s', i.id, i.paid_minor, l.paid), i.order_id
         from invoice i cross join lateral (
           select coalesce(sum(l.amount_minor) filter (where l.kind = 'payment'), 0) as paid from payment_ledger l
           where l.tenant_id = i.tenant_id and l.invoice_id = i.id and l.currency = i.currency) l
         where i.paid_minor <> l.paid or (i.status = 'paid') <> (i.status <> 'void' and i.paid_minor >= i.total_minor)",
    ),
    (
        "a payment counts once",
        "select count(distinct payment_intent) from payment_ledger where payment_intent is not null",
        "select format('%s: %s', payment_intent, sum(amount_minor)), null::uuid from payment_ledger
         where kind = 'payment' and payment_intent is not null group by payment_intent having sum(amount_minor) <> 5000",
    ),
    (
        "nothing is owed while there is stock",
        "select count(*) from shortfall",
        "select format('SKU %s: owed %s, ATS %s', s.sku_id, s.owed_on_hand + s.owed_on_order, p.on_hand + p.on_order - p.allocated),
           s.sku_id
         from shortfall s join sku_position p using (tenant_id, sku_id)
         where s.settled_at is null and s.owed_on_hand + s.owed_on_order > 0 and p.on_hand + p.on_order - p.allocated > 0",
    ),
    (
        "no channel order lacks what there is",
        "select count(*) from channel_hold",
        "select format('channel order %s lacks %s of SKU %s, ATS %s', h.channel_order_id, h.qty_wanted - h.qty_held, h.sku_id,
           p.on_hand + p.on_order - p.allocated), h.sku_id
         from channel_hold h join sku_position p using (tenant_id, sku_id)
         where h.qty_held < h.qty_wanted and p.on_hand + p.on_order - p.allocated > 0",
    ),
];
