//! From an API Gateway event to a checked request, and from an answer or a problem to a response.
//!
//! Promises: what the contract says of credentials, JSON, query parameters and problem documents.
//! May touch: `auth` looks up API keys in the database and fetches a JWKS; `query` sends one read. The parsers (`event`,
//! `json`, `fields`, `jwt` but for its key set) and the renderer (`problem`) touch nothing.

pub mod auth;
pub mod event;
pub mod fields;
pub mod json;
pub mod jwt;
pub mod problem;
pub mod query;
pub mod route;
