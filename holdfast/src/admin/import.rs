//! `holdfast admin import …`: a new tenant's styles, customers, SKUs and opening stock, from CSV files with a header
//! line. A file is imported in one transaction. Rows that exist already are not changed, so an import can be repeated.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use crate::master_data::{self, Style};

#[derive(clap::Args)]
pub struct Args {
    /// The tenant's id.
    #[arg(long, value_name = "TENANT_ID")]
    tenant: Uuid,
    /// What the file holds.
    #[arg(value_enum)]
    what: What,
    /// The CSV file. Its header line names the columns, in any order.
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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StyleRow {
    name: String,
    currency: String,
    wholesale_minor: i64,
    msrp_minor: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CustomerRow {
    name: String,
    currency: String,
    credit_limit_minor: Option<i64>,
}

#[derive(Deserialize)]
struct SkuRow {
    code: String,
    style: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StockRow {
    code: String,
    on_hand: i64,
}

/// Imports the file and returns how many rows were added and how many existed already. An error names the first line that
/// cannot be imported.
pub async fn run(conn: &mut PgConnection, args: Args) -> Result<Vec<Value>> {
    let Args { tenant, what, file } = args;
    let mut tx = conn.begin().await?;
    let (rows, added) = match what {
        What::Styles => styles(&mut tx, tenant, &read(&file)?).await?,
        What::Customers => customers(&mut tx, tenant, &read(&file)?).await?,
        What::Skus => skus(&mut tx, tenant, &read(&file)?).await?,
        What::Stock => stock(&mut tx, tenant, &read(&file)?).await?,
    };
    tx.commit().await?;
    Ok(vec![json!({ "added": added, "thereAlready": rows - added })])
}

/// A row and its line number in the file.
type Line<T> = (u64, T);

fn read<T: DeserializeOwned>(file: &Path) -> Result<Vec<Line<T>>> {
    let name = file.display();
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_path(file)
        .with_context(|| format!("cannot read {name}"))?;
    let mut rows = Vec::new();
    let headers = reader.headers()?.clone();
    for record in reader.records() {
        let record = record.with_context(|| format!("{name} is not CSV"))?;
        let line = record.position().map_or(0, csv::Position::line);
        let row = record.deserialize(Some(&headers)).with_context(|| format!("{name}, line {line}"))?;
        rows.push((line, row));
    }
    Ok(rows)
}

/// The names or codes that the tenant has already.
async fn known(conn: &mut PgConnection, tenant: Uuid, sql: &'static str) -> Result<HashSet<String>> {
    Ok(sqlx::query_scalar(sql).bind(tenant).fetch_all(conn).await?.into_iter().collect())
}

async fn styles(conn: &mut PgConnection, tenant: Uuid, rows: &[Line<StyleRow>]) -> Result<(usize, usize)> {
    let mut there = known(conn, tenant, "select name from style where tenant_id = $1").await?;
    let mut added = 0;
    for (line, row) in rows {
        if there.insert(row.name.clone()) {
            let style = Style {
                id: Uuid::new_v4(),
                name: &row.name,
                currency: &row.currency,
                wholesale_minor: row.wholesale_minor,
                msrp_minor: row.msrp_minor,
            };
            master_data::add_style(conn, tenant, &style).await.with_context(|| format!("line {line}"))?;
            added += 1;
        }
    }
    Ok((rows.len(), added))
}

async fn customers(
    conn: &mut PgConnection,
    tenant: Uuid,
    rows: &[Line<CustomerRow>],
) -> Result<(usize, usize)> {
    let mut there = known(conn, tenant, "select name from customer where tenant_id = $1").await?;
    let mut added = 0;
    for (line, row) in rows {
        if there.insert(row.name.clone()) {
            let id = Uuid::new_v4();
            master_data::add_customer(conn, tenant, id, &row.name, &row.currency, row.credit_limit_minor)
                .await
                .with_context(|| format!("line {line}"))?;
            added += 1;
        }
    }
    Ok((rows.len(), added))
}

async fn skus(conn: &mut PgConnection, tenant: Uuid, rows: &[Line<SkuRow>]) -> Result<(usize, usize)> {
    let styles: Vec<(String, Uuid)> = sqlx::query_as("select name, id from style where tenant_id = $1")
        .bind(tenant)
        .fetch_all(&mut *conn)
        .await?;
    let styles: std::collections::HashMap<String, Uuid> = styles.into_iter().collect();
    let mut there = known(conn, tenant, "select code from sku where tenant_id = $1").await?;
    let mut added = 0;
    for (line, row) in rows {
        let Some(style) = styles.get(&row.style) else {
            bail!("line {line}: there is no style named {:?}; import the styles first", row.style);
        };
        if there.insert(row.code.clone()) {
            master_data::add_skus(conn, tenant, *style, &[Uuid::new_v4()], std::slice::from_ref(&row.code))
                .await
                .with_context(|| format!("line {line}"))?;
            added += 1;
        }
    }
    Ok((rows.len(), added))
}

/// Adds opening stock to SKUs that have had none so far.
async fn stock(conn: &mut PgConnection, tenant: Uuid, rows: &[Line<StockRow>]) -> Result<(usize, usize)> {
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
    for (line, row) in rows {
        let Some(id) = skus.get(&row.code) else {
            bail!("line {line}: there is no SKU {:?}; import the SKUs first", row.code);
        };
        if row.on_hand < 0 {
            bail!("line {line}: {} on hand: opening stock is 0 or more", row.on_hand);
        }
        if !named.insert(*id) {
            bail!("line {line}: SKU {:?} is on an earlier line too", row.code);
        }
        if !opened.contains(id) && row.on_hand > 0 {
            ids.push(*id);
            units.push(row.on_hand);
        }
    }
    master_data::receive_opening_stock(conn, tenant, &ids, &units, "admin import").await?;
    master_data::emit_ats_changed(conn, tenant, &ids).await?;
    Ok((rows.len(), ids.len()))
}
