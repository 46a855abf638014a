//! Orders, stock, styles and invoices: the bodies that routes take, and the calls that change or read them.
//!
//! Promises: a body is checked in full before the database is asked; every rule that needs a lock is decided in
//! `migrations/functions`, not here.
//! May touch: the open transaction that `idempotency` hands over, or one read. Commits nothing.

pub mod invoices;
pub mod orders;
pub mod reads;
pub mod stock;
pub mod styles;
