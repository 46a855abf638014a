//! Invoices. What is billed, and what becomes of the exposure, is SQL, decided under the order's lock.

use serde_json::json;
use uuid::Uuid;

use crate::db::call::Statement;

/// Invoices what an order holds or has shipped and nobody has invoiced: 201; 404, 409, 422.
pub fn create(order_id: Uuid) -> Statement {
    Statement::new("holdfast.invoice_order", json!({"orderId": order_id}))
}
