//! The textbook implementation: three transactions, for the key in progress, the work and the answer. It writes the same
//! rows to the same tables; each statement is a round trip, prepared once per connection, and the tenant is set once per
//! connection.
//!
//! It does as little as the pattern allows: it does not check the order or its customer, does not take over a stale key,
//! and writes both events by one statement. Only for comparison: a crash between its commits leaves the key in progress or
//! the answer unrecorded.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sqlx::{Connection, PgConnection};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::sample::{Sample, Window};
use super::workload::{TENANT, USER, Workload};

const SET_TENANT: &str = "select set_config('app.tenant_id', $1, false)";

const CLAIM: &str =
    "insert into bench.textbook_key (tenant_id, key, state, request_method, request_path, request_hash)
 values ($1, $2, 'in_progress', 'POST', $3, $4) on conflict do nothing";

const MOVE_POSITION: &str =
    "update sku_position set allocated = allocated + 1, event_sequence = event_sequence + 1
 where tenant_id = $1 and sku_id = $2 and on_hand + on_order - allocated >= 1
 returning on_hand + on_order - allocated, event_sequence";

const MOVE_LINE: &str = "update order_line set qty_allocated = qty_allocated + 1
 where tenant_id = $1 and order_id = $2 and sku_id = $3 and qty_allocated + qty_shipped + 1 <= qty";

const COUNT_EVENT: &str = "update wholesale_order set event_sequence = event_sequence + 1
 where tenant_id = $1 and id = $2 and status = 'open' returning event_sequence, customer_id";

const LEDGER: &str = "insert into allocation_ledger (tenant_id, order_id, sku_id, qty, entry_type, actor)
 values ($1, $2, $3, 1, 'allocate', $4)";

/// $1 tenant, $2 order, $3 SKU, $4 customer, $5 sequence of the order, $6 sequence of the SKU, $7 ATS.
const EVENTS: &str = r#"insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence,
   event_type, payload, processed_at)
 select $1, d.id, e.event_id, e.aggregate_type, e.aggregate_id, e.sequence, e.type,
        format('{"id":"%s","type":"%s","schemaVersion":1,"timestamp":"%s","tenantId":"%s",'
               '"aggregate":{"type":"%s","id":"%s","sequence":%s},"data":%s}',
               e.event_id, e.type, holdfast.rfc3339(now()), $1, e.aggregate_type, e.aggregate_id, e.sequence, e.data),
        case when d.id is null then now() end
 from (values
   (gen_random_uuid(), 'order.line_allocated', 'wholesale_order', $2::uuid, $5::bigint,
    format('{"skuId":"%s","qty":1,"atsAfter":%s}', $3::uuid, $7::bigint)),
   (gen_random_uuid(), 'sku.ats_changed', 'sku', $3::uuid, $6::bigint, format('{"atsAfter":%s}', $7::bigint))
 ) as e(event_id, type, aggregate_type, aggregate_id, sequence, data)
 left join destination d on d.tenant_id = $1 and (e.type = any (d.event_types) or '*' = any (d.event_types))
   and (d.customer_id is null or (e.aggregate_type = 'wholesale_order' and d.customer_id = $4::uuid))"#;

const ANSWER: &str = "update bench.textbook_key
 set state = 'done', response_status = 200, response_body = $3, response_content_type = 'application/json'
 where tenant_id = $1 and key = $2";

/// Any value: every key is new, so the hash is never compared.
const REQUEST_HASH: [u8; 32] = [7; 32];

pub struct Textbook {
    idle: Mutex<Vec<PgConnection>>,
}

impl Textbook {
    pub async fn connect(url: &str, count: usize) -> Result<Self> {
        let mut idle = Vec::new();
        for _ in 0..count {
            let mut connection = PgConnection::connect(url).await?;
            sqlx::query(SET_TENANT).bind(TENANT).execute(&mut connection).await?;
            idle.push(connection);
        }
        Ok(Self { idle: Mutex::new(idle) })
    }

    /// Keeps all connections busy during the window. Latency is that of a whole request.
    pub async fn measure(&self, workload: Workload, window: Window) -> Result<Sample> {
        let mut clients = JoinSet::new();
        for connection in self.idle.lock().await.drain(..) {
            clients.spawn(keep_busy(connection, workload, window));
        }
        let mut latencies_us = Vec::new();
        while let Some(client) = clients.join_next().await {
            let (connection, of_client) = client??;
            self.idle.lock().await.push(connection);
            latencies_us.extend(of_client);
        }
        Ok(Sample::of(latencies_us, window.counted()))
    }

    /// Sends `count` requests, one after the other, on one connection.
    pub async fn send(&self, workload: Workload, count: usize) -> Result<()> {
        let mut idle = self.idle.lock().await;
        let connection = idle.first_mut().context("no connection")?;
        for _ in 0..count {
            allocate(connection, workload).await?;
        }
        Ok(())
    }
}

async fn keep_busy(
    mut connection: PgConnection,
    workload: Workload,
    window: Window,
) -> Result<(PgConnection, Vec<u64>)> {
    let mut latencies_us = Vec::new();
    while window.is_open() {
        let duration = allocate(&mut connection, workload).await?;
        if window.counts() {
            latencies_us.push(u64::try_from(duration.as_micros())?);
        }
    }
    Ok((connection, latencies_us))
}

async fn allocate(connection: &mut PgConnection, workload: Workload) -> Result<Duration> {
    let wanted = workload.next();
    let tenant: Uuid = TENANT.parse()?;
    let (order, sku): (Uuid, Uuid) = (wanted.order.parse()?, wanted.sku.parse()?);
    let begun = Instant::now();
    let claimed = sqlx::query(CLAIM)
        .bind(tenant)
        .bind(&wanted.key)
        .bind(format!("/orders/{order}/allocate"))
        .bind(REQUEST_HASH.as_slice())
        .execute(&mut *connection)
        .await?;
    if claimed.rows_affected() != 1 {
        bail!("the key was used before");
    }

    let mut work = connection.begin().await?;
    let (ats, sku_sequence): (i64, i64) =
        sqlx::query_as(MOVE_POSITION).bind(tenant).bind(sku).fetch_one(&mut *work).await?;
    let line = sqlx::query(MOVE_LINE).bind(tenant).bind(order).bind(sku).execute(&mut *work).await?;
    if line.rows_affected() != 1 {
        bail!("the order wants no more units of this SKU");
    }
    let (order_sequence, customer): (i64, Uuid) =
        sqlx::query_as(COUNT_EVENT).bind(tenant).bind(order).fetch_one(&mut *work).await?;
    sqlx::query(LEDGER)
        .bind(tenant)
        .bind(order)
        .bind(sku)
        .bind(format!("user:{USER}"))
        .execute(&mut *work)
        .await?;
    sqlx::query(EVENTS)
        .bind(tenant)
        .bind(order)
        .bind(sku)
        .bind(customer)
        .bind(order_sequence)
        .bind(sku_sequence)
        .bind(ats)
        .execute(&mut *work)
        .await?;
    work.commit().await?;

    let body = format!(
        r#"{{"ok":true,"orderId":"{order}","lines":[{{"skuId":"{sku}","qty":1,"atsAfter":{ats}}}]}}"#
    );
    sqlx::query(ANSWER).bind(tenant).bind(&wanted.key).bind(body.into_bytes()).execute(connection).await?;
    Ok(begun.elapsed())
}
