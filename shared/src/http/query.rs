//! Reads: query parameters, and the message that answers a read.
//!
//! Promises: every wrong parameter is reported; an answer is one consistent snapshot of the caller's own tenant, read in one
//! round trip. Changes nothing.

use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::Db;
use crate::http::auth::Caller;
use crate::http::event::Answer;
use crate::http::fields::uuid;
use crate::http::json::BodyError;
use crate::http::problem::Problem;

const DEFAULT_LIMIT: u16 = 50;
const LIMIT_RANGE: std::ops::RangeInclusive<u16> = 1..=200;
/// Characters of `q`: longer than any name; bounds the text that is compared with every row.
const MAX_SEARCH_CHARS: usize = 200;

/// A read that is not sent yet.
#[derive(Clone, Debug)]
pub struct Query {
    statement: Statement,
    not_found: fn() -> Problem,
}

impl Query {
    /// By a function that takes `{"tenantId","userId","actor", …argument}` and returns `holdfast.answer`.
    pub(crate) fn new(function: &'static str, argument: Value) -> Self {
        Self { statement: Statement::new(function, argument), not_found: Problem::not_found }
    }

    /// Reads one document by its id; `kind` as in `holdfast.read_one`.
    pub fn one(kind: &'static str, id: Uuid) -> Self {
        let not_found = if kind == "order" { Problem::order_not_found } else { Problem::not_found };
        Self { not_found, ..Self::new("holdfast.read_one", json!({"kind": kind, "id": id})) }
    }

    /// The same read, answered with `problem` where it finds nothing.
    pub(crate) fn or_else(self, problem: fn() -> Problem) -> Self {
        Self { not_found: problem, ..self }
    }

    /// As [`Query::new`], about an order.
    pub(crate) fn about_order(function: &'static str, argument: Value) -> Self {
        Self { not_found: Problem::order_not_found, ..Self::new(function, argument) }
    }

    /// Reads a page of a list, named by its table: `{"list","limit","after", …filters}`.
    pub(crate) fn list(table: &'static str, page: &Page, filters: Value) -> Self {
        let mut query = Self::new("holdfast.list", filters);
        query.statement =
            query.statement.with("list", table).with("limit", page.limit).with("after", &page.after);
        query
    }

    /// Sends the read: 200; 401 for an unknown user; 404; 400 `invalid_query` for an unknown `after`; 503.
    pub(crate) async fn answer(&self, db: &Db, caller: &Caller) -> Result<Answer, Problem> {
        let statement = caller.named_in(self.statement.clone());
        let row = db.call_one(&statement).await?;
        match row.try_get("decision")? {
            "answer" => Ok(Answer {
                etag: row.try_get("etag")?,
                ..Answer::new(
                    200,
                    row.try_get::<String, _>("content_type")?,
                    row.try_get::<Vec<u8>, _>("body")?,
                )
            }),
            "unknown_user" => Err(Problem::unauthenticated()),
            "not_found" => Err((self.not_found)()),
            "unknown_after" => Err(Problem::invalid_query(&[wrong("after", "is not an item of this list")])),
            other => Err(sqlx::Error::Decode(format!("unknown decision {other}").into()).into()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) limit: u16,
    /// The id of the previous page's last item.
    pub(crate) after: Option<String>,
}

/// The parameters of one request. Those that were not read before [`Parameters::finish`] are unknown parameters.
pub(crate) struct Parameters<'q> {
    given: &'q [(String, String)],
    known: Vec<&'static str>,
    errors: Vec<BodyError>,
}

pub(crate) fn wrong(name: &str, message: impl Into<String>) -> BodyError {
    BodyError { path: name.to_owned(), message: message.into() }
}

impl<'q> Parameters<'q> {
    pub fn new(given: &'q [(String, String)]) -> Self {
        Self { given, known: Vec::new(), errors: Vec::new() }
    }

    fn single(&mut self, name: &'static str) -> Option<&'q str> {
        self.known.push(name);
        let mut values =
            self.given.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
        let value = values.next();
        if values.next().is_some() {
            self.errors.push(wrong(name, "is given more than once"));
            return None;
        }
        // It stands for what is not UTF-8. Whoever sends it as such searches for what no name holds.
        if value.is_some_and(|value| value.contains(char::REPLACEMENT_CHARACTER)) {
            self.errors.push(wrong(name, "must be percent-encoded UTF-8"));
            return None;
        }
        value
    }

    /// Parses a value; notes `message` as a mistake if `read` returns `None`.
    fn read<T>(
        &mut self,
        name: &'static str,
        text: &'q str,
        message: impl Into<String>,
        read: impl FnOnce(&'q str) -> Option<T>,
    ) -> Option<T> {
        let value = read(text);
        if value.is_none() {
            self.errors.push(wrong(name, message));
        }
        value
    }

    /// A filter, read by `read`. A blank one counts as absent, since forms also send empty fields. (A blank `limit` or
    /// `after` is a mistake: a client that lost its place would read the first page again and again.)
    pub fn filter<T>(
        &mut self,
        name: &'static str,
        message: impl Into<String>,
        read: impl FnOnce(&'q str) -> Option<T>,
    ) -> Option<T> {
        let text = self.single(name).filter(|value| !value.is_empty())?;
        self.read(name, text, message, read)
    }

    /// `limit` and `after` of a list whose ids are UUIDs.
    pub fn page(&mut self) -> Page {
        self.page_by("must be a UUID", |text| uuid(text).map(|id| id.to_string()))
    }

    /// `limit` and `after` of a list with other ids.
    pub fn page_by(&mut self, message: &str, id: impl FnOnce(&'q str) -> Option<String>) -> Page {
        let limit_message =
            format!("must be an integer from {} to {}", LIMIT_RANGE.start(), LIMIT_RANGE.end());
        let limit =
            self.single("limit").and_then(|text| self.read("limit", text, limit_message, parse_limit));
        let after = self.single("after").and_then(|text| self.read("after", text, message, id));
        Page { limit: limit.unwrap_or(DEFAULT_LIMIT), after }
    }

    pub fn search(&mut self) -> Option<String> {
        let text = self.filter("q", "", |text| Some(text.to_owned()))?;
        if text.contains('\0') {
            self.errors.push(wrong("q", "must not contain U+0000"));
        }
        if text.chars().count() > MAX_SEARCH_CHARS {
            self.errors.push(wrong("q", format!("must be at most {MAX_SEARCH_CHARS} characters")));
        }
        Some(text)
    }

    pub fn one_of(&mut self, name: &'static str, allowed: &[&'static str]) -> Option<&'static str> {
        let message = format!("must be one of {}", allowed.join(", "));
        self.filter(name, message, |text| allowed.iter().copied().find(|allowed| *allowed == text))
    }

    pub fn uuid(&mut self, name: &'static str) -> Option<Uuid> {
        self.filter(name, "must be a UUID", uuid)
    }

    /// Returns `query` if no mistake was noted; else 400 `invalid_query` with every wrong parameter.
    pub fn finish(mut self, query: Query) -> Result<Query, Problem> {
        for (name, _) in self.given.iter().filter(|(name, _)| !self.known.contains(&name.as_str())) {
            self.errors.push(wrong(name, "is not a parameter of this list"));
        }
        if self.errors.is_empty() { Ok(query) } else { Err(Problem::invalid_query(&self.errors)) }
    }
}

fn parse_limit(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|limit| LIMIT_RANGE.contains(limit))
}
