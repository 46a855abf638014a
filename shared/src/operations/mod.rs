//! What an operator sees and changes: destinations, outbox rows, exceptions, shortfalls, reconciliations.
//!
//! Promises: a caller sees and changes only its own tenant; each change is audited in the same transaction.
//! May touch: the database, in the transaction that `idempotency` opens or by one read. Commits nothing.

pub mod attention;
pub mod destinations;
pub mod events;
pub mod exceptions;
pub mod outbox_admin;
pub mod reconciliations;
