//! Calls of SQL functions in the schema `holdfast`, each with one jsonb object as its argument.
//!
//! Promises: the argument is sent as hex digits, so nothing has to be escaped; a call is one message of the simple query
//! protocol, which takes one round trip, directly and behind every pooler.

use serde_json::{Value, json};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

/// A call that is not sent yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    function: &'static str,
    argument: Value,
}

impl Statement {
    /// `function` has the form `holdfast.…`; `argument` is an object.
    pub fn new(function: &'static str, argument: Value) -> Self {
        debug_assert!(argument.is_object(), "{function} takes an object");
        Self { function, argument }
    }

    /// Adds a member to the argument.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl serde::Serialize) -> Self {
        self.argument[name] = json!(value);
        self
    }

    /// Replaces a text of the argument; what is absent or null stays so.
    pub(crate) fn replace<E>(
        mut self,
        name: &str,
        by: impl FnOnce(&str) -> Result<String, E>,
    ) -> Result<Self, E> {
        if let Some(text) = self.argument[name].as_str() {
            self.argument[name] = by(text)?.into();
        }
        Ok(self)
    }

    /// The text to send; untrusted values are in it as hex digits only.
    pub fn sql(&self) -> String {
        format!("select * from {}({})", self.function, json_literal(&self.argument))
    }
}

/// A jsonb expression made of hex digits.
pub(crate) fn json_literal(value: &Value) -> String {
    format!("convert_from('\\x{}', 'UTF8')::jsonb", hex::encode(value.to_string()))
}

/// Sends one message of the simple query protocol. Reads all rows, so that an error after a row, such as that of COMMIT, is
/// seen.
pub(crate) async fn send(connection: &mut PgConnection, message: String) -> Result<Vec<PgRow>, sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(message)).fetch_all(connection).await
}

pub(crate) fn first_row(rows: Vec<PgRow>) -> Result<PgRow, sqlx::Error> {
    rows.into_iter().next().ok_or(sqlx::Error::RowNotFound)
}

/// What a function decided while it held its locks: the composite type `holdfast.outcome`.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Outcome {
    /// HTTP status of a success or a business refusal; never 5xx.
    pub status: i32,
    /// Error code; set if it is a refusal.
    pub error: Option<String>,
    /// A refusal in one sentence.
    pub detail: Option<String>,
    /// The JSON document of a success; of a refusal, further members without the braces.
    pub content: Option<String>,
    /// `ETag` with its quotes.
    pub etag: Option<String>,
    /// `Location` of what was created.
    pub location: Option<String>,
}

pub(crate) async fn outcome(
    connection: &mut PgConnection,
    statement: &Statement,
) -> Result<Outcome, sqlx::Error> {
    let row = first_row(send(connection, statement.sql()).await?)?;
    Ok(Outcome {
        status: row.try_get("status")?,
        error: row.try_get("error")?,
        detail: row.try_get("detail")?,
        content: row.try_get("content")?,
        etag: row.try_get("etag")?,
        location: row.try_get("location")?,
    })
}
