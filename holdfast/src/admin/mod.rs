//! `holdfast admin …`: what an operator sets up, as the database's owner. Results are JSON on standard output, one object
//! per line.

mod check;
mod csv_file;
mod customer;
mod exception;
mod explain;
mod import;
mod mail;
mod reseal;
mod secret;
mod shop;
mod target;
mod threepl;
mod waiting;

use anyhow::{Result, bail};
use clap::Subcommand;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use crate::master_data::{self, User};
use crate::secrets::Keys;
use crate::{database, secrets};
use customer::CustomerCommand;
use shop::ShopCommand;
use target::TargetCommand;

/// Those of `shared::http::auth::Scope`.
const SCOPES: [&str; 6] =
    ["orders:write", "orders:read", "credit:write", "outbox:admin", "events:read", "platform:admin"];

/// What is administered.
#[derive(Subcommand)]
pub enum Command {
    /// Create a tenant, or list all of them.
    #[command(subcommand)]
    Tenant(TenantCommand),
    /// Create or list users: people, and the users that API keys act as.
    #[command(subcommand)]
    User(UserCommand),
    /// Issue, revoke or list API keys of partners.
    #[command(subcommand)]
    ApiKey(ApiKeyCommand),
    /// List a tenant's customers, or set their credit limits and holds.
    #[command(subcommand)]
    Customer(CustomerCommand),
    /// Connect a Shopify shop to a tenant, list all shops, or manage the secrets of shops that have one of their own.
    #[command(subcommand)]
    Shop(ShopCommand),
    /// Bind a tenant to a connected Stripe account, undo it, or list all bindings.
    ///
    /// A bound tenant takes events of its accounts only, an unbound one only events without an account. Events of
    /// destination charges carry no account: do not bind a tenant that is paid by those.
    #[command(subcommand)]
    Stripe(StripeCommand),
    /// Create a 3PL account, give it a new secret, or list all of them.
    #[command(subcommand)]
    Threepl(threepl::Command),
    /// Allow a tenant a bus of EventBridge, a queue of SQS or a sender of mail, take it back, or list what is allowed.
    #[command(subcommand)]
    Target(TargetCommand),
    /// List webhooks that could not be processed, of all tenants and of none, or end them.
    #[command(subcommand, visible_alias = "exceptions")]
    Exception(exception::Command),
    /// List addresses to which no mail is sent, or let mails go there again.
    #[command(subcommand)]
    Mail(mail::Command),
    /// Seal every stored secret with the first key of SECRETS_KEYS. Safe to repeat; afterwards the other keys can go.
    Reseal,
    /// Import styles, customers, SKUs or opening stock from a CSV file.
    ///
    /// The file is imported completely or, if a line is wrong, not at all. Rows that exist already are not changed, so an
    /// import can be repeated.
    Import(import::Args),
}

/// `admin tenant …`
#[derive(Subcommand)]
pub enum TenantCommand {
    /// Create a tenant and print its id.
    Create {
        /// The name that its users see.
        #[arg(long, value_parser = check::name)]
        name: String,
    },
    /// List all tenants.
    List,
}

/// `admin user …`
#[derive(Subcommand)]
pub enum UserCommand {
    /// Create a user and print its id, which must be the claim `sub` of the user's tokens.
    Create {
        /// The tenant's id.
        #[arg(long, value_name = "TENANT_ID")]
        tenant: Uuid,
        /// The name that other users see.
        #[arg(long, value_parser = check::name)]
        name: String,
        /// The address to which order confirmations are sent.
        #[arg(long, value_parser = check::email)]
        email: String,
        /// The user's id at the identity provider, if that is a UUID [default: a new id].
        #[arg(long, value_name = "USER_ID")]
        id: Option<Uuid>,
    },
    /// List a tenant's users.
    List {
        /// The tenant's id.
        #[arg(long, value_name = "TENANT_ID")]
        tenant: Uuid,
    },
}

/// `admin api-key …`
#[derive(Subcommand)]
pub enum ApiKeyCommand {
    /// Issue a key and print it. It cannot be shown again: only its hash is stored.
    Issue {
        /// The tenant's id.
        #[arg(long, value_name = "TENANT_ID")]
        tenant: Uuid,
        /// The id of the user that the key acts as.
        #[arg(long, value_name = "USER_ID")]
        user: Uuid,
        /// What the key allows: one scope, or several separated by commas.
        #[arg(long, value_delimiter = ',', required = true, value_parser = SCOPES)]
        scopes: Vec<String>,
        /// The id of the destination whose events the scope events:read lets the key read.
        #[arg(long, value_name = "DESTINATION_ID")]
        destination: Option<Uuid>,
        /// What the key is for; `list` shows it.
        #[arg(long, default_value = "", hide_default_value = true)]
        label: String,
        /// Days until the key expires [default: it does not].
        #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(i32).range(1..=36_500))]
        expires_days: Option<i32>,
    },
    /// Revoke a key. The functions stop accepting it within 60 seconds.
    Revoke {
        /// The key's id (not the key itself), as `list` shows it.
        #[arg(long, value_name = "KEY_ID")]
        id: Uuid,
    },
    /// List the keys' ids and properties, newest first.
    List {
        /// List only this tenant's keys.
        #[arg(long, value_name = "TENANT_ID")]
        tenant: Option<Uuid>,
    },
}

/// `holdfast admin stripe`.
#[derive(Subcommand)]
pub enum StripeCommand {
    /// Bind a tenant to a connected account.
    Bind {
        /// The tenant's id.
        #[arg(long, value_name = "ID")]
        tenant: Uuid,
        /// The connected account: acct_….
        #[arg(long, value_name = "ACCOUNT", value_parser = check::stripe_account)]
        account: String,
    },
    /// Undo a binding.
    Unbind {
        /// The connected account: acct_….
        #[arg(long, value_name = "ACCOUNT")]
        account: String,
    },
    /// List all bindings.
    List,
}

/// Runs the command as the database's owner and prints its results.
/// `keys`: of the secrets that it stores.
pub async fn run(owner_url: &str, keys: &Keys, command: Command) -> Result<()> {
    let mut conn = database::connect(owner_url).await?;
    let printed = match command {
        Command::Tenant(command) => tenant(&mut conn, command).await,
        Command::User(command) => user(&mut conn, command).await,
        Command::ApiKey(command) => api_key(&mut conn, command).await,
        Command::Customer(command) => customer::run(&mut conn, command).await,
        Command::Shop(command) => shop::run(&mut conn, keys, command).await,
        Command::Stripe(command) => stripe(&mut conn, command).await,
        Command::Threepl(command) => threepl::run(&mut conn, keys, command).await,
        Command::Target(command) => target::run(&mut conn, command).await,
        Command::Exception(command) => exception::run(&mut conn, command).await,
        Command::Mail(command) => mail::run(&mut conn, command).await,
        Command::Reseal => reseal::run(&mut conn, keys).await,
        Command::Import(args) => import::run(&mut conn, args).await,
    };
    conn.close().await?;
    for line in printed.map_err(explain::explain)? {
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
        ApiKeyCommand::Issue { tenant, user, scopes, destination, label, expires_days } => {
            if scopes.iter().any(|scope| scope == "events:read") != destination.is_some() {
                bail!("the scope events:read needs --destination, and nothing else does");
            }
            let key = secrets::api_key();
            let grant = master_data::Grant { scopes: &scopes, destination };
            let id = master_data::add_api_key(conn, tenant, user, &label, &key, grant, expires_days).await?;
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

async fn stripe(conn: &mut PgConnection, command: StripeCommand) -> Result<Vec<Value>> {
    match command {
        StripeCommand::Bind { tenant, account } => {
            master_data::add_stripe_account(conn, tenant, &account).await?;
            let retried = waiting::of_sender(conn, tenant, "stripe").await?;
            Ok(vec![json!({ "account": account, "tenantId": tenant, "exceptions": retried.to_json() })])
        }
        StripeCommand::Unbind { account } => {
            let gone =
                sqlx::query("delete from stripe_account where id = $1").bind(&account).execute(conn).await?;
            if gone.rows_affected() == 0 {
                bail!("no tenant is bound to the account {account}");
            }
            Ok(vec![json!({ "account": account, "tenantId": null })])
        }
        StripeCommand::List => {
            owned(conn, "select id, tenant_id from stripe_account order by id", "account").await
        }
    }
}

/// Lists rows of (identifier, tenant id).
async fn owned(conn: &mut PgConnection, sql: &'static str, name: &str) -> Result<Vec<Value>> {
    let rows = sqlx::query(sql).fetch_all(conn).await?;
    Ok(rows.iter().map(|r| json!({ name: r.get::<String, _>(0), "tenantId": r.get::<Uuid, _>(1) })).collect())
}
