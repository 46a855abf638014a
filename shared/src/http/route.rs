//! One table of routes per function: method, pattern, who may call it, handler. The table gives dispatch, 405 with `Allow`,
//! and the path that a key's fingerprint covers. Touches nothing.

use futures_util::future::BoxFuture;
use uuid::Uuid;

use crate::http::auth::Scope;
use crate::http::event::{Answer, Incoming};
use crate::http::fields::uuid;
use crate::http::problem::Problem;

/// Answers a request of one route.
pub type Handler<S> = for<'a> fn(&'a S, &'a Matched<'a>) -> BoxFuture<'a, Result<Answer, Problem>>;

/// Who may call a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A caller whose credential holds this scope.
    Scope(Scope),
    /// A sender whose signature holds.
    Signature,
    /// Anybody.
    Open,
}

/// One route of a function whose sandbox's state is `S`.
pub struct Route<S> {
    /// The method, in upper case.
    pub method: &'static str,
    /// The path; a segment in braces is a parameter, whose name says what it holds (see [`Matched::path`]).
    pub pattern: &'static str,
    /// Who may call it.
    pub access: Access,
    /// Answers it.
    pub handler: Handler<S>,
}

impl<S> Route<S> {
    /// A route of the table.
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
    /// The request.
    pub incoming: &'r Incoming,
    /// Who may call this route.
    pub access: Access,
    /// The route's pattern.
    pub pattern: &'static str,
}

impl Matched<'_> {
    /// The path as it is fingerprinted: the pattern with each parameter in its one canonical form.
    ///
    /// # Errors
    /// 404 where a parameter has the wrong form: `order_not_found` for an order's id, else `not_found`.
    pub fn path(&self) -> Result<String, Problem> {
        let mut path = String::new();
        for (expected, sent) in self.pattern.split('/').skip(1).zip(&self.incoming.segments) {
            path.push('/');
            match parameter(expected) {
                None => path.push_str(expected),
                Some("accountId") => path.push_str(sent),
                Some("outboxId") => {
                    path.push_str(&outbox_id(sent).ok_or_else(Problem::not_found)?.to_string())
                }
                Some(name) => path.push_str(&uuid(sent).ok_or_else(|| missing(name))?.to_string()),
            }
        }
        Ok(path)
    }

    /// A parameter that is a UUID.
    ///
    /// # Errors
    /// As [`Matched::path`].
    pub fn id(&self, name: &str) -> Result<Uuid, Problem> {
        uuid(self.text(name)).ok_or_else(|| missing(name))
    }

    /// The parameter `{outboxId}`: a bigint in decimal.
    ///
    /// # Errors
    /// As [`Matched::path`].
    pub fn outbox_id(&self) -> Result<i64, Problem> {
        outbox_id(self.text("outboxId")).ok_or_else(Problem::not_found)
    }

    /// A parameter as it was sent, decoded; empty where the pattern has none of this name.
    pub fn text(&self, name: &str) -> &str {
        let mut segments = self.pattern.split('/').skip(1).zip(&self.incoming.segments);
        segments.find(|(expected, _)| parameter(expected) == Some(name)).map_or("", |(_, sent)| sent)
    }

    /// The query's parameters.
    pub fn query(&self) -> &[(String, String)] {
        &self.incoming.query
    }
}

/// The name of a parameter; none for a literal segment.
fn parameter(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn missing(parameter: &str) -> Problem {
    if parameter == "orderId" { Problem::order_not_found() } else { Problem::not_found() }
}

/// An event's id: a bigint in decimal.
pub fn outbox_id(text: &str) -> Option<i64> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    // Leading zeros would be a second form of one path.
    (digits && (text.len() == 1 || !text.starts_with('0'))).then(|| text.parse().ok()).flatten()
}

/// Answers a request by the handler of its route.
///
/// # Errors
/// 404 where no pattern fits; 405 with `Allow` where one does, for other methods; what the handler refuses.
pub async fn dispatch<S>(state: &S, routes: &[Route<S>], incoming: &Incoming) -> Result<Answer, Problem> {
    let route = find(routes, incoming)?;
    let matched = Matched { incoming, access: route.access, pattern: route.pattern };
    (route.handler)(state, &matched).await
}

fn find<'t, S>(routes: &'t [Route<S>], incoming: &Incoming) -> Result<&'t Route<S>, Problem> {
    let mut fitting: Vec<&Route<S>> = routes.iter().filter(|route| fits(route.pattern, incoming)).collect();
    // `/outbox/requeue` is more specific than `/outbox/{outboxId}`.
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
        && expected.iter().zip(&incoming.segments).all(|(e, sent)| parameter(e).is_some() || e == sent)
}
