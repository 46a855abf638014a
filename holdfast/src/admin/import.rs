//! `holdfast admin import …`: a new tenant's styles, customers, SKUs and opening stock, from CSV files with a header
//! line. A file is imported in one transaction. Rows that exist already are not changed, so an import can be repeated.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use super::csv_file::{Row, read};
use super::waiting;
use crate::master_data::{self, Style};

#[derive(clap::Args)]
pub struct Args {
    /// The tenant's id.
    #[arg(long, value_name = "TENANT_ID")]
    tenant: Uuid,
    /// What the file holds.
    #[arg(value_enum)]
    what: What,
    /// The CSV file, in UTF-8 and separated by commas. Its header line names the columns, in any order.
    file: PathBuf,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum What {
    /// Columns: name, currency (like USD), wholesaleMinor and msrpMinor (prices in minor units: 8900 for 89.00).
    Styles,
    /// Columns: name, currency and creditLimitMinor (in minor units; empty for no limit).
    Customers,
    /// Columns: code and style (the name of a style that exists already).
    Skus,
    /// Columns: code (of a SKU that exists already) and onHand (units). A SKU's opening stock is imported only once.
    Stock,
}

const STYLES: [&str; 4] = ["name", "currency", "wholesaleMinor", "msrpMinor"];
const CUSTOMERS: [&str; 3] = ["name", "currency", "creditLimitMinor"];
const SKUS: [&str; 2] = ["code", "style"];
const STOCK: [&str; 2] = ["code", "onHand"];

/// Imports the file and returns how many rows were added and how many existed already. An error names the first line that
/// cannot be imported.
pub async fn run(conn: &mut PgConnection, args: Args) -> Result<Vec<Value>> {
    let Args { tenant, what, file } = args;
    let mut tx = conn.begin().await?;
    let is_tenant: bool = sqlx::query_scalar("select exists (select from tenant where id = $1)")
        .bind(tenant)
        .fetch_one(&mut *tx)
        .await?;
    if !is_tenant {
        bail!("there is no tenant with this id");
    }
    let (rows, added) = match what {
        What::Styles => styles(&mut tx, tenant, &read(&file, &STYLES)?).await?,
        What::Customers => customers(&mut tx, tenant, &read(&file, &CUSTOMERS)?).await?,
        What::Skus => skus(&mut tx, tenant, &read(&file, &SKUS)?).await?,
        What::Stock => stock(&mut tx, tenant, &read(&file, &STOCK)?).await?,
    };
    tx.commit().await?;
    let mut printed = json!({ "added": added, "thereAlready": rows - added });
    if matches!(what, What::Skus) {
        // Also where none was added: an import that was ended after its commit is repeated for this.
        printed["exceptions"] = waiting::for_skus(conn, tenant).await?.to_json();
    }
    Ok(vec![printed])
}

/// The names or codes that the tenant has already.
async fn known(conn: &mut PgConnection, tenant: Uuid, sql: &'static str) -> Result<HashSet<String>> {
    Ok(sqlx::query_scalar(sql).bind(tenant).fetch_all(conn).await?.into_iter().collect())
}

async fn styles(conn: &mut PgConnection, tenant: Uuid, rows: &[Row]) -> Result<(usize, usize)> {
    let mut there = known(conn, tenant, "select name from style where tenant_id = $1").await?;
    let mut added = 0;
    for row in rows {
        let style = Style {
            id: Uuid::new_v4(),
            name: row.text("name")?,
            currency: row.text("currency")?,
            wholesale_minor: row.number("wholesaleMinor")?,
            msrp_minor: row.number("msrpMinor")?,
        };
        if there.insert(style.name.to_owned()) {
            master_data::add_style(conn, tenant, &style)
                .await
                .with_context(|| format!("line {}", row.line))?;
            added += 1;
        }
    }
    Ok((rows.len(), added))
}

async fn customers(conn: &mut PgConnection, tenant: Uuid, rows: &[Row]) -> Result<(usize, usize)> {
    let mut there = known(conn, tenant, "select name from customer where tenant_id = $1").await?;
    let mut added = 0;
    for row in rows {
        let (name, currency) = (row.text("name")?, row.text("currency")?);
        let limit_minor = row.optional_number("creditLimitMinor")?;
        if there.insert(name.to_owned()) {
            master_data::add_customer(conn, tenant, Uuid::new_v4(), name, currency, limit_minor)
                .await
                .with_context(|| format!("line {}", row.line))?;
            added += 1;
        }
    }
    Ok((rows.len(), added))
}

async fn skus(conn: &mut PgConnection, tenant: Uuid, rows: &[Row]) -> Result<(usize, usize)> {
    let styles: Vec<(String, Uuid)> = sqlx::query_as("select name, id from style where tenant_id = $1")
        .bind(tenant)
        .fetch_all(&mut *conn)
        .await?;
    let styles: std::collections::HashMap<String, Uuid> = styles.into_iter().collect();
    let mut there = known(conn, tenant, "select code from sku where tenant_id = $1").await?;
    let mut added = 0;
    for row in rows {
        let (code, style, line) = (row.text("code")?.to_owned(), row.text("style")?, row.line);
        let Some(style) = styles.get(style) else {
            bail!("line {line}: there is no style named {style:?}; import the styles first");
        };
        if there.insert(code.clone()) {
            master_data::add_skus(conn, tenant, *style, &[Uuid::new_v4()], &[code])
                .await
                .with_context(|| format!("line {line}"))?;
            added += 1;
        }
    }
    Ok((rows.len(), added))
}

/// Adds opening stock to SKUs that have had none so far.
async fn stock(conn: &mut PgConnection, tenant: Uuid, rows: &[Row]) -> Result<(usize, usize)> {
    let skus: Vec<(String, Uuid)> = sqlx::query_as("select code, id from sku where tenant_id = $1")
        .bind(tenant)
        .fetch_all(&mut *conn)
        .await?;
    let skus: std::collections::HashMap<String, Uuid> = skus.into_iter().collect();
    // A concurrent import of the same file waits here, and then sees what this one added.
    sqlx::query("select from tenant where id = $1 for no key update")
        .bind(tenant)
        .execute(&mut *conn)
        .await?;
    let opened: Vec<Uuid> = sqlx::query_scalar(
        "select distinct sku_id from stock_ledger where tenant_id = $1 and entry_type = 'opening'",
    )
    .bind(tenant)
    .fetch_all(&mut *conn)
    .await?;
    let opened: HashSet<Uuid> = opened.into_iter().collect();
    let (mut named, mut ids, mut units) = (HashSet::new(), Vec::new(), Vec::new());
    for row in rows {
        let (code, on_hand, line) = (row.text("code")?, row.number("onHand")?, row.line);
        let Some(id) = skus.get(code) else {
            bail!("line {line}: there is no SKU {code:?}; import the SKUs first");
        };
        if on_hand < 0 {
            bail!("line {line}: {on_hand} on hand: opening stock is 0 or more");
        }
        if !named.insert(*id) {
            bail!("line {line}: SKU {code:?} is on an earlier line too");
        }
        if !opened.contains(id) && on_hand > 0 {
            ids.push(*id);
            units.push(on_hand);
        }
    }
    master_data::receive_opening_stock(conn, tenant, &ids, &units, "admin import").await?;
    master_data::emit_ats_changed(conn, tenant, &ids).await?;
    Ok((rows.len(), ids.len()))
}
