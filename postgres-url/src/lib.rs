//! How PostgreSQL is reached: reads a `postgres://` URL, or a secret as RDS writes it, into options for a connection.
//!
//! Promises: off loopback a connection is encrypted, and the server's certificate is verified together with its name, unless the
//! URL says `sslmode=disable` or `sslmode=verify-ca`; no error holds a password. Trusted are Mozilla's roots; at an address of
//! RDS its region's roots; and what the operator gives.
//! Touches nothing.

mod rds;
mod reading;
mod refusal;

pub use reading::{Overrides, WrongAddress, options, password};
pub use refusal::why_refused;
