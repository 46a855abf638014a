//! What an operator sees and does: destinations, events of the outbox, exceptions and shortfalls.
//!
//! Promises: only the caller's own tenant is seen or changed; every change leaves a line of audit in its transaction.
//! May touch: the open transaction that `idempotency` hands over, or one read. Commits nothing.

pub mod destinations;
pub mod exceptions;
pub mod outbox_admin;
