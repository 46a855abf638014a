//! Reading documents: what a read asks for, the parameters of its list, and the one message that answers it.
//!
//! Promises: an answer is the bytes that `migrations/functions/10_documents.sql` rendered, of one instant, of the
//! caller's own tenant, in one round trip. Changes nothing.

use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;

use crate::auth::Caller;
use crate::db::{Db, DbError};
use crate::error::Problem;
use crate::fields::uuid;
use crate::http::Answer;
use crate::idempotency::literal;
use crate::json::BodyError;

/// One document by its id.
pub const READ_ONE: &str = "holdfast.read_one";
/// A page of orders.
pub const LIST_ORDERS: &str = "holdfast.list_orders";
/// A page of SKUs.
pub const LIST_SKUS: &str = "holdfast.list_skus";
/// A page of customers.
pub const LIST_CUSTOMERS: &str = "holdfast.list_customers";

/// Items of a page where `limit` is not given.
const DEFAULT_LIMIT: u16 = 50;
/// What `limit` may be.
const LIMIT_RANGE: std::ops::RangeInclusive<u16> = 1..=200;
/// Characters of `q`: more than any name has, and a bound on what is compared with every row.
const MAX_SEARCH_CHARS: usize = 200;
/// What an order's `status` may be.
const ORDER_STATUSES: [&str; 3] = ["open", "cancelled", "shipped"];

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// One order; carries its version as `ETag`.
    Order(Uuid),
    /// One SKU with its position.
    Sku(Uuid),
    /// One style; carries its version as `ETag`.
    Style(Uuid),
    /// One invoice.
    Invoice(Uuid),
    /// Orders, newest first.
    Orders {
        /// Which part of the list.
        page: Page,
        /// A part of the number, the customer's PO or the customer's name, in any case.
        search: Option<String>,
        /// `open`, `cancelled` or `shipped`.
        status: Option<&'static str>,
        /// Of one customer.
        customer_id: Option<Uuid>,
    },
    /// SKUs by code.
    Skus {
        /// Which part of the list.
        page: Page,
        /// A part of the code, in any case.
        search: Option<String>,
    },
    /// Customers by name.
    Customers {
        /// Which part of the list.
        page: Page,
        /// A part of the name, in any case.
        search: Option<String>,
    },
}

/// A part of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Most items, 1 … 200.
    pub limit: u16,
    /// The last item of the page before.
    pub after: Option<Uuid>,
}

impl Read {
    /// `GET /orders`.
    ///
    /// # Errors
    /// 400 `invalid_query`, every wrong parameter named.
    pub fn orders(query: &[(String, String)]) -> Result<Self, Problem> {
        let mut parameters = Parameters::new(query);
        let (page, search) = (parameters.page(), parameters.search());
        let status = parameters.one_of("status", &ORDER_STATUSES);
        let customer_id =
            parameters.filter("customerId").and_then(|text| parameters.uuid("customerId", text));
        parameters.finish(Self::Orders { page, search, status, customer_id })
    }

    /// `GET /skus`.
    ///
    /// # Errors
    /// 400 `invalid_query`, every wrong parameter named.
    pub fn skus(query: &[(String, String)]) -> Result<Self, Problem> {
        let mut parameters = Parameters::new(query);
        let (page, search) = (parameters.page(), parameters.search());
        parameters.finish(Self::Skus { page, search })
    }

    /// `GET /customers`.
    ///
    /// # Errors
    /// 400 `invalid_query`, every wrong parameter named.
    pub fn customers(query: &[(String, String)]) -> Result<Self, Problem> {
        let mut parameters = Parameters::new(query);
        let (page, search) = (parameters.page(), parameters.search());
        parameters.finish(Self::Customers { page, search })
    }

    /// Answers it: one message, one round trip.
    ///
    /// # Errors
    /// 401 for a user who is not there; 404; 400 `invalid_query` for an `after` that is not there; 503.
    pub async fn answer(&self, db: &Db, caller: &Caller) -> Result<Answer, Problem> {
        let (function, mut argument) = self.statement();
        argument["tenantId"] = json!(caller.tenant_id);
        argument["userId"] = json!(caller.user_id);
        let rows = db.send(format!("select * from {function}({})", literal(&argument))).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        match row.try_get("decision")? {
            "answer" => Ok(Answer {
                status: 200,
                body: row.try_get("body")?,
                content_type: row.try_get("content_type")?,
                etag: row.try_get("etag")?,
                location: None,
                replayed: false,
            }),
            "unknown_user" => Err(Problem::unauthenticated()),
            "not_found" if matches!(self, Self::Order(_)) => Err(Problem::order_not_found()),
            "not_found" => Err(Problem::not_found()),
            "unknown_after" => Err(Problem::invalid_query(&[wrong("after", "is not an item of this list")])),
            other => Err(sqlx::Error::Decode(format!("unknown decision {other}").into()).into()),
        }
    }

    fn statement(&self) -> (&'static str, Value) {
        let one = |kind: &str, id: &Uuid| (READ_ONE, json!({"kind": kind, "id": id}));
        let list = |page: &Page, search: &Option<String>| json!({"limit": page.limit, "after": page.after, "q": search});
        match self {
            Self::Order(id) => one("order", id),
            Self::Sku(id) => one("sku", id),
            Self::Style(id) => one("style", id),
            Self::Invoice(id) => one("invoice", id),
            Self::Orders { page, search, status, customer_id } => {
                let mut argument = list(page, search);
                argument["status"] = json!(status);
                argument["customerId"] = json!(customer_id);
                (LIST_ORDERS, argument)
            }
            Self::Skus { page, search } => (LIST_SKUS, list(page, search)),
            Self::Customers { page, search } => (LIST_CUSTOMERS, list(page, search)),
        }
    }
}

/// Whether the database answers.
///
/// # Errors
/// Where it does not, within 7 s.
pub async fn health(db: &Db) -> Result<(), DbError> {
    db.send("select 1".into()).await.map(|_| ())
}

/// The parameters of one list, read once each; what was not asked for by [`Parameters::finish`] is unknown.
pub(crate) struct Parameters<'q> {
    given: &'q [(String, String)],
    known: Vec<&'static str>,
    errors: Vec<BodyError>,
}

pub(crate) fn wrong(name: &str, message: impl Into<String>) -> BodyError {
    BodyError { path: name.to_owned(), message: message.into() }
}

impl<'q> Parameters<'q> {
    pub(crate) fn new(given: &'q [(String, String)]) -> Self {
        Self { given, known: Vec::new(), errors: Vec::new() }
    }

    pub(crate) fn wrong(&mut self, name: &str, message: impl Into<String>) {
        self.errors.push(wrong(name, message));
    }

    pub(crate) fn one(&mut self, name: &'static str) -> Option<&'q str> {
        self.known.push(name);
        let mut values =
            self.given.iter().filter(|(given, _)| given == name).map(|(_, value)| value.as_str());
        let value = values.next();
        if values.next().is_some() {
            self.wrong(name, "stands here more than once");
            return None;
        }
        value
    }

    /// A filter; a form sends those that were left blank too. (A blank `limit` or `after` is a client that lost its
    /// place, and would begin again without end.)
    pub(crate) fn filter(&mut self, name: &'static str) -> Option<&'q str> {
        self.one(name).filter(|value| !value.is_empty())
    }

    pub(crate) fn page(&mut self) -> Page {
        let limit = self.limit();
        let after = self.one("after").and_then(|text| self.uuid("after", text));
        Page { limit, after }
    }

    pub(crate) fn limit(&mut self) -> u16 {
        let limit = self.one("limit").and_then(|text| {
            let limit = Some(text)
                .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|t| t.parse().ok());
            let limit = limit.filter(|limit| LIMIT_RANGE.contains(limit));
            if limit.is_none() {
                self.wrong(
                    "limit",
                    format!("must be an integer from {} to {}", LIMIT_RANGE.start(), LIMIT_RANGE.end()),
                );
            }
            limit
        });
        limit.unwrap_or(DEFAULT_LIMIT)
    }

    pub(crate) fn search(&mut self) -> Option<String> {
        let text = self.filter("q")?;
        if text.contains('\0') {
            self.wrong("q", "must not contain U+0000");
        }
        if text.chars().count() > MAX_SEARCH_CHARS {
            self.wrong("q", format!("must be at most {MAX_SEARCH_CHARS} characters"));
        }
        Some(text.to_owned())
    }

    pub(crate) fn one_of(&mut self, name: &'static str, allowed: &[&'static str]) -> Option<&'static str> {
        let text = self.filter(name)?;
        let found = allowed.iter().copied().find(|allowed| *allowed == text);
        if found.is_none() {
            self.wrong(name, format!("must be one of {}", allowed.join(", ")));
        }
        found
    }

    pub(crate) fn uuid(&mut self, name: &'static str, text: &str) -> Option<Uuid> {
        let id = uuid(text);
        if id.is_none() {
            self.wrong(name, "must be a UUID");
        }
        id
    }

    pub(crate) fn finish<T>(mut self, read: T) -> Result<T, Problem> {
        for (name, _) in self.given.iter().filter(|(name, _)| !self.known.contains(&name.as_str())) {
            self.errors.push(wrong(name, "is not a parameter of this list"));
        }
        if self.errors.is_empty() { Ok(read) } else { Err(Problem::invalid_query(&self.errors)) }
    }
}
