//! `holdfast admin threepl`: accounts of 3PLs, the secrets with which they sign, and where they report their stock.

use anyhow::{Result, anyhow, bail};
use clap::Subcommand;
use sealed::{inventory_place, threepl_place};
use serde_json::{Value, json};
use sqlx::{PgConnection, Row};
use uuid::Uuid;

use super::check;
use super::secret::{Overlap, given};
use crate::master_data;
use crate::secrets::{self, Keys};

/// `admin threepl …`
#[derive(Subcommand)]
pub enum Command {
    /// Create an account and print the secret with which the 3PL must sign its webhooks.
    Create {
        /// The tenant's id.
        #[arg(long, value_name = "TENANT_ID")]
        tenant: Uuid,
        /// The account's id, which the 3PL calls in the path: /webhooks/3pl/ACCOUNT.
        #[arg(long)]
        account: String,
        /// A secret that the 3PL has chosen: whsec_ and 24 to 64 bytes in base64 [default: a new one].
        #[arg(long)]
        secret: Option<String>,
    },
    /// Give an account a new secret and print it; the one before counts beside it for a while.
    Rotate {
        /// The account's id.
        #[arg(long)]
        account: String,
        /// A secret that the 3PL has chosen [default: a new one].
        #[arg(long)]
        secret: Option<String>,
        #[command(flatten)]
        overlap: Overlap,
    },
    /// Say where an account reports its stock, for the nightly reconciliation.
    Inventory {
        /// The account's id.
        #[arg(long)]
        account: String,
        /// The address of the report without `/inventory` at its end; only https.
        #[arg(long, value_name = "URL", value_parser = check::inventory_url)]
        url: String,
        /// The bearer token that the 3PL has given out.
        #[arg(long)]
        token: String,
    },
    /// Stop asking an account for its stock.
    NoInventory {
        /// The account's id.
        #[arg(long)]
        account: String,
    },
    /// List all accounts, without their secrets.
    List,
}

/// Runs the command and returns what it changed or found.
pub async fn run(conn: &mut PgConnection, keys: &Keys, command: Command) -> Result<Vec<Value>> {
    match command {
        Command::Create { tenant, account, secret } => {
            let secret = threepl_secret(secret)?;
            let stored = keys.at_rest(&threepl_place(&account), &secret)?;
            master_data::add_threepl_account(conn, tenant, &account, &stored).await?;
            Ok(vec![json!({ "account": account, "tenantId": tenant, "secret": secret })])
        }
        Command::Rotate { account, secret, overlap } => {
            let secret = threepl_secret(secret)?;
            let row = sqlx::query(
                "update threepl_account set previous_secret = secret,
                   previous_retires_at = now() + make_interval(hours => $3::int), secret = $2
                 where id = $1 returning previous_retires_at::text",
            )
            .bind(&account)
            .bind(keys.at_rest(&threepl_place(&account), &secret)?)
            .bind(overlap.overlap_hours)
            .fetch_optional(conn)
            .await?;
            let Some(row) = row else { bail!("there is no 3PL account {account}") };
            Ok(vec![json!({ "account": account, "secret": secret,
                "previousRetiresAt": row.get::<String, _>(0) })])
        }
        Command::Inventory { account, url, token } => {
            let tenant: Option<Uuid> =
                sqlx::query_scalar("select tenant_id from threepl_account where id = $1")
                    .bind(&account)
                    .fetch_optional(&mut *conn)
                    .await?;
            let Some(tenant) = tenant else { bail!("there is no 3PL account {account}") };
            // Not when the arguments are read: then the error would show the token.
            check::token(&token).map_err(|why| anyhow!("--token: {why}"))?;
            let stored = keys.at_rest(&inventory_place(&account), &token)?;
            master_data::set_threepl_inventory(conn, tenant, &account, &url, &stored).await?;
            Ok(vec![json!({ "account": account, "tenantId": tenant, "inventoryUrl": url })])
        }
        Command::NoInventory { account } => {
            let gone = sqlx::query("delete from threepl_inventory where account_id = $1")
                .bind(&account)
                .execute(conn)
                .await?;
            if gone.rows_affected() == 0 {
                bail!("the account {account} is not asked for its stock");
            }
            Ok(vec![json!({ "account": account, "inventoryUrl": null })])
        }
        Command::List => {
            let rows = sqlx::query(
                "select a.id, a.tenant_id, i.base_url from threepl_account a
                 left join threepl_inventory i on i.account_id = a.id order by a.id",
            )
            .fetch_all(conn)
            .await?;
            Ok(rows
                .iter()
                .map(|r| {
                    json!({ "account": r.get::<String, _>(0), "tenantId": r.get::<Uuid, _>(1),
                        "inventoryUrl": r.get::<Option<String>, _>(2) })
                })
                .collect())
        }
    }
}

/// The secret that was given, or a new one.
fn threepl_secret(given_secret: Option<String>) -> Result<String> {
    let secret = given_secret.map_or_else(|| Ok(secrets::webhook_secret()), |secret| given(&secret))?;
    // Not when the arguments are read: then the error would show the secret.
    check::secret(&secret).map_err(|why| anyhow!("--secret: {why}"))?;
    Ok(secret)
}
