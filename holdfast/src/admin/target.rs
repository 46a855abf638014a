//! `holdfast admin target …`: the buses and queues of AWS that a tenant may send its events to, and the senders that its mails may
//! bear. The relay uses them with its own rights, so a tenant cannot choose them itself.

use anyhow::{Result, anyhow, bail};
use clap::{Subcommand, ValueEnum};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use super::check;

/// `admin target …`
#[derive(Subcommand)]
pub enum TargetCommand {
    /// Allow a tenant a bus, a queue or a sender; the stack's parameter RelayTargetArns, or SesIdentityArns, must name it too.
    Allow(Target),
    /// Take that back. Destinations that use it are disabled; their events wait.
    Revoke(Target),
    /// List what tenants are allowed.
    List {
        /// List only this tenant's.
        #[arg(long, value_name = "TENANT_ID")]
        tenant: Option<Uuid>,
    },
}

/// A bus, a queue or a sender of one tenant.
#[derive(clap::Args)]
pub struct Target {
    /// The tenant's id.
    #[arg(long, value_name = "TENANT_ID")]
    tenant: Uuid,
    /// What it is.
    #[arg(long)]
    kind: Kind,
    /// The ARN of a bus, the URL of a queue, or a mail address.
    #[arg(long)]
    address: String,
}

/// The kind of destination.
#[derive(Clone, Copy, ValueEnum)]
pub enum Kind {
    Eventbridge,
    Sqs,
    Email,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Eventbridge => "eventbridge",
            Self::Sqs => "sqs",
            Self::Email => "email",
        }
    }

    /// The address as it is stored; an error where it is none of this kind.
    fn stored(self, address: &str) -> Result<String> {
        let parts = |prefix: &str, separator: char, at_least: usize| {
            address.starts_with(prefix)
                && address.split(separator).filter(|part| !part.is_empty()).count() >= at_least
        };
        match self {
            Self::Eventbridge if !parts("arn:", ':', 6) || !address.contains(":event-bus/") => {
                bail!("that is not the ARN of a bus: arn:aws:events:REGION:ACCOUNT:event-bus/NAME")
            }
            Self::Sqs if !parts("https://", '/', 4) && !parts("http://127.0.0.1:", '/', 4) => {
                bail!("that is not the URL of a queue: https://sqs.REGION.amazonaws.com/ACCOUNT/NAME")
            }
            Self::Email => {
                let sender = address.strip_prefix("mailto:").unwrap_or(address);
                let sender = check::email(sender).map_err(|why| anyhow!("{why}"))?;
                Ok(format!("mailto:{}", sender.to_lowercase()))
            }
            Self::Eventbridge | Self::Sqs => Ok(address.to_owned()),
        }
    }
}

pub async fn run(conn: &mut PgConnection, command: TargetCommand) -> Result<Vec<Value>> {
    match command {
        TargetCommand::Allow(target) => allow(conn, &target).await,
        TargetCommand::Revoke(target) => revoke(conn, &target).await,
        TargetCommand::List { tenant } => list(conn, tenant).await,
    }
}

async fn allow(conn: &mut PgConnection, target: &Target) -> Result<Vec<Value>> {
    let Target { tenant, kind, address } = target;
    let address = kind.stored(address)?;
    sqlx::query(
        "insert into aws_target (tenant_id, kind, address) values ($1, $2, $3) on conflict do nothing",
    )
    .bind(tenant)
    .bind(kind.name())
    .bind(&address)
    .execute(conn)
    .await?;
    Ok(vec![json!({ "tenantId": tenant, "kind": kind.name(), "address": address })])
}

async fn revoke(conn: &mut PgConnection, target: &Target) -> Result<Vec<Value>> {
    let Target { tenant, kind, address } = target;
    let address = kind.stored(address)?;
    let mut tx = conn.begin().await?;
    let gone = sqlx::query("delete from aws_target where tenant_id = $1 and kind = $2 and address = $3")
        .bind(tenant)
        .bind(kind.name())
        .bind(&address)
        .execute(&mut *tx)
        .await?;
    if gone.rows_affected() == 0 {
        bail!("the tenant is not allowed this address");
    }
    let disabled: Vec<Uuid> = sqlx::query_scalar(
        "update destination set state = 'disabled' where tenant_id = $1 and kind = $2
           and case kind when 'email' then lower(url) else url end = $3 returning id",
    )
    .bind(tenant)
    .bind(kind.name())
    .bind(&address)
    .fetch_all(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(vec![json!({ "tenantId": tenant, "kind": kind.name(), "address": address, "disabled": disabled })])
}

async fn list(conn: &mut PgConnection, tenant: Option<Uuid>) -> Result<Vec<Value>> {
    let rows = sqlx::query(
        "select tenant_id, kind, address from aws_target where tenant_id = coalesce($1, tenant_id) order by 1, 2, 3",
    )
    .bind(tenant)
    .fetch_all(conn)
    .await?;
    let document = |r: &sqlx::postgres::PgRow| json!({ "tenantId": r.get::<Uuid, _>(0), "kind": r.get::<String, _>(1), "address": r.get::<String, _>(2) });
    Ok(rows.iter().map(document).collect())
}
