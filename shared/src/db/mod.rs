//! The database connection, and calls of functions in the schema `holdfast`.
//!
//! Promises: no request gets a connection with an open transaction; a call is one message with one jsonb argument.
//! May touch: the connection. Knows no table, no route and no business rule.

pub mod call;
pub mod connection;
pub mod error;
pub mod run;
