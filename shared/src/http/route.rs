//! Routing by one table per function: method, path pattern, access, handler.
//!
//! Promises: 404, or 405 with `Allow`, for what is not in the table; one canonical path per request for the fingerprint.

use futures_util::future::BoxFuture;
use uuid::Uuid;

use crate::http::auth::Scope;
use crate::http::event::{Answer, Incoming};
use crate::http::fields::uuid;
use crate::http::problem::Problem;
use crate::runtime::request_log;

/// Answers a request of a route.
pub type Handler<S> = for<'a> fn(&'a S, &'a Matched<'a>) -> BoxFuture<'a, Result<Answer, Problem>>;

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Callers whose credential has this scope.
    Scope(Scope),
    /// As `Scope`, of the caller's own tenant; with `tenant=none` in the query, for what belongs to none, `platform:admin` instead.
    ScopeOrPlatform(Scope),
    /// Senders that sign the body; the handler verifies the signature.
    Signature,
    /// Everyone, without a credential.
    Open,
}

impl Access {
    /// What this request needs of it.
    fn of(self, query: &[(String, String)]) -> Self {
        match self {
            Self::ScopeOrPlatform(_) if asks_for_nobodys(query) => Self::Scope(Scope::PlatformAdmin),
            Self::ScopeOrPlatform(scope) => Self::Scope(scope),
            other => other,
        }
    }
}

/// Whether a query asks for what belongs to no tenant.
pub(crate) fn asks_for_nobodys(query: &[(String, String)]) -> bool {
    query.iter().any(|(name, value)| name == "tenant" && value == "none")
}

/// A row of the table; `S` is the state that handlers get.
pub struct Route<S> {
    /// The HTTP method in upper case.
    pub method: &'static str,
    /// The path; a segment in braces is a parameter, and its name determines its form (see [`Matched::path`]).
    pub pattern: &'static str,
    /// What a caller needs.
    pub access: Access,
    /// Answers the requests.
    pub handler: Handler<S>,
}

impl<S> Route<S> {
    /// For tables of constants.
    pub const fn new(
        method: &'static str,
        pattern: &'static str,
        access: Access,
        handler: Handler<S>,
    ) -> Self {
        Self { method, pattern, access, handler }
    }
}

/// A request and the route that it matched.
#[derive(Debug)]
pub struct Matched<'r> {
    /// The request as received.
    pub incoming: &'r Incoming,
    /// Of the route, with this request's query.
    pub access: Access,
    /// Of the route.
    pub pattern: &'static str,
}

impl Matched<'_> {
    /// The path for the fingerprint: the pattern with each parameter in its canonical form. 404 if a parameter has the
    /// wrong form: `order_not_found` for an order's id, else `not_found`.
    pub fn path(&self) -> Result<String, Problem> {
        let mut path = String::new();
        for (expected, sent) in self.pattern.split('/').skip(1).zip(&self.incoming.segments) {
            path.push('/');
            match parameter_name(expected) {
                None => path.push_str(expected),
                Some("accountId") => path.push_str(sent),
                Some("outboxId") => {
                    path.push_str(&outbox_id(sent).ok_or_else(Problem::not_found)?.to_string())
                }
                Some(name) => path.push_str(&uuid(sent).ok_or_else(|| not_found(name))?.to_string()),
            }
        }
        Ok(path)
    }

    /// A parameter that is a UUID; 404 as [`Matched::path`].
    pub fn id(&self, name: &str) -> Result<Uuid, Problem> {
        uuid(self.text(name)).ok_or_else(|| not_found(name))
    }

    /// The parameter `{outboxId}`; 404 as [`Matched::path`].
    pub fn outbox_id(&self) -> Result<i64, Problem> {
        outbox_id(self.text("outboxId")).ok_or_else(Problem::not_found)
    }

    /// A parameter as sent, decoded; empty if the pattern has no such parameter.
    pub fn text(&self, name: &str) -> &str {
        let mut segments = self.pattern.split('/').skip(1).zip(&self.incoming.segments);
        segments.find(|(expected, _)| parameter_name(expected) == Some(name)).map_or("", |(_, sent)| sent)
    }

    /// Decoded query parameters in order.
    pub fn query(&self) -> &[(String, String)] {
        &self.incoming.query
    }
}

fn parameter_name(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn not_found(parameter: &str) -> Problem {
    if parameter == "orderId" { Problem::order_not_found() } else { Problem::not_found() }
}

/// Parses the id of an outbox row: a bigint in decimal.
pub(crate) fn outbox_id(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // With leading zeros one row would have several paths, hence several fingerprints.
    (digits && (text.len() == 1 || !text.starts_with('0'))).then(|| text.parse().ok()).flatten()
}

/// Calls the handler of the request's route: 404 if no pattern fits; 405 with `Allow` if one does, but for other methods.
pub(crate) async fn dispatch<S>(
    state: &S,
    routes: &[Route<S>],
    incoming: &Incoming,
) -> Result<Answer, Problem> {
    let route = find(routes, incoming)?;
    request_log::route(route.pattern);
    let access = route.access.of(&incoming.query);
    let matched = Matched { incoming, access, pattern: route.pattern };
    (route.handler)(state, &matched).await
}

fn find<'t, S>(routes: &'t [Route<S>], incoming: &Incoming) -> Result<&'t Route<S>, Problem> {
    let mut fitting: Vec<&Route<S>> = routes.iter().filter(|route| fits(route.pattern, incoming)).collect();
    // Fewest parameters first: `/outbox/requeue` is more specific than `/outbox/{outboxId}`.
    fitting.sort_by_key(|route| route.pattern.matches('{').count());
    if let Some(route) = fitting.iter().find(|route| route.method == incoming.method.as_str()) {
        return Ok(route);
    }
    let Some(nearest) = fitting.first().map(|route| route.pattern) else { return Err(Problem::not_found()) };
    let allowed = fitting.iter().filter(|route| route.pattern == nearest).map(|route| route.method);
    Err(Problem::method_not_allowed(&allowed.collect::<Vec<_>>().join(", ")))
}

fn fits(pattern: &str, incoming: &Incoming) -> bool {
    let expected: Vec<&str> = pattern.split('/').skip(1).collect();
    expected.len() == incoming.segments.len()
        && expected.iter().zip(&incoming.segments).all(|(e, sent)| parameter_name(e).is_some() || e == sent)
}
