//! Orders: the editable fields, and the calls that create, save and cancel. The rules that need a lock are SQL
//! (`migrations/functions/5_domain`).

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::db::call::Statement;
use crate::http::fields::{Fields, MONEY_RANGE, QTY_RANGE};
use crate::http::json::{BodyError, MAX_SAFE_INTEGER};
use crate::idempotency::precondition::VERSION_RANGE;

const MAX_LINES: usize = 500;
const MAX_CUSTOMER_PO_CHARS: usize = 64;
const MAX_NOTES_CHARS: usize = 2_000;

/// The checked fields of a request; absent if not sent.
#[derive(Debug)]
pub struct OrderFields(Map<String, Value>);

/// Reads a save, `{"baseVersion"?, …fields}`, or returns every mistake.
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
        fields.needs_a_change(&written, &mut errors);
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok((OrderFields(written), base_version)) } else { Err(errors) }
}

/// Reads a new order, `{"customerId", …fields, "lines"}`, each line with its price, or returns every mistake.
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

fn read_header(fields: &mut Fields<'_>, written: &mut Map<String, Value>, errors: &mut Vec<BodyError>) {
    let sent = [
        ("customerPo", fields.nullable_text("customerPo", MAX_CUSTOMER_PO_CHARS, errors)),
        ("shipWindowStart", fields.nullable_date("shipWindowStart", errors)),
        ("shipWindowEnd", fields.nullable_date("shipWindowEnd", errors)),
        ("notes", fields.nullable_text("notes", MAX_NOTES_CHARS, errors)),
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
            line.wrong("skuId", "appears on another line too", errors);
        }
        line.finish(errors);
        total_minor += i128::from(qty.unwrap_or(0)) * i128::from(price.unwrap_or(0));
        lines.push(json!({"skuId": sku_id, "qty": qty, "unitPriceMinor": price}));
    }
    if total_minor > i128::from(MAX_SAFE_INTEGER) {
        fields.wrong("lines", "the order's total would pass 2^53-1 minor units", errors);
    }
    written.insert("lines".into(), lines.into());
}

/// Saves an order: 200; 404, 409, 412, 422.
pub fn save(order_id: Uuid, fields: &OrderFields) -> Statement {
    let argument = json!({"orderId": order_id, "fields": fields.0});
    Statement::new("holdfast.save_order", argument)
}

/// Creates an order: 201; 422.
pub fn create(fields: &OrderFields) -> Statement {
    Statement::new("holdfast.create_order", json!({"fields": fields.0}))
}

/// Ends a part-shipped order: what it holds is released, what was not shipped is dropped: 200; 404, 409, 412.
pub fn close(order_id: Uuid) -> Statement {
    Statement::new("holdfast.close_order", json!({"orderId": order_id}))
}

/// Releases everything that is allocated to an order and cancels it: 200; 404, 409, 412.
pub fn cancel(order_id: Uuid) -> Statement {
    Statement::new("holdfast.cancel_order", json!({"orderId": order_id}))
}
