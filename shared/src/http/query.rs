//! Reads: the parameters of a list, and the one message that answers a read.
//!
//! Promises: every wrong parameter is named; an answer is of one instant and of the caller's own tenant. Changes nothing.
//! [`Query::answer`] touches the database; [`Parameters`] touches nothing.

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

/// Items of a page where `limit` is not given.
const DEFAULT_LIMIT: u16 = 50;
/// What `limit` may be.
const LIMIT_RANGE: std::ops::RangeInclusive<u16> = 1..=200;
/// Characters of `q`: more than any name has, and a bound on what is compared with every row.
const MAX_SEARCH_CHARS: usize = 200;

/// What a read asks for.
#[derive(Clone, Debug)]
pub struct Query {
    statement: Statement,
    /// The answer where it is not there.
    missing: fn() -> Problem,
}

impl Query {
    /// A read by a function that takes `{"tenantId","userId","actor", …argument}` and returns `holdfast.answer`.
    pub fn new(function: &'static str, argument: Value) -> Self {
        Self { statement: Statement::new(function, argument), missing: Problem::not_found }
    }

    /// One document by its id.
    pub fn one(kind: &'static str, id: Uuid) -> Self {
        let missing = if kind == "order" { Problem::order_not_found } else { Problem::not_found };
        Self { missing, ..Self::new("holdfast.read_one", json!({"kind": kind, "id": id})) }
    }

    /// A page of a list, by the name of its table: `{"list","limit","after", …filters}`.
    pub fn list(table: &'static str, page: &Page, filters: Value) -> Self {
        let mut query = Self::new("holdfast.list", filters);
        query.statement =
            query.statement.with("list", table).with("limit", page.limit).with("after", &page.after);
        query
    }

    /// Answers it: one message, one round trip.
    ///
    /// # Errors
    /// 401 for a user who is not there; 404; 400 `invalid_query` for an `after` that is not there; 503.
    pub async fn answer(&self, db: &Db, caller: &Caller) -> Result<Answer, Problem> {
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
            "not_found" => Err((self.missing)()),
            "unknown_after" => Err(Problem::invalid_query(&[wrong("after", "is not an item of this list")])),
            other => Err(sqlx::Error::Decode(format!("unknown decision {other}").into()).into()),
        }
    }
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Most items, 1 … 200.
    pub limit: u16,
    /// The last item of the page before: its id as text.
    pub after: Option<String>,
}

/// The parameters of one list, read once each; what was not asked for by [`Parameters::finish`] is unknown.
pub struct Parameters<'q> {
    given: &'q [(String, String)],
    known: Vec<&'static str>,
    errors: Vec<BodyError>,
}

fn wrong(name: &str, message: impl Into<String>) -> BodyError {
    BodyError { path: name.to_owned(), message: message.into() }
}

impl<'q> Parameters<'q> {
    /// Of a request.
    pub fn new(given: &'q [(String, String)]) -> Self {
        Self { given, known: Vec::new(), errors: Vec::new() }
    }

    /// A parameter that stands there once.
    fn one(&mut self, name: &'static str) -> Option<&'q str> {
        self.known.push(name);
        let mut values =
            self.given.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
        let value = values.next();
        if values.next().is_some() {
            self.errors.push(wrong(name, "stands here more than once"));
            return None;
        }
        value
    }

    /// What `read` makes of a parameter; noted as wrong, with `message`, where it makes nothing of it.
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

    /// A filter; a form sends those that were left blank too. (A blank `limit` or `after` is a client that lost its
    /// place, and would begin again without end.)
    pub fn filter<T>(
        &mut self,
        name: &'static str,
        message: impl Into<String>,
        read: impl FnOnce(&'q str) -> Option<T>,
    ) -> Option<T> {
        let text = self.one(name).filter(|value| !value.is_empty())?;
        self.read(name, text, message, read)
    }

    /// `limit` and `after` of a list whose ids are UUIDs.
    pub fn page(&mut self) -> Page {
        self.page_by("must be a UUID", |text| uuid(text).map(|id| id.to_string()))
    }

    /// `limit` and `after` of a list with other ids.
    pub fn page_by(&mut self, message: &str, id: impl FnOnce(&'q str) -> Option<String>) -> Page {
        let message_of_limit =
            format!("must be an integer from {} to {}", LIMIT_RANGE.start(), LIMIT_RANGE.end());
        let limit = self.one("limit").and_then(|text| self.read("limit", text, message_of_limit, limit));
        let after = self.one("after").and_then(|text| self.read("after", text, message, id));
        Page { limit: limit.unwrap_or(DEFAULT_LIMIT), after }
    }

    /// The search text `q`.
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

    /// One of some words.
    pub fn one_of(&mut self, name: &'static str, allowed: &[&'static str]) -> Option<&'static str> {
        let message = format!("must be one of {}", allowed.join(", "));
        self.filter(name, message, |text| allowed.iter().copied().find(|allowed| *allowed == text))
    }

    /// A filter that is a UUID.
    pub fn uuid(&mut self, name: &'static str) -> Option<Uuid> {
        self.filter(name, "must be a UUID", uuid)
    }

    /// The query that was read.
    ///
    /// # Errors
    /// 400 `invalid_query`, every wrong parameter named.
    pub fn finish(mut self, query: Query) -> Result<Query, Problem> {
        for (name, _) in self.given.iter().filter(|(name, _)| !self.known.contains(&name.as_str())) {
            self.errors.push(wrong(name, "is not a parameter of this list"));
        }
        if self.errors.is_empty() { Ok(query) } else { Err(Problem::invalid_query(&self.errors)) }
    }
}

fn limit(text: &str) -> Option<u16> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten().filter(|limit| LIMIT_RANGE.contains(limit))
}
