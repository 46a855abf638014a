//! Orders: their addresses, the fields that people write, and the statements that create, save, cancel and invoice.

use serde_json::{Map, Value, json};
use sqlx::{AssertSqlSafe, PgConnection};
use uuid::Uuid;

use crate::documents::{Precondition, VERSION_RANGE};
use crate::error::Problem;
use crate::fields::{Fields, QTY_RANGE, uuid};
use crate::idempotency::{Call, Outcome, literal};
use crate::json::{BodyError, MAX_SAFE_INTEGER};

/// Money in one request, in minor units.
pub const MONEY_RANGE: std::ops::RangeInclusive<i64> = 0..=10_000_000_000;
/// Lines of one order.
const MAX_LINES: usize = 500;
/// Characters of a customer's PO number.
const MAX_CUSTOMER_PO: usize = 64;
/// Characters of an order's notes.
const MAX_NOTES: usize = 2_000;

/// An order's id from its path segment.
///
/// # Errors
/// 404 `order_not_found` where it is no UUID.
pub fn order_id(segment: &str) -> Result<Uuid, Problem> {
    uuid(segment).ok_or_else(Problem::order_not_found)
}

/// The fields of a request, checked; only those that were sent.
#[derive(Debug)]
pub struct OrderFields(Map<String, Value>);

/// Reads a save: `{"baseVersion"?, …fields}`.
///
/// # Errors
/// Every mistake, each with its place.
pub fn read_save(body: &Value) -> Result<(OrderFields, Option<i64>), Vec<BodyError>> {
    let mut errors = Vec::new();
    let mut written = Map::new();
    let mut base_version = None;
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        base_version = fields.optional_integer("baseVersion", VERSION_RANGE, &mut errors);
        read_header(&mut fields, &mut written, &mut errors);
        if fields.has("lines") {
            read_lines(&mut fields, 0, false, &mut written, &mut errors);
        }
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok((OrderFields(written), base_version)) } else { Err(errors) }
}

/// Reads a creation: `{"customerId", …fields, "lines"}`, each line with its price.
///
/// # Errors
/// Every mistake, each with its place.
pub fn read_create(body: &Value) -> Result<OrderFields, Vec<BodyError>> {
    let mut errors = Vec::new();
    let mut written = Map::new();
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        if let Some(customer_id) = fields.uuid("customerId", &mut errors) {
            written.insert("customerId".into(), json!(customer_id));
        }
        read_header(&mut fields, &mut written, &mut errors);
        read_lines(&mut fields, 1, true, &mut written, &mut errors);
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok(OrderFields(written)) } else { Err(errors) }
}

/// Reads the body `{}`.
///
/// # Errors
/// Anything else.
pub fn read_empty(body: &Value) -> Result<(), Vec<BodyError>> {
    let mut errors = Vec::new();
    if let Some(fields) = Fields::open(body, "", &mut errors) {
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

fn read_header(fields: &mut Fields<'_>, written: &mut Map<String, Value>, errors: &mut Vec<BodyError>) {
    let sent = [
        ("customerPo", fields.nullable_text("customerPo", MAX_CUSTOMER_PO, errors)),
        ("shipWindowStart", fields.nullable_date("shipWindowStart", errors)),
        ("shipWindowEnd", fields.nullable_date("shipWindowEnd", errors)),
        ("notes", fields.nullable_text("notes", MAX_NOTES, errors)),
    ];
    for (name, value) in sent {
        if let Some(value) = value {
            written.insert(name.into(), value.clone());
        }
    }
    let day = |name: &str| written.get(name).and_then(Value::as_str);
    if let (Some(start), Some(end)) = (day("shipWindowStart"), day("shipWindowEnd"))
        && start > end
    {
        fields.wrong("shipWindowEnd", "must not be before shipWindowStart", errors);
    }
}

fn read_lines(
    fields: &mut Fields<'_>,
    min: usize,
    priced: bool,
    written: &mut Map<String, Value>,
    errors: &mut Vec<BodyError>,
) {
    let Some(items) = fields.array("lines", min..=MAX_LINES, errors) else {
        return;
    };
    let mut lines = Vec::with_capacity(items.len());
    let mut seen = std::collections::HashSet::new();
    let mut total_minor: i128 = 0;
    for (index, item) in items.iter().enumerate() {
        let Some(mut line) = Fields::open(item, format!("/lines/{index}"), errors) else {
            continue;
        };
        let sku_id = line.uuid("skuId", errors);
        let qty = line.integer("qty", QTY_RANGE, errors);
        let price = if priced {
            line.integer("unitPriceMinor", MONEY_RANGE, errors)
        } else {
            line.optional_integer("unitPriceMinor", MONEY_RANGE, errors)
        };
        if sku_id.is_some_and(|id| !seen.insert(id)) {
            line.wrong("skuId", "stands in this size run twice", errors);
        }
        line.finish(errors);
        total_minor += i128::from(qty.unwrap_or(0)) * i128::from(price.unwrap_or(0));
        lines.push(json!({"skuId": sku_id, "qty": qty, "unitPriceMinor": price}));
    }
    if total_minor > i128::from(MAX_SAFE_INTEGER) {
        fields.wrong("lines", "the order's total would pass 2^53−1 minor units", errors);
    }
    written.insert("lines".into(), lines.into());
}

/// Saves an order in the caller's transaction.
///
/// # Errors
/// Of the statement.
pub async fn save(
    connection: &mut PgConnection,
    call: &Call,
    order_id: Uuid,
    precondition: &Precondition,
    fields: &OrderFields,
) -> Result<Outcome, sqlx::Error> {
    let (tenant_id, user_id) = (call.caller.tenant_id, call.caller.user_id);
    let (precondition, fields) = (literal(&precondition.to_json()), literal(&json!(fields.0)));
    let sql = format!(
        "select * from holdfast.save_order('{tenant_id}', '{order_id}', '{user_id}', {precondition}, {fields})"
    );
    outcome(connection, sql).await
}

/// Creates an order in the caller's transaction.
///
/// # Errors
/// Of the statement.
pub async fn create(
    connection: &mut PgConnection,
    call: &Call,
    fields: &OrderFields,
) -> Result<Outcome, sqlx::Error> {
    let (tenant_id, user_id, fields) =
        (call.caller.tenant_id, call.caller.user_id, literal(&json!(fields.0)));
    outcome(connection, format!("select * from holdfast.create_order('{tenant_id}', '{user_id}', {fields})"))
        .await
}

/// Releases all that an order holds and ends it, in the caller's transaction.
///
/// # Errors
/// Of the statement.
pub async fn cancel(
    connection: &mut PgConnection,
    call: &Call,
    order_id: Uuid,
) -> Result<Outcome, sqlx::Error> {
    let (tenant_id, user_id, actor) =
        (call.caller.tenant_id, call.caller.user_id, literal(&json!(call.caller.actor)));
    let sql = format!(
        "select * from holdfast.cancel_order('{tenant_id}', '{order_id}', '{user_id}', {actor} #>> '{{}}')"
    );
    outcome(connection, sql).await
}

/// Invoices what an order holds or has shipped and nobody has invoiced, in the caller's transaction.
///
/// # Errors
/// Of the statement.
pub async fn invoice(
    connection: &mut PgConnection,
    call: &Call,
    order_id: Uuid,
) -> Result<Outcome, sqlx::Error> {
    let tenant_id = call.caller.tenant_id;
    outcome(connection, format!("select * from holdfast.invoice_order('{tenant_id}', '{order_id}')")).await
}

/// Sends one function call that returns `holdfast.outcome`; `sql` holds no untrusted text but hex literals and UUIDs.
pub(crate) async fn outcome(connection: &mut PgConnection, sql: String) -> Result<Outcome, sqlx::Error> {
    Outcome::from_row(&sqlx::raw_sql(AssertSqlSafe(sql)).fetch_one(connection).await?)
}
