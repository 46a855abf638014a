//! Allocating stock to an order and releasing it: the lines of a request, and the calls. The rules are SQL, since they are
//! decided under locks: `holdfast.promise`, `holdfast.give_back`.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::db::call::Statement;
use crate::http::fields::{Fields, QTY_RANGE};
use crate::http::json::BodyError;

const LINES_RANGE: std::ops::RangeInclusive<usize> = 1..=500;

/// One line of an allocate or release request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// Several lines of one SKU count as their sum.
    pub sku_id: Uuid,
    /// Units, 1 … 1,000,000.
    pub qty: i64,
}

/// An allocate request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// As sent.
    pub lines: Vec<Line>,
    /// Allocate what there is, instead of all lines or none.
    pub partial: bool,
}

/// Reads `{"skuId","qty"}` or `{"lines":[{"skuId","qty"}, …]}`, each with `"partial"`?, or returns every mistake.
pub fn read_allocation(body: &Value) -> Result<Allocation, Vec<BodyError>> {
    let mut partial = false;
    let lines =
        read(body, |fields, errors| partial = fields.optional_bool("partial", errors).unwrap_or(false))?;
    Ok(Allocation { lines, partial })
}

/// Reads `{"skuId","qty"}` or `{"lines":[{"skuId","qty"}, …]}`, or returns every mistake.
pub fn read_lines(body: &Value) -> Result<Vec<Line>, Vec<BodyError>> {
    read(body, |_, _| ())
}

fn read(
    body: &Value,
    read_more: impl FnOnce(&mut Fields<'_>, &mut Vec<BodyError>),
) -> Result<Vec<Line>, Vec<BodyError>> {
    let mut errors = Vec::new();
    let mut lines = Vec::new();
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        if fields.has("lines") {
            if let Some(items) = fields.array("lines", LINES_RANGE, &mut errors) {
                for (index, item) in items.iter().enumerate() {
                    if let Some(mut line) = Fields::open(item, format!("/lines/{index}"), &mut errors) {
                        lines.extend(read_line(&mut line, &mut errors));
                        line.finish(&mut errors);
                    }
                }
            }
        } else {
            lines.extend(read_line(&mut fields, &mut errors));
        }
        read_more(&mut fields, &mut errors);
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok(lines) } else { Err(errors) }
}

fn read_line(fields: &mut Fields<'_>, errors: &mut Vec<BodyError>) -> Option<Line> {
    let sku_id = fields.uuid("skuId", errors);
    let qty = fields.integer("qty", QTY_RANGE, errors);
    Some(Line { sku_id: sku_id?, qty: qty? })
}

/// Allocates stock to an order in the single-statement variant (`once_fused`): 200; 404, 409, 422.
pub fn allocate(order_id: Uuid, allocation: &Allocation) -> Statement {
    Statement::new("holdfast.allocate", argument(order_id, allocation))
}

/// As [`allocate`], in the multi-statement variant (`once`).
pub fn promise(order_id: Uuid, allocation: &Allocation) -> Statement {
    Statement::new("holdfast.promise_lines", argument(order_id, allocation))
}

fn argument(order_id: Uuid, allocation: &Allocation) -> Value {
    json!({"orderId": order_id, "lines": allocation.lines, "partial": allocation.partial})
}

/// Releases allocated stock: 200; 404, 409, 422.
pub fn release(order_id: Uuid, lines: &[Line]) -> Statement {
    Statement::new("holdfast.release_lines", json!({"orderId": order_id, "lines": lines}))
}
