//! The one way to call SQL: a function of the schema `holdfast` with one jsonb argument, whose members have names.
//!
//! Promises: the argument travels as hex digits, so there is nothing to escape; the call is one simple-protocol message,
//! which needs one round trip directly and behind every pooler. Touches nothing but the connection it is given.

use serde_json::{Value, json};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

/// A call that can be sent: the function's name and its argument.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    function: &'static str,
    argument: Value,
}

impl Statement {
    /// A call of `function` (`holdfast.…`) with `argument`, an object.
    pub fn new(function: &'static str, argument: Value) -> Self {
        debug_assert!(argument.is_object(), "{function} takes an object");
        Self { function, argument }
    }

    /// The same call with one more member.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl serde::Serialize) -> Self {
        self.argument[name] = json!(value);
        self
    }

    /// The statement's text; holds no untrusted text but hex digits.
    pub fn sql(&self) -> String {
        format!("select * from {}({})", self.function, literal(&self.argument))
    }
}

/// A value as a jsonb expression of hex digits.
pub fn literal(value: &Value) -> String {
    format!("holdfast.json('\\x{}')", hex::encode(value.to_string()))
}

/// Sends one simple-protocol message. All rows are read, so that an error behind a row, such as a commit's, is seen.
///
/// # Errors
/// What the server or the connection reports.
pub async fn send(connection: &mut PgConnection, message: String) -> Result<Vec<PgRow>, sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(message)).fetch_all(connection).await
}

/// The only row of an answer.
///
/// # Errors
/// Where there is none.
pub fn only(rows: Vec<PgRow>) -> Result<PgRow, sqlx::Error> {
    rows.into_iter().next().ok_or(sqlx::Error::RowNotFound)
}

/// What a function decided under its locks: the composite type `holdfast.outcome`.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// HTTP status; a success or a business refusal, never 5xx.
    pub status: i32,
    /// Code of a refusal.
    pub error: Option<String>,
    /// Sentence of a refusal.
    pub detail: Option<String>,
    /// The whole document of a success, or a refusal's further members as a JSON fragment.
    pub content: Option<String>,
    /// `ETag`, quotes included.
    pub etag: Option<String>,
    /// `Location`.
    pub location: Option<String>,
}

/// Sends a call that returns `holdfast.outcome`.
///
/// # Errors
/// What the server or the connection reports.
pub async fn outcome(connection: &mut PgConnection, statement: &Statement) -> Result<Outcome, sqlx::Error> {
    let row = only(send(connection, statement.sql()).await?)?;
    Ok(Outcome {
        status: row.try_get("status")?,
        error: row.try_get("error")?,
        detail: row.try_get("detail")?,
        content: row.try_get("content")?,
        etag: row.try_get("etag")?,
        location: row.try_get("location")?,
    })
}
