//! `holdfast admin shop`: connected shops, the secrets of those that have one of their own, and their test orders.

use anyhow::{Result, anyhow, bail};
use clap::{Args, Subcommand};
use sealed::shop_place;
use serde_json::{Value, json};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::secret::{Overlap, given};
use super::{check, waiting};
use crate::master_data;
use crate::secrets::Keys;

/// `admin shop …`
#[derive(Subcommand)]
pub enum ShopCommand {
    /// Connect a shop to a tenant: webhooks from this domain are then the tenant's. What it sent before is run again.
    Create {
        /// The tenant's id.
        #[arg(long, value_name = "TENANT_ID")]
        tenant: Uuid,
        /// The shop's domain at Shopify: name.myshopify.com.
        #[arg(long, value_parser = check::shop_domain)]
        domain: String,
    },
    /// Say whether orders that the shop marks as tests take stock.
    TestOrders {
        /// The shop's domain.
        #[arg(long, value_parser = check::shop_domain)]
        domain: String,
        /// take (as after create) or ignore.
        #[arg(long, value_enum)]
        set: TestOrders,
    },
    /// List all shops, without their secrets.
    List,
    /// Give a shop a secret of its own: only webhooks that are signed with it count from then on.
    SetSecret {
        #[command(flatten)]
        shop: ShopSecret,
    },
    /// Replace a shop's own secret; the one before counts beside it for a while.
    RotateSecret {
        #[command(flatten)]
        shop: ShopSecret,
        #[command(flatten)]
        overlap: Overlap,
    },
    /// Take a shop's own secret away: its webhooks are signed with the app's secret again.
    RemoveSecret {
        /// The shop's domain at Shopify.
        #[arg(long, value_parser = check::shop_domain)]
        domain: String,
    },
}

/// What orders do that a shop marks as tests.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum TestOrders {
    /// They take stock.
    Take,
    /// They take nothing.
    Ignore,
}

/// A shop and its secret.
#[derive(Args)]
pub struct ShopSecret {
    /// The shop's domain at Shopify.
    #[arg(long, value_parser = check::shop_domain)]
    domain: String,
    /// The client secret of the shop's own app, as Shopify shows it; `-` reads it from standard input.
    #[arg(long)]
    secret: String,
}

/// Runs the command and returns what it changed or found.
pub async fn run(conn: &mut PgConnection, keys: &Keys, command: ShopCommand) -> Result<Vec<Value>> {
    match command {
        ShopCommand::Create { tenant, domain } => {
            master_data::add_shop(conn, tenant, &domain).await?;
            let retried = waiting::of_sender(conn, tenant, &format!("shopify:{domain}")).await?;
            Ok(vec![json!({ "domain": domain, "tenantId": tenant, "exceptions": retried.to_json() })])
        }
        ShopCommand::TestOrders { domain, set } => {
            let ignored = matches!(set, TestOrders::Ignore);
            let known = sqlx::query("update shopify_shop set ignores_test_orders = $2 where domain = $1")
                .bind(&domain)
                .bind(ignored)
                .execute(conn)
                .await?;
            if known.rows_affected() == 0 {
                bail!("there is no shop {domain}");
            }
            Ok(vec![json!({ "domain": domain, "ignoresTestOrders": ignored })])
        }
        ShopCommand::List => {
            let rows = sqlx::query(
                "select domain, tenant_id, secret is not null, uninstalled_at::text from shopify_shop order by domain",
            )
            .fetch_all(conn)
            .await?;
            Ok(rows
                .iter()
                .map(|r| {
                    json!({ "domain": r.get::<String, _>(0), "tenantId": r.get::<Uuid, _>(1),
                        "hasOwnSecret": r.get::<bool, _>(2), "uninstalledAt": r.get::<Option<String>, _>(3) })
                })
                .collect())
        }
        ShopCommand::SetSecret { shop } => shop_secret(conn, keys, &shop, None).await,
        ShopCommand::RotateSecret { shop, overlap } => {
            shop_secret(conn, keys, &shop, Some(overlap.overlap_hours)).await
        }
        ShopCommand::RemoveSecret { domain } => {
            let removed = sqlx::query(
                "update shopify_shop set secret = null, previous_secret = null, previous_retires_at = null
                 where domain = $1 and secret is not null",
            )
            .bind(&domain)
            .execute(conn)
            .await?;
            if removed.rows_affected() == 0 {
                bail!("there is no shop {domain} that has a secret of its own");
            }
            Ok(vec![json!({ "domain": domain, "hasOwnSecret": false })])
        }
    }
}

/// `overlap_hours`: how long the one before counts, which there must be; `None`: whatever there was ends now.
async fn shop_secret(
    conn: &mut PgConnection,
    keys: &Keys,
    shop: &ShopSecret,
    overlap_hours: Option<i64>,
) -> Result<Vec<Value>> {
    let secret = given(&shop.secret)?;
    check::shop_secret(&secret).map_err(|why| anyhow!("--secret: {why}"))?;
    let row = sqlx::query(
        "update shopify_shop set secret = $2, previous_secret = case when $3 > 0 then secret end,
           previous_retires_at = case when $3 > 0 then now() + make_interval(hours => $3::int) end
         where domain = $1 and ($3 is null or secret is not null) returning previous_retires_at::text",
    )
    .bind(&shop.domain)
    .bind(keys.at_rest(&shop_place(&shop.domain), &secret)?)
    .bind(overlap_hours)
    .fetch_optional(conn)
    .await?;
    let Some(row) = row else {
        bail!("there is no shop {}, or it has no secret of its own yet: see `admin shop list`", shop.domain);
    };
    Ok(vec![json!({ "domain": shop.domain, "hasOwnSecret": true,
        "previousRetiresAt": row.get::<Option<String>, _>(0) })])
}
