//! Problems that are not recorded under an idempotency key: found before the claim, or caused by the database. Refusals
//! decided under a lock are rendered by `holdfast.record_key`.
//!
//! Promises: causes are logged and never answered; no SQL, secret or chain of errors is in a response.

use serde_json::{Map, Value, json};

use crate::db::error::{DbError, is_unavailable};
use crate::http::json::BodyError;
use crate::runtime::sealed::NotOpened;

/// An RFC 9457 problem document.
#[derive(Debug, Clone)]
pub struct Problem {
    /// HTTP status code.
    pub status: u16,
    /// Stable error code, also the last part of `type`.
    pub error: &'static str,
    title: &'static str,
    detail: String,
    members: Map<String, Value>,
    pub(crate) headers: Vec<(&'static str, String)>,
}

/// `Retry-After` of "in use". The transaction of a dead attempt ends within 15 s, so about three retries are enough.
const IN_USE_RETRY_SECS: u32 = 5;
const UNAVAILABLE_RETRY_SECS: u32 = 2;

impl Problem {
    fn new(status: u16, error: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, error, title, detail: detail.into(), members: Map::new(), headers: Vec::new() }
    }

    fn with_errors(mut self, errors: &[BodyError]) -> Self {
        self.members.insert("errors".into(), json!(errors));
        self
    }

    /// Also for an unknown user.
    pub(crate) fn unauthenticated() -> Self {
        let mut problem = Self::new(
            401,
            "unauthenticated",
            "Not authenticated",
            "Send Authorization: Bearer with a valid token or API key.",
        );
        problem.headers.push(("www-authenticate", r#"Bearer realm="holdfast""#.into()));
        problem
    }

    /// 401 of a token that is good but for its `exp` or `nbf`.
    pub(crate) fn outside_its_time(detail: String) -> Self {
        Self { detail, ..Self::unauthenticated() }
    }

    pub(crate) fn forbidden(scope: &str) -> Self {
        Self::new(403, "forbidden", "Not allowed", format!("This needs the scope {scope}."))
    }

    /// 404: no such route, or an id in the path has the wrong form.
    pub fn not_found() -> Self {
        Self::new(404, "not_found", "Not found", "There is nothing at this address.")
    }

    /// Worded as `holdfast.promise` words an unknown order.
    pub(crate) fn order_not_found() -> Self {
        Self::new(404, "order_not_found", "No such order", "There is no order with this id.")
    }

    pub(crate) fn method_not_allowed(allow: &str) -> Self {
        let mut problem = Self::new(405, "method_not_allowed", "Method not allowed", format!("Use {allow}."));
        problem.headers.push(("allow", allow.into()));
        problem
    }

    /// 401: a webhook's signature is missing, wrong or too old. Nothing was parsed or stored.
    pub fn bad_signature() -> Self {
        Self::new(
            401,
            "bad_signature",
            "The signature is not valid",
            "Sign the raw body with a live secret, and with the time of this attempt where one is signed.",
        )
    }

    pub(crate) fn body_too_large() -> Self {
        Self::new(
            413,
            "body_too_large",
            "The body is too large",
            "A body may hold at most 1 MiB (1,048,576 bytes).",
        )
    }

    pub(crate) fn key_invalid(detail: &'static str) -> Self {
        Self::new(400, "idempotency_key_invalid", "Missing or malformed Idempotency-Key", detail)
    }

    /// 400: the body is not valid JSON or not what the route expects.
    pub fn invalid_body(errors: &[BodyError]) -> Self {
        Self::new(
            400,
            "invalid_body",
            "The body is not valid",
            "Correct what errors lists and send it again; the key is still unused.",
        )
        .with_errors(errors)
    }

    pub(crate) fn invalid_query(errors: &[BodyError]) -> Self {
        Self::new(400, "invalid_query", "A query parameter is not valid", "Correct what errors lists.")
            .with_errors(errors)
    }

    pub(crate) fn version_required() -> Self {
        Self::new(
            428,
            "version_required",
            "A version is needed",
            "Send the version you read as baseVersion, or its ETag as If-Match; the key is still unused.",
        )
    }

    pub(crate) fn version_mismatch() -> Self {
        Self::new(
            400,
            "version_mismatch",
            "Two different versions",
            "If-Match and baseVersion differ; send one of them. The key is still unused.",
        )
    }

    /// `If-Match` where there is nothing that has a version: it matches nothing.
    pub(crate) fn nothing_to_match() -> Self {
        let mut problem = Self::new(
            412,
            "version_conflict",
            "Nothing here has a version",
            "Send it without If-Match; the key is still unused.",
        );
        for member in ["yourBaseVersion", "current"] {
            problem.members.insert(member.into(), Value::Null);
        }
        problem
    }

    pub(crate) fn key_reused() -> Self {
        Self::new(
            422,
            "idempotency_key_reused",
            "The Idempotency-Key was used for another request",
            "Send a new key with a new request; repeat a request unchanged under its old key.",
        )
    }

    pub(crate) fn key_in_use() -> Self {
        let mut problem = Self::new(
            409,
            "idempotency_key_in_use",
            "This request is still running",
            "Repeat it unchanged after Retry-After seconds to get its answer.",
        );
        problem.headers.push(("retry-after", IN_USE_RETRY_SECS.to_string()));
        problem
    }

    pub(crate) fn unavailable() -> Self {
        let mut problem = Self::new(
            503,
            "unavailable",
            "Too busy just now",
            "Nothing was changed. Repeat the request, with the same key, after Retry-After seconds.",
        );
        problem.headers.push(("retry-after", UNAVAILABLE_RETRY_SECS.to_string()));
        problem
    }

    /// The request was sent to the database and its answer is not known.
    pub(crate) fn outcome_unknown() -> Self {
        let mut problem = Self::new(
            503,
            "outcome_unknown",
            "It is not known whether this was done",
            "Repeat the request, with the same key, after Retry-After seconds: it happens at most once.",
        );
        problem.headers.push(("retry-after", UNAVAILABLE_RETRY_SECS.to_string()));
        problem
    }

    pub(crate) fn internal() -> Self {
        Self::new(
            500,
            "internal",
            "An unexpected failure",
            "Nothing was changed. Repeat the request with the same key; if it fails again, report the x-request-id.",
        )
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let mut document = json!({
            "type": format!("urn:holdfast:problem:{}", self.error),
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
            "error": self.error,
        });
        if let Value::Object(members) = &mut document {
            members.extend(self.members.clone());
        }
        document.to_string().into_bytes()
    }
}

impl From<DbError> for Problem {
    fn from(error: DbError) -> Self {
        let sqlstate = error.sqlstate();
        match &error {
            DbError::OutcomeUnknown(_) | DbError::KeyHeld => {
                tracing::warn!(%error, sqlstate, "outcome unknown");
                Self::outcome_unknown()
            }
            DbError::Timeout | DbError::NoLogin(_) => {
                tracing::warn!(%error, "database unavailable");
                Self::unavailable()
            }
            DbError::Sql(sql) if is_unavailable(sql) => {
                tracing::warn!(%error, sqlstate, "database unavailable");
                Self::unavailable()
            }
            DbError::Sql(_) => {
                tracing::error!(%error, sqlstate, "unexpected failure");
                Self::internal()
            }
        }
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        DbError::from(error).into()
    }
}

impl From<NotOpened> for Problem {
    fn from(error: NotOpened) -> Self {
        tracing::error!(%error, "unexpected failure");
        Self::internal()
    }
}
