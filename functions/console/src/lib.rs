//! What a person operates Holdfast with: the outbox, its destinations, and what needs a decision. Every mutation is
//! one keyed transaction that leaves a line of audit; every read is of the caller's own tenant.

use http::{HeaderValue, Method};
use lambda_http::{Body, Request, Response};
use shared::address::Guard;
use shared::auth::Scope;
use shared::config::ConfigError;
use shared::destinations::{self, destination_id, new_secret};
use shared::endpoint::Endpoint;
use shared::error::Problem;
use shared::exceptions::{self, List, Settlement};
use shared::http::{Answer, Incoming, MAX_BODY_BYTES, respond};
use shared::idempotency::once;
use shared::orders::read_empty;
use shared::outbox_admin::{self, Look, outbox_id};
use uuid::Uuid;

/// A sandbox of this function.
pub struct Console {
    /// Credentials and the connection.
    pub endpoint: Endpoint,
    /// Where destinations may be.
    pub guard: Guard,
}

impl Console {
    /// From the environment, with the connection opened.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub async fn cold_start() -> Result<Self, ConfigError> {
        let guard = Guard::from_env()?;
        Ok(Self { endpoint: Endpoint::cold_start().await?, guard })
    }
}

/// The page: one file, no build step, nothing from elsewhere.
const PAGE: &str = include_str!("console.html");

/// Serves one event.
pub async fn handle(console: &Console, request: Request) -> Response<Body> {
    let incoming = Incoming::read(request);
    if incoming.route()[..] == ["console"] && incoming.method == Method::GET {
        return page(&incoming.request_id);
    }
    console.endpoint.respond(&incoming, console.route(&incoming)).await
}

impl Console {
    async fn route(&self, incoming: &Incoming) -> Result<Answer, Problem> {
        let query = &incoming.query;
        let route = incoming.route();
        let ["admin", rest @ ..] = &route[..] else {
            return Err(match route[..] {
                ["console"] => Problem::method_not_allowed("GET"),
                _ => Problem::not_found(),
            });
        };
        match (&incoming.method, rest) {
            (&Method::GET, ["outbox"]) => self.look(incoming, Look::outbox(query)).await,
            (&Method::GET, ["outbox", id]) => self.look(incoming, event_id(id).map(Look::Event)).await,
            (&Method::GET, ["destinations"]) => self.look(incoming, Look::destinations(query)).await,
            (&Method::GET, ["destinations", id, "secret"]) => {
                self.look(incoming, place(id).map(Look::Secrets)).await
            }
            (&Method::GET, ["health"]) => self.look(incoming, Ok(Look::Health)).await,
            (&Method::GET, ["exceptions"]) => self.list(incoming, List::exceptions(query)).await,
            (&Method::GET, ["shortfalls"]) => self.list(incoming, List::shortfalls(query)).await,
            (&Method::POST, ["outbox", "requeue"]) => self.requeue_all(incoming).await,
            (&Method::POST, ["outbox", id, "requeue"]) => self.requeue(incoming, id).await,
            (&Method::POST, ["outbox", id, "discard"]) => self.discard(incoming, id).await,
            (&Method::POST, ["destinations"]) => self.create_destination(incoming).await,
            (&Method::PATCH, ["destinations", id]) => self.change_destination(incoming, id).await,
            (&Method::POST, ["destinations", id, "rotate"]) => self.rotate(incoming, id).await,
            (&Method::POST, ["destinations", id, "test"]) => self.test_destination(incoming, id).await,
            (&Method::POST, ["exceptions", id, "retry"]) => self.retry_exception(incoming, id).await,
            (&Method::POST, ["shortfalls", id, "settle"]) => self.settle_shortfall(incoming, id).await,
            (_, rest) => Err(allowed(rest).map_or_else(Problem::not_found, Problem::method_not_allowed)),
        }
    }

    async fn look(&self, incoming: &Incoming, look: Result<Look, Problem>) -> Result<Answer, Problem> {
        let look = sized(incoming, look);
        let (caller, look) = self.endpoint.reader(incoming, Scope::OutboxAdmin, look).await?;
        look.answer(&self.endpoint.db, &caller).await
    }

    async fn list(&self, incoming: &Incoming, list: Result<List, Problem>) -> Result<Answer, Problem> {
        let list = sized(incoming, list);
        let (caller, list) = self.endpoint.reader(incoming, Scope::OutboxAdmin, list).await?;
        list.answer(&self.endpoint.db, &caller).await
    }

    async fn requeue(&self, incoming: &Incoming, id: &str) -> Result<Answer, Problem> {
        let id = event_id(id);
        let path = id.clone().map(|id| format!("/admin/outbox/{id}/requeue"));
        let (call, ()) = self.endpoint.mutation(incoming, Scope::OutboxAdmin, path, read_empty).await?;
        once(&self.endpoint.db, &call, &id?, |connection, call, id| {
            Box::pin(outbox_admin::requeue(connection, call, id))
        })
        .await
    }

    async fn requeue_all(&self, incoming: &Incoming) -> Result<Answer, Problem> {
        let path = Ok("/admin/outbox/requeue".into());
        let read = outbox_admin::read_filter;
        let (call, filter) = self.endpoint.mutation(incoming, Scope::OutboxAdmin, path, read).await?;
        once(&self.endpoint.db, &call, &filter, |connection, call, filter| {
            Box::pin(outbox_admin::requeue_all(connection, call, filter))
        })
        .await
    }

    async fn discard(&self, incoming: &Incoming, id: &str) -> Result<Answer, Problem> {
        let id = event_id(id);
        let path = id.clone().map(|id| format!("/admin/outbox/{id}/discard"));
        let read = outbox_admin::read_reason;
        let (call, reason) = self.endpoint.mutation(incoming, Scope::OutboxAdmin, path, read).await?;
        once(&self.endpoint.db, &call, &(id?, reason), |connection, call, discarded| {
            Box::pin(outbox_admin::discard(connection, call, discarded))
        })
        .await
    }

    async fn create_destination(&self, incoming: &Incoming) -> Result<Answer, Problem> {
        let path = Ok("/admin/destinations".into());
        let read = destinations::read_create;
        let (call, mut fields) = self.endpoint.mutation(incoming, Scope::OutboxAdmin, path, read).await?;
        fields.check_address(&self.guard).await.map_err(|errors| Problem::invalid_body(&errors))?;
        once(&self.endpoint.db, &call, &fields, |connection, call, fields| {
            Box::pin(destinations::create(connection, call, fields))
        })
        .await
    }

    async fn change_destination(&self, incoming: &Incoming, id: &str) -> Result<Answer, Problem> {
        let id = place(id);
        let path = id.clone().map(|id| format!("/admin/destinations/{id}"));
        let read = destinations::read_change;
        let (call, mut fields) = self.endpoint.mutation(incoming, Scope::OutboxAdmin, path, read).await?;
        fields.check_address(&self.guard).await.map_err(|errors| Problem::invalid_body(&errors))?;
        once(&self.endpoint.db, &call, &(id?, fields), |connection, call, change| {
            Box::pin(destinations::change(connection, call, change))
        })
        .await
    }

    async fn rotate(&self, incoming: &Incoming, id: &str) -> Result<Answer, Problem> {
        let id = place(id);
        let path = id.clone().map(|id| format!("/admin/destinations/{id}/rotate"));
        let (call, ()) = self.endpoint.mutation(incoming, Scope::OutboxAdmin, path, read_empty).await?;
        once(&self.endpoint.db, &call, &(id?, new_secret()), |connection, call, rotation| {
            Box::pin(destinations::rotate(connection, call, rotation))
        })
        .await
    }

    async fn test_destination(&self, incoming: &Incoming, id: &str) -> Result<Answer, Problem> {
        let id = place(id);
        let path = id.clone().map(|id| format!("/admin/destinations/{id}/test"));
        let (call, ()) = self.endpoint.mutation(incoming, Scope::OutboxAdmin, path, read_empty).await?;
        once(&self.endpoint.db, &call, &id?, |connection, call, id| {
            Box::pin(destinations::test(connection, call, id))
        })
        .await
    }

    async fn retry_exception(&self, incoming: &Incoming, id: &str) -> Result<Answer, Problem> {
        let id = exceptions::id(id);
        let path = id.clone().map(|id| format!("/admin/exceptions/{id}/retry"));
        let (call, ()) = self.endpoint.mutation(incoming, Scope::OutboxAdmin, path, read_empty).await?;
        once(&self.endpoint.db, &call, &id?, |connection, call, id| {
            Box::pin(exceptions::retry(connection, call, id))
        })
        .await
    }

    async fn settle_shortfall(&self, incoming: &Incoming, id: &str) -> Result<Answer, Problem> {
        let id = exceptions::id(id);
        let path = id.clone().map(|id| format!("/admin/shortfalls/{id}/settle"));
        let read = exceptions::read_note;
        let (call, note) = self.endpoint.mutation(incoming, Scope::OutboxAdmin, path, read).await?;
        once(&self.endpoint.db, &call, &Settlement { id: id?, note }, |connection, call, settlement| {
            Box::pin(exceptions::settle(connection, call, settlement))
        })
        .await
    }
}

/// The page and what it may do: run its own script, call its own origin, and nothing else. It holds no data; whoever opens
/// it brings a token.
fn page(request_id: &str) -> Response<Body> {
    let nonce = Uuid::new_v4().simple().to_string();
    let answer = Answer {
        status: 200,
        body: PAGE.replace("{nonce}", &nonce).into_bytes(),
        content_type: "text/html; charset=utf-8".into(),
        etag: None,
        location: None,
        replayed: false,
    };
    let mut response = respond(Ok(answer), request_id);
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    for (name, value) in [
        ("content-security-policy", policy.as_str()),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

fn event_id(segment: &str) -> Result<i64, Problem> {
    outbox_id(segment).ok_or_else(Problem::not_found)
}

fn place(segment: &str) -> Result<Uuid, Problem> {
    destination_id(segment).ok_or_else(Problem::not_found)
}

fn sized<T>(incoming: &Incoming, read: Result<T, Problem>) -> Result<T, Problem> {
    if incoming.body.len() > MAX_BODY_BYTES { Err(Problem::body_too_large()) } else { read }
}

/// The methods of an address below `/admin` that exists.
fn allowed(rest: &[&str]) -> Option<&'static str> {
    match rest {
        ["outbox", "requeue"] => Some("POST"),
        ["destinations"] => Some("GET, POST"),
        ["destinations", _] => Some("PATCH"),
        ["outbox"]
        | ["outbox", _]
        | ["destinations", _, "secret"]
        | ["health" | "exceptions" | "shortfalls"] => Some("GET"),
        ["outbox", _, "requeue" | "discard"]
        | ["destinations", _, "rotate" | "test"]
        | ["exceptions", _, "retry"]
        | ["shortfalls", _, "settle"] => Some("POST"),
        _ => None,
    }
}
