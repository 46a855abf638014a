//! `holdfast admin …`: what an operator sets up, as the database's owner. Answers are JSON on standard output, one object a
//! line.

mod import;
mod plain;

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use crate::master_data::{self, User};
use crate::secrets;

/// Scopes that a key may hold.
const SCOPES: [&str; 3] = ["orders:write", "orders:read", "outbox:admin"];

/// What is administered.
#[derive(Subcommand)]
pub enum Command {
    /// Tenants.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Users of the UI, and those whom API keys act as.
    #[command(subcommand)]
    User(UserCommand),
    /// API keys of partners.
    #[command(subcommand)]
    ApiKey(ApiKeyCommand),
    /// Shopify shops.
    #[command(subcommand)]
    Shop(ShopCommand),
    /// 3PL accounts.
    #[command(subcommand)]
    Threepl(ThreeplCommand),
    /// Styles, customers, SKUs and opening stock from CSV files.
    Import(import::Args),
}

/// `admin tenant …`
#[derive(Subcommand)]
pub enum TenantCommand {
    /// Add a tenant.
    Create {
        /// As its users see it.
        #[arg(long)]
        name: String,
    },
    /// List all tenants.
    List,
}

/// `admin user …`
#[derive(Subcommand)]
pub enum UserCommand {
    /// Add a user; a token's `sub` must be the id that this prints.
    Create {
        /// Tenant id.
        #[arg(long)]
        tenant: Uuid,
        /// As others see it.
        #[arg(long)]
        name: String,
        /// For mail.
        #[arg(long)]
        email: String,
        /// The identity provider's id of the user, where that is a UUID already.
        #[arg(long)]
        id: Option<Uuid>,
    },
    /// List a tenant's users.
    List {
        /// Tenant id.
        #[arg(long)]
        tenant: Uuid,
    },
}

/// `admin api-key …`
#[derive(Subcommand)]
pub enum ApiKeyCommand {
    /// Issue a key. It is shown this once: only its hash is stored.
    Issue {
        /// Tenant id.
        #[arg(long)]
        tenant: Uuid,
        /// The user whom the key acts as.
        #[arg(long)]
        user: Uuid,
        /// Of orders:write, orders:read, outbox:admin.
        #[arg(long, value_delimiter = ',', required = true, value_parser = SCOPES)]
        scopes: Vec<String>,
        /// What the key is for.
        #[arg(long, default_value = "")]
        label: String,
        /// Days until it ends by itself; never, if not given.
        #[arg(long, value_parser = clap::value_parser!(i32).range(1..=36_500))]
        expires_days: Option<i32>,
    },
    /// Revoke a key, felt within 60 s.
    Revoke {
        /// The key's id, as `list` shows it.
        #[arg(long)]
        id: Uuid,
    },
    /// List keys, newest first.
    List {
        /// Only those of this tenant.
        #[arg(long)]
        tenant: Option<Uuid>,
    },
}

/// `admin shop …`
#[derive(Subcommand)]
pub enum ShopCommand {
    /// Connect a shop to a tenant.
    Create {
        /// Tenant id.
        #[arg(long)]
        tenant: Uuid,
        /// `name.myshopify.com`.
        #[arg(long)]
        domain: String,
    },
    /// List all shops.
    List,
}

/// `admin threepl …`
#[derive(Subcommand)]
pub enum ThreeplCommand {
    /// Add an account; prints the secret that the 3PL signs with.
    Create {
        /// Tenant id.
        #[arg(long)]
        tenant: Uuid,
        /// The id in the webhook's path.
        #[arg(long)]
        account: String,
        /// The 3PL's own secret (`whsec_…`); a new one, if not given.
        #[arg(long)]
        secret: Option<String>,
    },
    /// List all accounts, without their secrets.
    List,
}

/// Does it and prints what it did.
///
/// # Errors
/// No database, or one that refuses.
pub async fn run(owner_url: &str, command: Command) -> Result<()> {
    let mut conn = PgConnection::connect(owner_url).await.context("cannot connect to the database")?;
    let printed = match command {
        Command::Tenant(command) => tenant(&mut conn, command).await,
        Command::User(command) => user(&mut conn, command).await,
        Command::ApiKey(command) => api_key(&mut conn, command).await,
        Command::Shop(command) => shop(&mut conn, command).await,
        Command::Threepl(command) => threepl(&mut conn, command).await,
        Command::Import(args) => import::run(&mut conn, args).await,
    };
    conn.close().await?;
    for line in printed.map_err(plain::told)? {
        println!("{line}");
    }
    Ok(())
}

async fn tenant(conn: &mut PgConnection, command: TenantCommand) -> Result<Vec<Value>> {
    match command {
        TenantCommand::Create { name } => {
            let id = Uuid::new_v4();
            master_data::add_tenant(conn, id, &name).await?;
            Ok(vec![json!({ "id": id, "name": name })])
        }
        TenantCommand::List => {
            let rows = sqlx::query("select id, name from tenant order by name, id").fetch_all(conn).await?;
            Ok(rows
                .iter()
                .map(|r| json!({ "id": r.get::<Uuid, _>(0), "name": r.get::<String, _>(1) }))
                .collect())
        }
    }
}

async fn user(conn: &mut PgConnection, command: UserCommand) -> Result<Vec<Value>> {
    match command {
        UserCommand::Create { tenant, name, email, id } => {
            let id = id.unwrap_or_else(Uuid::new_v4);
            master_data::add_user(conn, tenant, &User { id, display_name: &name, email: &email }).await?;
            Ok(vec![json!({ "id": id, "tenantId": tenant, "displayName": name, "email": email })])
        }
        UserCommand::List { tenant } => {
            let rows = sqlx::query(
                "select id, display_name, email from app_user where tenant_id = $1 order by display_name, id",
            )
            .bind(tenant)
            .fetch_all(conn)
            .await?;
            Ok(rows
                .iter()
                .map(|r| {
                    json!({ "id": r.get::<Uuid, _>(0), "displayName": r.get::<String, _>(1), "email": r.get::<String, _>(2) })
                })
                .collect())
        }
    }
}

async fn api_key(conn: &mut PgConnection, command: ApiKeyCommand) -> Result<Vec<Value>> {
    match command {
        ApiKeyCommand::Issue { tenant, user, scopes, label, expires_days } => {
            let key = secrets::api_key();
            let id =
                master_data::add_api_key(conn, tenant, user, &label, &key, &scopes, expires_days).await?;
            Ok(vec![json!({ "id": id, "tenantId": tenant, "userId": user, "scopes": scopes, "key": key })])
        }
        ApiKeyCommand::Revoke { id } => {
            let row = sqlx::query(
                "update api_key set revoked_at = coalesce(revoked_at, now()) where id = $1
                                   returning revoked_at::text",
            )
            .bind(id)
            .fetch_optional(conn)
            .await?;
            let Some(row) = row else { bail!("there is no API key with the id {id}") };
            Ok(vec![json!({ "id": id, "revokedAt": row.get::<String, _>(0) })])
        }
        ApiKeyCommand::List { tenant } => {
            let rows = sqlx::query(
                "select id, tenant_id, app_user_id, label, scopes, created_at::text, expires_at::text, revoked_at::text
                 from api_key where tenant_id = coalesce($1, tenant_id) order by created_at desc, id",
            )
            .bind(tenant)
            .fetch_all(conn)
            .await?;
            Ok(rows
                .iter()
                .map(|r| {
                    json!({
                        "id": r.get::<Uuid, _>(0), "tenantId": r.get::<Uuid, _>(1), "userId": r.get::<Uuid, _>(2),
                        "label": r.get::<String, _>(3), "scopes": r.get::<Vec<String>, _>(4),
                        "createdAt": r.get::<String, _>(5), "expiresAt": r.get::<Option<String>, _>(6),
                        "revokedAt": r.get::<Option<String>, _>(7),
                    })
                })
                .collect())
        }
    }
}

async fn shop(conn: &mut PgConnection, command: ShopCommand) -> Result<Vec<Value>> {
    match command {
        ShopCommand::Create { tenant, domain } => {
            master_data::add_shop(conn, tenant, &domain).await?;
            Ok(vec![json!({ "domain": domain.to_lowercase(), "tenantId": tenant })])
        }
        ShopCommand::List => {
            owned(conn, "select domain, tenant_id from shopify_shop order by domain", "domain").await
        }
    }
}

async fn threepl(conn: &mut PgConnection, command: ThreeplCommand) -> Result<Vec<Value>> {
    match command {
        ThreeplCommand::Create { tenant, account, secret } => {
            let secret = secret.unwrap_or_else(secrets::webhook_secret);
            if standardwebhooks::Webhook::new(&secret).is_err() {
                bail!("--secret is base64, with or without `whsec_` before it");
            }
            master_data::add_threepl_account(conn, tenant, &account, &secret).await?;
            Ok(vec![json!({ "account": account, "tenantId": tenant, "secret": secret })])
        }
        ThreeplCommand::List => {
            owned(conn, "select id, tenant_id from threepl_account order by id", "account").await
        }
    }
}

/// Rows of (name, tenant id).
async fn owned(conn: &mut PgConnection, sql: &'static str, name: &str) -> Result<Vec<Value>> {
    let rows = sqlx::query(sql).fetch_all(conn).await?;
    Ok(rows.iter().map(|r| json!({ name: r.get::<String, _>(0), "tenantId": r.get::<Uuid, _>(1) })).collect())
}
