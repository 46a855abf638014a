//! The database: one connection, and one way to call a function of the schema `holdfast`.
//!
//! Promises: a connection is never handed on inside a transaction; a statement is sent as one message with one argument.
//! May touch: the connection. Knows no table, no route and no rule.

pub mod call;
pub mod connection;
