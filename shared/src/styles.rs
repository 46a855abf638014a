//! Styles: their prices, saved by the same protocol as orders.

use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::documents::{Precondition, VERSION_RANGE};
use crate::fields::Fields;
use crate::idempotency::{Call, Outcome, literal};
use crate::json::BodyError;
use crate::orders::{MONEY_RANGE, outcome};

/// The prices of a request, checked; only those that were sent.
#[derive(Debug)]
pub struct StyleFields(Map<String, Value>);

/// Reads `{"baseVersion"?, "wholesaleMinor"?, "msrpMinor"?}`.
///
/// # Errors
/// Every mistake, each with its place.
pub fn read_save(body: &Value) -> Result<(StyleFields, Option<i64>), Vec<BodyError>> {
    let mut errors = Vec::new();
    let mut written = Map::new();
    let mut base_version = None;
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        base_version = fields.optional_integer("baseVersion", VERSION_RANGE, &mut errors);
        for name in ["wholesaleMinor", "msrpMinor"] {
            if let Some(price_minor) = fields.optional_integer(name, MONEY_RANGE, &mut errors) {
                written.insert(name.into(), price_minor.into());
            }
        }
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok((StyleFields(written), base_version)) } else { Err(errors) }
}

/// Saves a style's prices in the caller's transaction.
///
/// # Errors
/// Of the statement.
pub async fn save(
    connection: &mut PgConnection,
    call: &Call,
    style_id: Uuid,
    precondition: &Precondition,
    fields: &StyleFields,
) -> Result<Outcome, sqlx::Error> {
    let (tenant_id, user_id) = (call.caller.tenant_id, call.caller.user_id);
    let (precondition, fields) = (literal(&precondition.to_json()), literal(&json!(fields.0)));
    let sql = format!(
        "select * from holdfast.save_style('{tenant_id}', '{style_id}', '{user_id}', {precondition}, {fields})"
    );
    outcome(connection, sql).await
}
