//! Customers: credit limit, hold and name, saved with the same optimistic concurrency as orders.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::db::call::Statement;
use crate::http::fields::{Fields, MONEY_RANGE};
use crate::http::json::BodyError;
use crate::idempotency::precondition::VERSION_RANGE;

const MAX_NAME_CHARS: usize = 200;

/// The checked fields of a request; absent if not sent.
#[derive(Debug)]
pub struct CustomerFields(Map<String, Value>);

/// Reads `{"baseVersion"?, "creditLimitMinor"?, "onHold"?, "name"?}`, or returns every mistake. A limit of null is none.
pub fn read_save(body: &Value) -> Result<(CustomerFields, Option<i64>), Vec<BodyError>> {
    let mut errors = Vec::new();
    let mut written = Map::new();
    let mut base_version = None;
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        base_version = fields.optional_integer("baseVersion", VERSION_RANGE, &mut errors);
        if fields.optional("creditLimitMinor").is_some_and(Value::is_null) {
            written.insert("creditLimitMinor".into(), Value::Null);
        } else if let Some(limit_minor) =
            fields.optional_integer("creditLimitMinor", MONEY_RANGE, &mut errors)
        {
            written.insert("creditLimitMinor".into(), limit_minor.into());
        }
        if let Some(on_hold) = fields.optional_bool("onHold", &mut errors) {
            written.insert("onHold".into(), on_hold.into());
        }
        if fields.has("name")
            && let Some(name) = fields.text("name", MAX_NAME_CHARS, &mut errors)
        {
            written.insert("name".into(), name.into());
        }
        fields.needs_a_change(&written, &mut errors);
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok((CustomerFields(written), base_version)) } else { Err(errors) }
}

/// Saves a customer: 200; 404, 409, 412.
pub fn save(customer_id: Uuid, fields: &CustomerFields) -> Statement {
    Statement::new("holdfast.save_customer", json!({"customerId": customer_id, "fields": fields.0}))
}
