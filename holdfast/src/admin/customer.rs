//! `holdfast admin customer …`: credit limits and holds, saved as the API saves them.

use anyhow::{Result, anyhow, bail};
use clap::Subcommand;
use serde_json::{Map, Value, json};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

/// `admin customer …`
#[derive(Subcommand)]
pub enum CustomerCommand {
    /// List a tenant's customers by name, with their limits and holds.
    List {
        /// The tenant's id.
        #[arg(long, value_name = "TENANT_ID")]
        tenant: Uuid,
    },
    /// Set a customer's credit limit or hold. What is promised already stays promised.
    Set {
        /// The tenant's id.
        #[arg(long, value_name = "TENANT_ID")]
        tenant: Uuid,
        /// The customer's id, as `list` shows it.
        #[arg(long, value_name = "CUSTOMER_ID")]
        id: Uuid,
        /// The most that the customer may owe and be promised, in minor units (890000 for 8,900.00).
        #[arg(long, value_name = "AMOUNT", value_parser = clap::value_parser!(i64).range(0..=10_000_000_000))]
        credit_limit_minor: Option<i64>,
        /// The customer has no limit.
        #[arg(long, conflicts_with = "credit_limit_minor")]
        no_credit_limit: bool,
        /// Whether the customer is on hold: then nothing new is promised to it.
        #[arg(long, value_name = "true|false")]
        on_hold: Option<bool>,
    },
}

pub async fn run(conn: &mut PgConnection, command: CustomerCommand) -> Result<Vec<Value>> {
    match command {
        CustomerCommand::List { tenant } => list(conn, tenant).await,
        CustomerCommand::Set { tenant, id, credit_limit_minor, no_credit_limit, on_hold } => {
            let mut fields = Map::new();
            if no_credit_limit || credit_limit_minor.is_some() {
                fields.insert("creditLimitMinor".into(), json!(credit_limit_minor));
            }
            if let Some(on_hold) = on_hold {
                fields.insert("onHold".into(), on_hold.into());
            }
            if fields.is_empty() {
                bail!("name what to set: --credit-limit-minor, --no-credit-limit or --on-hold");
            }
            set(conn, tenant, id, fields).await
        }
    }
}

async fn list(conn: &mut PgConnection, tenant: Uuid) -> Result<Vec<Value>> {
    let rows = sqlx::query(
        "select id, name, currency, credit_limit_minor, on_hold from customer where tenant_id = $1 order by name, id",
    )
    .bind(tenant)
    .fetch_all(conn)
    .await?;
    Ok(rows
        .iter()
        .map(|r| {
            json!({ "id": r.get::<Uuid, _>(0), "name": r.get::<String, _>(1), "currency": r.get::<String, _>(2),
                "creditLimitMinor": r.get::<Option<i64>, _>(3), "onHold": r.get::<bool, _>(4) })
        })
        .collect())
}

/// The version goes up and `customer.saved` is told, whatever version there was: an operator has the last word.
async fn set(
    conn: &mut PgConnection,
    tenant: Uuid,
    id: Uuid,
    fields: Map<String, Value>,
) -> Result<Vec<Value>> {
    let call = json!({ "tenantId": tenant, "customerId": id, "userId": null, "match": { "any": true },
        "fields": fields });
    let row = sqlx::query("select error, detail, content from holdfast.save_customer($1::text::jsonb)")
        .bind(call.to_string())
        .fetch_one(conn)
        .await?;
    if row.get::<Option<String>, _>("error").is_some() {
        return Err(anyhow!(row.get::<Option<String>, _>("detail").unwrap_or_default()));
    }
    let saved: Value = serde_json::from_str(&row.get::<String, _>("content"))?;
    Ok(vec![saved["customer"].clone()])
}
