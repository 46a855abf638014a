//! What had to wait for something that an operator has just created is run again: exceptions of the inbox.
//!
//! Call it after the creation has committed. Each exception is one transaction: it locks what its event would have locked.

use anyhow::Result;
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

/// How many exceptions were run again, and how many of them are processed now.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retried {
    retried: u64,
    processed: u64,
}

impl Retried {
    /// `{"retried","processed"}`.
    pub fn to_json(self) -> Value {
        json!({ "retried": self.retried, "processed": self.processed })
    }
}

/// Runs what waited for a SKU of the tenant. Only shops and 3PLs tell of SKUs.
pub async fn for_skus(conn: &mut PgConnection, tenant: Uuid) -> Result<Retried> {
    let senders: Vec<String> = sqlx::query_scalar(
        "select 'shopify:' || domain from shopify_shop where tenant_id = $1
         union all select '3pl:' || id from threepl_account where tenant_id = $1 order by 1",
    )
    .bind(tenant)
    .fetch_all(&mut *conn)
    .await?;
    let mut sum = Retried::default();
    for sender in senders {
        let one = of_sender(conn, tenant, &sender).await?;
        sum.retried += one.retried;
        sum.processed += one.processed;
    }
    Ok(sum)
}

/// Runs what a sender (`shopify:<domain>`, `stripe`) told before an operator had created what it needs.
pub async fn of_sender(conn: &mut PgConnection, tenant: Uuid, sender: &str) -> Result<Retried> {
    // A delivery that is under way may not have seen what was created: then it has been kept when this returns.
    call(conn, "select holdfast.await_deliveries($1::text::jsonb)::text", &json!({ "provider": sender }))
        .await?;
    let mut done = Retried::default();
    let mut after = Value::Null;
    loop {
        let next = json!({ "tenantId": tenant, "provider": sender, "after": after });
        let Some(id) = call(conn, "select holdfast.next_waiting($1::text::jsonb)::text", &next).await? else {
            return Ok(done);
        };
        let wake = json!({ "tenantId": tenant, "id": id, "actor": "admin" });
        let woken = call(conn, "select holdfast.wake_waiting($1::text::jsonb)::text", &wake).await;
        done.retried += 1;
        match woken {
            Ok(processed) => done.processed += u64::from(processed.as_deref() == Some("true")),
            // What was created stays, and the others are run. It stays open for a person.
            Err(error) => eprintln!("warning: exception {id} failed again: {}", crate::one_line(&error)),
        }
        after = id.into();
    }
}

/// Calls an SQL function that takes one jsonb.
async fn call(conn: &mut PgConnection, sql: &'static str, argument: &Value) -> Result<Option<String>> {
    Ok(sqlx::query_scalar(sql).bind(argument.to_string()).fetch_one(conn).await?)
}
