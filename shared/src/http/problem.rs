//! Problems that are not recorded under a key: decided before the claim, or by the lack of a database. The one place
//! that maps them to statuses. (Refusals decided under a lock are rendered by `holdfast.record`.)
//!
//! Causes are logged, never answered: no SQL, no secret and no chain of errors leaves in a response.

use serde_json::{Map, Value, json};

use crate::db::connection::{DbError, is_unavailable};
use crate::http::json::BodyError;

/// An RFC 9457 problem: `type`, `title`, `status`, `detail`, the stable code `error`, and members of its own.
#[derive(Debug, Clone)]
pub struct Problem {
    /// HTTP status.
    pub status: u16,
    /// Stable code, also the end of `type`.
    pub error: &'static str,
    /// What this code always means.
    pub title: &'static str,
    /// What to do about it this time.
    pub detail: String,
    /// Further members.
    pub members: Map<String, Value>,
    /// Further headers (lower-case name, value).
    pub headers: Vec<(&'static str, String)>,
}

/// `Retry-After` of "in use", in seconds: a little less than the 15 s after which a dead attempt is surely gone.
const IN_USE_RETRY_SECS: u32 = 5;
/// `Retry-After` of "unavailable", in seconds.
const UNAVAILABLE_RETRY_SECS: u32 = 2;

impl Problem {
    fn new(status: u16, error: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { status, error, title, detail: detail.into(), members: Map::new(), headers: Vec::new() }
    }

    fn with_errors(mut self, errors: &[BodyError]) -> Self {
        self.members.insert("errors".into(), json!(errors));
        self
    }

    /// 401: no credential, a bad one, or a user who is not there.
    pub fn unauthenticated() -> Self {
        let mut problem = Self::new(
            401,
            "unauthenticated",
            "Not authenticated",
            "Send Authorization: Bearer with a valid token or API key.",
        );
        problem.headers.push(("www-authenticate", r#"Bearer realm="holdfast""#.into()));
        problem
    }

    /// 403: the credential lacks a scope.
    pub fn forbidden(scope: &str) -> Self {
        Self::new(403, "forbidden", "Not allowed", format!("This needs the scope {scope}."))
    }

    /// 404 for a path id of the wrong form and for routes that do not exist.
    pub fn not_found() -> Self {
        Self::new(404, "not_found", "Not found", "There is nothing at this address.")
    }

    /// 404 for an order id of the wrong form; the same words as `holdfast.promise` uses for an unknown order.
    pub fn order_not_found() -> Self {
        Self::new(404, "order_not_found", "No such order", "There is no order with this id.")
    }

    /// 405 where the address exists for other methods.
    pub fn method_not_allowed(allow: &str) -> Self {
        let mut problem = Self::new(405, "method_not_allowed", "Method not allowed", format!("Use {allow}."));
        problem.headers.push(("allow", allow.into()));
        problem
    }

    /// 401: a webhook whose signature is missing, wrong or stale. Nothing was parsed or stored.
    pub fn bad_signature() -> Self {
        Self::new(
            401,
            "bad_signature",
            "The signature does not hold",
            "Sign the raw body with a live secret, and with the time of this attempt where one is signed.",
        )
    }

    /// 413: over 1 MiB.
    pub fn body_too_large() -> Self {
        Self::new(
            413,
            "body_too_large",
            "The body is too large",
            "A body may hold at most 1 MiB (1,048,576 bytes).",
        )
    }

    /// 400: the `Idempotency-Key` header is missing or malformed.
    pub fn key_invalid(detail: &'static str) -> Self {
        Self::new(400, "idempotency_key_invalid", "Missing or malformed Idempotency-Key", detail)
    }

    /// 400: the body is not what the route takes.
    pub fn invalid_body(errors: &[BodyError]) -> Self {
        Self::new(
            400,
            "invalid_body",
            "The body is not valid",
            "Mend what errors names and send it again; the key is still unused.",
        )
        .with_errors(errors)
    }

    /// 400: a query parameter is not what the route takes.
    pub fn invalid_query(errors: &[BodyError]) -> Self {
        Self::new(400, "invalid_query", "A query parameter is not valid", "Mend what errors names.")
            .with_errors(errors)
    }

    /// 428: a save must name the version it was made on.
    pub fn version_required() -> Self {
        Self::new(
            428,
            "version_required",
            "A version is needed",
            "Send the version you read as baseVersion, or its ETag as If-Match; the key is still unused.",
        )
    }

    /// 400: `If-Match` and `baseVersion` name different versions.
    pub fn version_mismatch() -> Self {
        Self::new(
            400,
            "version_mismatch",
            "Two different versions",
            "If-Match and baseVersion differ; send one of them. The key is still unused.",
        )
    }

    /// 422: the key belongs to another request.
    pub fn key_reused() -> Self {
        Self::new(
            422,
            "idempotency_key_reused",
            "The Idempotency-Key was used for another request",
            "Send a new key with a new request; repeat a request unchanged under its old key.",
        )
    }

    /// 409: the same request is running right now.
    pub fn key_in_use() -> Self {
        let mut problem = Self::new(
            409,
            "idempotency_key_in_use",
            "This request is still running",
            "Repeat it unchanged after Retry-After seconds to get its answer.",
        );
        problem.headers.push(("retry-after", IN_USE_RETRY_SECS.to_string()));
        problem
    }

    /// 503: the database is busy or away; nothing was changed.
    pub fn unavailable() -> Self {
        let mut problem = Self::new(
            503,
            "unavailable",
            "Too busy just now",
            "Nothing was changed. Repeat the request, with the same key, after Retry-After seconds.",
        );
        problem.headers.push(("retry-after", UNAVAILABLE_RETRY_SECS.to_string()));
        problem
    }

    /// 500: a mistake of ours; nothing was changed.
    pub fn internal() -> Self {
        Self::new(
            500,
            "internal",
            "An unexpected failure",
            "Nothing was changed. Repeat the request with the same key; if it fails again, tell us the x-request-id.",
        )
    }

    /// The document's bytes.
    pub fn body(&self) -> Vec<u8> {
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
        let unavailable = match &error {
            DbError::Timeout => true,
            DbError::Sql(sql) => is_unavailable(sql),
        };
        if unavailable {
            tracing::warn!(%error, "database unavailable");
            Self::unavailable()
        } else {
            tracing::error!(%error, "unexpected failure");
            Self::internal()
        }
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        DbError::from(error).into()
    }
}
