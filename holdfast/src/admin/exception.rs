//! `holdfast admin exception …`: signed webhooks that could not be processed, of all tenants. Those of no tenant (a shop that nobody has
//! registered) are seen in no console; here an operator ends them.

use anyhow::{Result, anyhow, bail};
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use uuid::Uuid;

use super::check;

/// Of one transaction.
const DISMISSALS_MAX: usize = 1_000;

/// `admin exception …`
#[derive(Subcommand)]
pub enum Command {
    /// List exceptions, newest first, each with why it is one and the beginning of its body.
    List {
        /// List only this tenant's, or with `none` those of no tenant [default: all].
        #[arg(long, value_name = "TENANT_ID|none", value_parser = whose)]
        tenant: Option<Whose>,
        /// List only what this sender told (shopify:<domain>, 3pl:<account>), or this kind of senders (stripe).
        #[arg(long, value_name = "SENDER")]
        provider: Option<String>,
        /// Those that need somebody, or those that have ended.
        #[arg(long, default_value = "open")]
        state: State,
        /// The most to list.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(i32).range(1..=10_000))]
        limit: i32,
    },
    /// End exceptions without processing them: those that are named, all of them or none; or all that a sender told.
    Dismiss {
        /// The exception's id, as `list` shows it; may be given several times.
        #[arg(long, value_name = "EXCEPTION_ID", required_unless_present = "provider")]
        id: Vec<Uuid>,
        /// All open ones of this sender, or of this kind of senders.
        #[arg(long, value_name = "SENDER", conflicts_with = "id", requires = "tenant")]
        provider: Option<String>,
        /// Whose they are, with --provider: a tenant's, or those of no tenant.
        #[arg(long, value_name = "TENANT_ID|none", value_parser = whose, conflicts_with = "id")]
        tenant: Option<Whose>,
        /// Why nothing is to be done; it is kept with them.
        #[arg(long, value_parser = check::reason)]
        reason: String,
    },
}

/// Whose exceptions: a tenant's, or nobody's.
#[derive(Clone, Copy)]
pub struct Whose(Option<Uuid>);

fn whose(text: &str) -> Result<Whose, String> {
    match text {
        "none" => Ok(Whose(None)),
        id => id.parse().map(|id| Whose(Some(id))).map_err(|_| "give a tenant's id, or none".into()),
    }
}

/// Whether an exception has ended.
#[derive(Clone, Copy, ValueEnum)]
pub enum State {
    Open,
    Resolved,
}

/// Runs the command and returns what it changed or found.
pub async fn run(conn: &mut PgConnection, command: Command) -> Result<Vec<Value>> {
    match command {
        Command::List { tenant, provider, state, limit } => {
            let state = match state {
                State::Open => "open",
                State::Resolved => "resolved",
            };
            list(conn, tenant, &json!({ "state": state, "provider": provider }), limit).await
        }
        Command::Dismiss { provider: Some(provider), tenant: Some(Whose(tenant)), reason, .. } => {
            let filter = json!({ "state": "open", "provider": provider });
            dismiss_all(conn, tenant, &filter, &reason).await
        }
        Command::Dismiss { id, reason, .. } => dismiss(conn, &id, &reason).await,
    }
}

async fn list(
    conn: &mut PgConnection,
    whose: Option<Whose>,
    filter: &Value,
    limit: i32,
) -> Result<Vec<Value>> {
    // Tenant by tenant, as the index has them.
    let rows = sqlx::query(
        "select e.tenant_id, d.document
         from (select id as tenant_id from tenant union all select null) t
         cross join lateral unnest(holdfast.exceptions_found(t.tenant_id, $3::text::jsonb, null, $4)) as f(id)
         join inbox_exception e on e.id = f.id
         cross join lateral holdfast.exception_documents(e.tenant_id, array[e.id]) d
         where $1 or t.tenant_id is not distinct from $2
         order by e.received_at desc, e.id desc limit $4",
    )
    .bind(whose.is_none())
    .bind(whose.and_then(|Whose(tenant)| tenant))
    .bind(filter.to_string())
    .bind(limit)
    .fetch_all(conn)
    .await?;
    rows.iter().map(|row| document(row.get(0), row.get(1))).collect()
}

fn document(tenant: Option<Uuid>, document: &str) -> Result<Value> {
    let mut document: Value = serde_json::from_str(document)?;
    document["tenantId"] = json!(tenant);
    Ok(document)
}

async fn dismiss(conn: &mut PgConnection, ids: &[Uuid], reason: &str) -> Result<Vec<Value>> {
    let mut tx = conn.begin().await?;
    let mut ended = Vec::new();
    for id in ids {
        let tenant: Option<Option<Uuid>> =
            sqlx::query_scalar("select tenant_id from inbox_exception where id = $1")
                .bind(id)
                .fetch_optional(&mut *tx)
                .await?;
        let Some(tenant) = tenant else { bail!("there is no exception with the id {id}") };
        let call = json!({ "tenantId": tenant, "id": id, "actor": "admin", "reason": reason });
        let content = outcome(&mut tx, "holdfast.dismiss_exception", &call).await;
        ended.push(document(tenant, &content.map_err(|error| anyhow!("exception {id}: {error}"))?)?);
    }
    tx.commit().await?;
    Ok(ended)
}

async fn dismiss_all(
    conn: &mut PgConnection,
    tenant: Option<Uuid>,
    filter: &Value,
    reason: &str,
) -> Result<Vec<Value>> {
    let mut dismissed = 0;
    let mut after = Value::Null;
    loop {
        let call = json!({ "tenantId": tenant, "actor": "admin", "filter": filter, "after": after,
            "reason": reason, "limit": DISMISSALS_MAX });
        let done: Value = serde_json::from_str(&outcome(conn, "holdfast.dismiss_exceptions", &call).await?)?;
        dismissed += done["dismissed"].as_u64().unwrap_or_default();
        after = done["next"].clone();
        if after.is_null() {
            return Ok(vec![json!({ "dismissed": dismissed })]);
        }
    }
}

/// The content of a success; a refusal's sentence as an error.
async fn outcome(conn: &mut PgConnection, function: &str, call: &Value) -> Result<String> {
    let sql = format!("select error, detail, content from {function}($1::text::jsonb)");
    let row = sqlx::query(AssertSqlSafe(sql)).bind(call.to_string()).fetch_one(conn).await?;
    match row.get::<Option<String>, _>("error") {
        Some(_) => Err(anyhow!(row.get::<Option<String>, _>("detail").unwrap_or_default())),
        None => Ok(row.get("content")),
    }
}
