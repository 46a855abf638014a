//! Addresses of orders.

use uuid::Uuid;

use crate::error::Problem;
use crate::fields::uuid;

/// An order's id from its path segment.
///
/// # Errors
/// 404 `order_not_found` where it is no UUID.
pub fn order_id(segment: &str) -> Result<Uuid, Problem> {
    uuid(segment).ok_or_else(Problem::order_not_found)
}
