//! Turns an API Gateway event into a checked request, and an answer or a problem into a response.
//!
//! Promises: credentials, JSON, query parameters and problem documents are as `openapi.yaml` says.
//! May touch: `auth` looks up API keys in the database; `jwt` fetches a JWKS; `query` sends one read; `serve` asks Lambda for
//! events; `answered` writes the log. The others touch nothing.

pub mod answered;
pub mod auth;
pub mod event;
pub mod fields;
pub mod json;
pub mod jwt;
pub mod problem;
pub mod query;
pub mod recent;
pub mod route;
pub mod serve;
