//! What people watch: how much waits for a person, and how deliveries go.
//!
//! Relies on: `migrations/functions/7_operations/attention.sql`, whose reads cost the same however much has been settled.

use serde_json::json;

use crate::http::query::Query;

/// Where a count ends: a person needs no larger number.
const MOST: u32 = 1_000;

/// Dead letters, exceptions, shortfalls and destinations that wait for a person.
pub fn waiting() -> Query {
    Query::new("holdfast.attention", json!({"most": MOST}))
}

/// Attempts of each destination, by minute of the last hour and by hour of the last day.
pub fn rates() -> Query {
    Query::new("holdfast.delivery_rates", json!({}))
}
