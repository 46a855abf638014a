//! Styles: their prices, saved with the same optimistic concurrency as orders.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::db::call::Statement;
use crate::http::fields::{Fields, MONEY_RANGE};
use crate::http::json::BodyError;
use crate::idempotency::precondition::VERSION_RANGE;

/// The checked prices of a request; absent if not sent.
#[derive(Debug)]
pub struct StyleFields(Map<String, Value>);

/// Reads `{"baseVersion"?, "wholesaleMinor"?, "msrpMinor"?}`, or returns every mistake.
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
        fields.needs_a_change(&written, &mut errors);
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok((StyleFields(written), base_version)) } else { Err(errors) }
}

/// Saves a style's prices: 200; 404, 409, 412.
pub fn save(style_id: Uuid, fields: &StyleFields) -> Statement {
    let argument = json!({"styleId": style_id, "fields": fields.0});
    Statement::new("holdfast.save_style", argument)
}
