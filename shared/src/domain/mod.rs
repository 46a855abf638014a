//! Orders, stock, styles and invoices: reading of request bodies, and the calls of the SQL functions behind the routes.
//!
//! Promises: a body is checked completely before the database is called. Rules that need a lock are SQL
//! (`migrations/functions`), not here.
//! May touch: nothing, except that `reads` pings the database. Makes statements; `idempotency` and `http::query` send them.

pub mod customers;
pub mod invoices;
pub mod orders;
pub mod reads;
pub mod stock;
pub mod styles;
