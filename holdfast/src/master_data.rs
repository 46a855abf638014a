//! What an administrator sets up and functions mostly read: tenants, users, customers, styles, SKUs, accounts; and opening
//! stock, which is entered through the ledger. All of it runs as the database's owner in the caller's transaction, with one
//! statement for many rows.

use anyhow::Result;
use sqlx::PgConnection;
use uuid::Uuid;

use crate::secrets;

/// A row of `app_user`.
pub struct User<'a> {
    /// The `sub` of the user's tokens.
    pub id: Uuid,
    /// Shown to other users.
    pub display_name: &'a str,
    /// Receives order confirmations.
    pub email: &'a str,
}

/// A row of `style`.
pub struct Style<'a> {
    /// A new id.
    pub id: Uuid,
    /// As on a line sheet.
    pub name: &'a str,
    /// ISO 4217.
    pub currency: &'a str,
    /// Wholesale price, minor units.
    pub wholesale_minor: i64,
    /// Recommended retail price, minor units.
    pub msrp_minor: i64,
}

/// Open orders of one customer, all with the same lines.
pub struct Orders<'a> {
    /// New ids, one for each order.
    pub ids: &'a [Uuid],
    /// Orders them.
    pub customer: Uuid,
    /// Creates them.
    pub user: Uuid,
    /// ISO 4217, the customer's.
    pub currency: &'a str,
    /// One line for each.
    pub skus: &'a [Uuid],
    /// Units of each of `skus`.
    pub qtys: &'a [i64],
    /// Price of a unit, minor units.
    pub unit_price_minor: i64,
}

/// Inserts a tenant without users or data.
pub async fn add_tenant(conn: &mut PgConnection, id: Uuid, name: &str) -> Result<()> {
    sqlx::query("insert into tenant (id, name) values ($1, $2)").bind(id).bind(name).execute(conn).await?;
    Ok(())
}

/// Inserts a user into an existing tenant.
pub async fn add_user(conn: &mut PgConnection, tenant: Uuid, user: &User<'_>) -> Result<()> {
    sqlx::query("insert into app_user (tenant_id, id, display_name, email) values ($1, $2, $3, $4)")
        .bind(tenant)
        .bind(user.id)
        .bind(user.display_name)
        .bind(user.email)
        .execute(conn)
        .await?;
    Ok(())
}

/// Inserts a customer; a `credit_limit_minor` of `None` is no limit.
pub async fn add_customer(
    conn: &mut PgConnection,
    tenant: Uuid,
    id: Uuid,
    name: &str,
    currency: &str,
    credit_limit_minor: Option<i64>,
) -> Result<()> {
    sqlx::query("insert into customer (tenant_id, id, name, currency, credit_limit_minor) values ($1, $2, $3, $4, $5)")
        .bind(tenant)
        .bind(id)
        .bind(name)
        .bind(currency)
        .bind(credit_limit_minor)
        .execute(conn)
        .await?;
    Ok(())
}

/// Inserts a style without SKUs.
pub async fn add_style(conn: &mut PgConnection, tenant: Uuid, style: &Style<'_>) -> Result<()> {
    sqlx::query(
        "insert into style (tenant_id, id, name, currency, wholesale_minor, msrp_minor) values ($1, $2, $3, $4, $5, $6)",
    )
    .bind(tenant)
    .bind(style.id)
    .bind(style.name)
    .bind(style.currency)
    .bind(style.wholesale_minor)
    .bind(style.msrp_minor)
    .execute(conn)
    .await?;
    Ok(())
}

/// Inserts SKUs of one style; a trigger gives each an empty position.
pub async fn add_skus(
    conn: &mut PgConnection,
    tenant: Uuid,
    style: Uuid,
    ids: &[Uuid],
    codes: &[String],
) -> Result<()> {
    sqlx::query(
        "insert into sku (tenant_id, id, code, style_id)
         select $1, s.id, s.code, $2 from unnest($3::uuid[], $4::text[]) as s(id, code)",
    )
    .bind(tenant)
    .bind(style)
    .bind(ids)
    .bind(codes)
    .execute(conn)
    .await?;
    Ok(())
}

/// Adds `units` (one number for each of the distinct `skus`) to the units on hand, with a ledger entry for each number
/// other than 0. Returns the number of entries.
pub async fn receive_opening_stock(
    conn: &mut PgConnection,
    tenant: Uuid,
    skus: &[Uuid],
    units: &[i64],
    actor: &str,
) -> Result<u64> {
    // Locked in the order of SKU ids, as by all transactions that change positions, so that there is no deadlock.
    sqlx::query(
        "select from sku_position where tenant_id = $1 and sku_id = any ($2) order by sku_id for no key update",
    )
    .bind(tenant)
    .bind(skus)
    .execute(&mut *conn)
    .await?;
    let moved = sqlx::query(
        "with moved as (
           update sku_position p set on_hand = p.on_hand + r.units
           from unnest($2::uuid[], $3::bigint[]) as r(sku_id, units)
           where p.tenant_id = $1 and p.sku_id = r.sku_id and r.units <> 0
           returning p.sku_id, r.units)
         insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor)
         select $1, sku_id, units, 'opening', $4 from moved",
    )
    .bind(tenant)
    .bind(skus)
    .bind(units)
    .bind(actor)
    .execute(conn)
    .await?;
    Ok(moved.rows_affected())
}

/// Emits `sku.ats_changed` for SKUs whose stock this transaction has changed.
pub async fn emit_ats_changed(conn: &mut PgConnection, tenant: Uuid, skus: &[Uuid]) -> Result<()> {
    sqlx::query(
        r#"with changed as (
           update sku_position set event_sequence = event_sequence + 1
           where tenant_id = $1 and sku_id = any ($2)
           returning sku_id, event_sequence, on_hand + on_order - allocated as ats)
         select holdfast.emit($1, array_agg(row('sku.ats_changed', 'sku', sku_id, event_sequence, null,
           format('{"atsAfter":%s}', ats))::holdfast.event order by sku_id)) from changed"#,
    )
    .bind(tenant)
    .bind(skus)
    .execute(conn)
    .await?;
    Ok(())
}

/// Inserts open orders with the tenant's next order numbers.
pub async fn add_orders(conn: &mut PgConnection, tenant: Uuid, orders: &Orders<'_>) -> Result<()> {
    let count = i64::try_from(orders.ids.len())?;
    let last: i64 = sqlx::query_scalar(
        "update tenant set order_number = order_number + $2 where id = $1 returning order_number",
    )
    .bind(tenant)
    .bind(count)
    .fetch_one(&mut *conn)
    .await?;
    sqlx::query(
        "insert into wholesale_order (tenant_id, id, number, customer_id, currency, created_by, updated_by)
         select $1, o.id, ($2 + o.ord)::text, $3, $4, $5, $5
         from unnest($6::uuid[]) with ordinality as o(id, ord)",
    )
    .bind(tenant)
    .bind(last - count)
    .bind(orders.customer)
    .bind(orders.currency)
    .bind(orders.user)
    .bind(orders.ids)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "insert into order_line (tenant_id, order_id, sku_id, line_no, qty, unit_price_minor)
         select $1, o.id, s.id, s.ord, s.qty, $5
         from unnest($2::uuid[]) as o(id)
         cross join unnest($3::uuid[], $4::bigint[]) with ordinality as s(id, qty, ord)",
    )
    .bind(tenant)
    .bind(orders.ids)
    .bind(orders.skus)
    .bind(orders.qtys)
    .bind(orders.unit_price_minor)
    .execute(conn)
    .await?;
    Ok(())
}

/// Inserts a webhook destination that subscribes to all events and signs with `secret` (`whsec_…`), given as it is stored
/// (`Keys::at_rest`).
pub async fn add_webhook_destination(
    conn: &mut PgConnection,
    tenant: Uuid,
    id: Uuid,
    url: &str,
    secret: &str,
) -> Result<()> {
    sqlx::query(
        "insert into destination (tenant_id, id, name, kind, url, event_types)
         values ($1, $2, 'Local partner', 'webhook', $3, array['*'])",
    )
    .bind(tenant)
    .bind(id)
    .bind(url)
    .execute(&mut *conn)
    .await?;
    sqlx::query("insert into destination_secret (tenant_id, destination_id, secret) values ($1, $2, $3)")
        .bind(tenant)
        .bind(id)
        .bind(secret)
        .execute(conn)
        .await?;
    Ok(())
}

/// Inserts a Shopify shop by its domain (`name.myshopify.com`).
pub async fn add_shop(conn: &mut PgConnection, tenant: Uuid, domain: &str) -> Result<()> {
    sqlx::query("insert into shopify_shop (domain, tenant_id) values (lower($1), $2)")
        .bind(domain)
        .bind(tenant)
        .execute(conn)
        .await?;
    Ok(())
}

/// Binds a tenant to a connected Stripe account (`acct_…`): from then on only events of its accounts count for it.
pub async fn add_stripe_account(conn: &mut PgConnection, tenant: Uuid, account: &str) -> Result<()> {
    sqlx::query("insert into stripe_account (id, tenant_id) values ($1, $2)")
        .bind(account)
        .bind(tenant)
        .execute(conn)
        .await?;
    Ok(())
}

/// Inserts a 3PL account that signs with `secret` (`whsec_…`), given as it is stored (`Keys::at_rest`).
pub async fn add_threepl_account(
    conn: &mut PgConnection,
    tenant: Uuid,
    account: &str,
    secret: &str,
) -> Result<()> {
    sqlx::query("insert into threepl_account (id, tenant_id, secret) values ($1, $2, $3)")
        .bind(account)
        .bind(tenant)
        .bind(secret)
        .execute(conn)
        .await?;
    Ok(())
}

/// Says where a 3PL account reports its stock, and with which bearer token, given as it is stored (`Keys::at_rest`), it is asked;
/// replaces what was said before.
pub async fn set_threepl_inventory(
    conn: &mut PgConnection,
    tenant: Uuid,
    account: &str,
    base_url: &str,
    token: &str,
) -> Result<()> {
    sqlx::query(
        "insert into threepl_inventory (tenant_id, account_id, base_url, token) values ($1, $2, $3, $4)
         on conflict (tenant_id, account_id) do update set base_url = excluded.base_url, token = excluded.token",
    )
    .bind(tenant)
    .bind(account)
    .bind(base_url)
    .bind(token)
    .execute(conn)
    .await?;
    Ok(())
}

/// What an API key allows.
#[derive(Clone, Copy, Debug)]
pub struct Grant<'a> {
    /// The scopes' names.
    pub scopes: &'a [String],
    /// The destination that `events:read` is about.
    pub destination: Option<Uuid>,
}

/// Stores the hash of an API key and returns the key's id. Without `expires_days` it is valid until it is revoked.
pub async fn add_api_key(
    conn: &mut PgConnection,
    tenant: Uuid,
    user: Uuid,
    label: &str,
    key: &str,
    grant: Grant<'_>,
    expires_days: Option<i32>,
) -> Result<Uuid> {
    Ok(sqlx::query_scalar(
        "insert into api_key (tenant_id, app_user_id, label, key_hash, scopes, destination_id, expires_at)
         values ($1, $2, $3, $4, $5, $6, now() + make_interval(days => $7)) returning id",
    )
    .bind(tenant)
    .bind(user)
    .bind(label)
    .bind(secrets::api_key_hash(key))
    .bind(grant.scopes)
    .bind(grant.destination)
    .bind(expires_days)
    .fetch_one(conn)
    .await?)
}
