//! Invoices. SQL determines the lines to bill, under the order's lock; the customer's exposure stays the same.

use serde_json::json;
use uuid::Uuid;

use crate::db::call::Statement;

/// Invoices the allocated and shipped units that are not invoiced yet: 201; 404, 409, 422.
pub fn create(order_id: Uuid) -> Statement {
    Statement::new("holdfast.invoice_order", json!({"orderId": order_id}))
}
