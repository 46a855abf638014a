//! Promising stock to an order and giving it back: the lines of a request and the statements that move them. The
//! rules and the moves are SQL, since they are decided under locks: `holdfast.promise`, `holdfast.give_back`.

use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::fields::{Fields, QTY_RANGE};
use crate::idempotency::{Call, Outcome, literal};
use crate::json::BodyError;
use crate::orders::outcome;

/// The function behind `idempotency::once_fused` that allocates in one message.
pub const ALLOCATE: &str = "holdfast.allocate";

/// Lines of one request.
const LINES_RANGE: std::ops::RangeInclusive<usize> = 1..=500;

/// One line of an allocate or release request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The SKU; may stand on several lines, which count as their sum.
    pub sku_id: Uuid,
    /// Units, 1 … 1,000,000.
    pub qty: i64,
}

/// Reads `{"skuId","qty"}` or `{"lines":[{"skuId","qty"}, …]}`.
///
/// # Errors
/// Every mistake, each with its place.
pub fn read_lines(body: &Value) -> Result<Vec<Line>, Vec<BodyError>> {
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
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok(lines) } else { Err(errors) }
}

fn read_line(fields: &mut Fields<'_>, errors: &mut Vec<BodyError>) -> Option<Line> {
    let sku_id = fields.uuid("skuId", errors);
    let qty = fields.integer("qty", QTY_RANGE, errors);
    Some(Line { sku_id: sku_id?, qty: qty? })
}

/// `holdfast.allocate`'s arguments beside the call.
pub fn arguments(order_id: Uuid, lines: &[Line]) -> Value {
    json!({"orderId": order_id, "lines": lines})
}

/// Promises stock in the caller's transaction: the wrapped spelling of [`ALLOCATE`].
///
/// # Errors
/// Of the statement.
pub async fn promise(
    connection: &mut PgConnection,
    call: &Call,
    order_id: Uuid,
    lines: &[Line],
) -> Result<Outcome, sqlx::Error> {
    moved(connection, "promise", call, order_id, lines).await
}

/// Gives promised stock back, in the caller's transaction.
///
/// # Errors
/// Of the statement.
pub async fn give_back(
    connection: &mut PgConnection,
    call: &Call,
    order_id: Uuid,
    lines: &[Line],
) -> Result<Outcome, sqlx::Error> {
    moved(connection, "give_back", call, order_id, lines).await
}

async fn moved(
    connection: &mut PgConnection,
    function: &'static str,
    call: &Call,
    order_id: Uuid,
    lines: &[Line],
) -> Result<Outcome, sqlx::Error> {
    let lines = literal(&json!(lines));
    let actor = literal(&json!(call.caller.actor));
    let tenant_id = call.caller.tenant_id;
    let sql = format!(
        "select * from holdfast.{function}('{tenant_id}'::uuid, '{order_id}'::uuid, {lines}, {actor} #>> '{{}}')"
    );
    outcome(connection, sql).await
}
