//! `cargo xtask scenario`: a new tenant in the running stack, as JSON on standard output.

use std::io::Write;

use anyhow::{Context, Result};
use clap::value_parser;
use serde_json::json;
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use holdfast::master_data::{self, Orders, Style, User};
use holdfast::secrets::{self, Keys};
use sealed::{destination_place, inventory_place, threepl_place};
use xtask::dev_env::DevEnv;
use xtask::workspace::Workspace;

/// From this many order lines on, `analyze` is worth its time: plans made for an empty table would be slow.
const ANALYZE_FROM_LINES: usize = 10_000;
const UNIT_PRICE_MINOR: i64 = 1_000;
const INVOICE_TOTAL_MINOR: i64 = 5_000;
const CURRENCY: &str = "USD";

#[derive(clap::Args)]
pub struct Args {
    /// Number of SKUs.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(..=100_000))]
    skus: u32,
    /// Units on hand of each SKU.
    #[arg(long, value_name = "Q", default_value_t = 6, value_parser = value_parser!(i64).range(0..=1_000_000_000_000))]
    on_hand: i64,
    /// Number of open orders.
    #[arg(long, value_name = "M", default_value_t = 2, value_parser = value_parser!(u32).range(..=100_000))]
    orders: u32,
    /// Units of every SKU that each order wants.
    #[arg(long, value_name = "K", default_value_t = 6, value_parser = value_parser!(i64).range(1..=1_000_000))]
    order_qty: i64,
    /// Number of invoices of 5,000 cents that await payment; they count towards the customer's exposure.
    #[arg(long, value_name = "I", default_value_t = 0, value_parser = value_parser!(u32).range(..=100_000))]
    invoices: u32,
    /// The customer's credit limit in cents [default: no limit].
    #[arg(long, value_name = "L", value_parser = value_parser!(i64).range(0..))]
    credit_limit_minor: Option<i64>,
}

/// All ids, made beforehand so that each table is filled by one statement.
struct Ids {
    tenant: Uuid,
    users: [(Uuid, &'static str); 2],
    customer: Uuid,
    style: Uuid,
    skus: Vec<Uuid>,
    codes: Vec<String>,
    orders: Vec<Uuid>,
    invoices: Vec<Uuid>,
    destination: Uuid,
    destination_secret: String,
    shop_domain: String,
    threepl_account: String,
    threepl_secret: String,
}

impl Ids {
    fn new(args: &Args) -> Self {
        let many = |count: u32| (0..count).map(|_| Uuid::new_v4()).collect();
        let tenant = Uuid::new_v4();
        // Shop domains and 3PL accounts are unique over all tenants.
        let tag = tenant.simple();
        Self {
            tenant,
            users: [(Uuid::new_v4(), "Maya Ortiz"), (Uuid::new_v4(), "Kenji Sato")],
            customer: Uuid::new_v4(),
            style: Uuid::new_v4(),
            skus: many(args.skus),
            codes: (1..=args.skus).map(|n| format!("SKU-{n:05}")).collect(),
            orders: many(args.orders),
            invoices: many(args.invoices),
            destination: Uuid::new_v4(),
            destination_secret: secrets::webhook_secret(),
            shop_domain: format!("scenario-{tag}.myshopify.com"),
            threepl_account: format!("scenario-{tag}"),
            threepl_secret: secrets::webhook_secret(),
        }
    }
}

/// Creates the tenant in one transaction and prints it.
pub async fn run(args: Args) -> Result<()> {
    let env = DevEnv::read(&Workspace::open()?)?;
    let issuer = env.token_issuer()?;
    let ids = Ids::new(&args);
    let mut conn = PgConnection::connect(env.get("DATABASE_URL")?)
        .await
        .context("the stack's database does not answer: is `cargo xtask dev` still running?")?;
    let mut tx = conn.begin().await?;
    let keys = Keys::read(Some(env.get("SECRETS_KEYS")?))?;
    create(&mut tx, &args, &ids, env.get("PARTNER_URL")?, &keys).await?;
    tx.commit().await?;
    if ids.skus.len() * ids.orders.len() >= ANALYZE_FROM_LINES {
        sqlx::query("analyze sku, sku_position, stock_ledger, wholesale_order, order_line")
            .execute(&mut conn)
            .await?;
    }
    conn.close().await?;

    let mut users = Vec::new();
    for (id, name) in ids.users {
        users.push(json!({ "id": id, "displayName": name, "token": issuer.token(ids.tenant, id)? }));
    }
    let skus = ids.skus.iter().zip(&ids.codes).map(|(id, code)| json!({ "id": id, "code": code }));
    let printed = json!({
        "tenantId": ids.tenant,
        "users": users,
        "customerId": ids.customer,
        "skus": skus.collect::<Vec<_>>(),
        "orders": ids.orders.iter().map(|id| json!({ "id": id, "version": 1 })).collect::<Vec<_>>(),
        "invoices": ids.invoices.iter()
            .map(|id| json!({ "id": id, "totalMinor": INVOICE_TOTAL_MINOR, "currency": CURRENCY }))
            .collect::<Vec<_>>(),
        "destinationId": ids.destination,
        "destinationSecret": ids.destination_secret,
        "shopDomain": ids.shop_domain,
        "threeplAccount": ids.threepl_account,
        "threeplSecret": ids.threepl_secret,
    });
    match writeln!(std::io::stdout(), "{printed}") {
        // The reader has closed the pipe (`| head`).
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}

async fn create(
    conn: &mut PgConnection,
    args: &Args,
    ids: &Ids,
    partner_url: &str,
    keys: &Keys,
) -> Result<()> {
    let tenant = ids.tenant;
    master_data::add_tenant(conn, tenant, "Scenario").await?;
    for (id, display_name) in ids.users {
        let email = format!("{id}@scenario.example");
        master_data::add_user(conn, tenant, &User { id, display_name, email: &email }).await?;
    }
    master_data::add_customer(
        conn,
        tenant,
        ids.customer,
        "Scenario customer",
        CURRENCY,
        args.credit_limit_minor,
    )
    .await?;
    let style = Style {
        id: ids.style,
        name: "Scenario style",
        currency: CURRENCY,
        wholesale_minor: UNIT_PRICE_MINOR,
        msrp_minor: 2 * UNIT_PRICE_MINOR,
    };
    master_data::add_style(conn, tenant, &style).await?;
    master_data::add_skus(conn, tenant, ids.style, &ids.skus, &ids.codes).await?;
    let on_hand = vec![args.on_hand; ids.skus.len()];
    master_data::receive_opening_stock(conn, tenant, &ids.skus, &on_hand, "scenario").await?;
    let orders = Orders {
        ids: &ids.orders,
        customer: ids.customer,
        user: ids.users[0].0,
        currency: CURRENCY,
        skus: &ids.skus,
        qtys: &vec![args.order_qty; ids.skus.len()],
        unit_price_minor: UNIT_PRICE_MINOR,
    };
    // The foreign keys hold by construction; to check them for a million lines would take half a minute.
    sqlx::query("set local session_replication_role = replica").execute(&mut *conn).await?;
    master_data::add_orders(conn, tenant, &orders).await?;
    sqlx::query("set local session_replication_role = origin").execute(&mut *conn).await?;
    sqlx::query(
        "insert into invoice (tenant_id, id, customer_id, total_minor, currency)
         select $1, id, $2, $3, $4 from unnest($5::uuid[]) as i(id)",
    )
    .bind(tenant)
    .bind(ids.customer)
    .bind(INVOICE_TOTAL_MINOR)
    .bind(CURRENCY)
    .bind(&ids.invoices)
    .execute(&mut *conn)
    .await?;
    let url = crate::partner::webhook_url(partner_url, ids.destination);
    let secret = keys.at_rest(&destination_place(ids.destination), &ids.destination_secret)?;
    master_data::add_webhook_destination(conn, tenant, ids.destination, &url, &secret).await?;
    master_data::add_shop(conn, tenant, &ids.shop_domain).await?;
    let secret = keys.at_rest(&threepl_place(&ids.threepl_account), &ids.threepl_secret)?;
    master_data::add_threepl_account(conn, tenant, &ids.threepl_account, &secret).await?;
    let url = crate::partner::inventory::url(partner_url, &ids.threepl_account);
    let token = keys.at_rest(&inventory_place(&ids.threepl_account), &secrets::random_hex())?;
    master_data::set_threepl_inventory(conn, tenant, &ids.threepl_account, &url, &token).await
}
