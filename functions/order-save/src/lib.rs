//! `PATCH /orders/{orderId}`: saves the fields present, guarded by version. `POST /orders`: creates.
//! `POST /orders/{orderId}/cancel`: gives back all that the order holds and ends it. Each is one keyed transaction; the
//! compare-and-swap is `holdfast.save_order`.

use http::Method;
use lambda_http::{Body, Request, Response};
use shared::auth::Scope;
use shared::endpoint::Endpoint;
use shared::error::Problem;
use shared::http::{Answer, Incoming};
use shared::idempotency::once;
use shared::orders::{self, order_id};

/// Serves one event.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    let incoming = Incoming::read(request);
    endpoint.respond(&incoming, route(endpoint, &incoming)).await
}

async fn route(endpoint: &Endpoint, incoming: &Incoming) -> Result<Answer, Problem> {
    match (&incoming.method, &incoming.route()[..]) {
        (&Method::POST, ["orders"]) => create(endpoint, incoming).await,
        (&Method::PATCH, ["orders", id]) => save(endpoint, incoming, id).await,
        (&Method::POST, ["orders", id, "cancel"]) => cancel(endpoint, incoming, id).await,
        (_, ["orders"] | ["orders", _, "cancel"]) => Err(Problem::method_not_allowed("POST")),
        (_, ["orders", _]) => Err(Problem::method_not_allowed("PATCH")),
        _ => Err(Problem::not_found()),
    }
}

async fn create(endpoint: &Endpoint, incoming: &Incoming) -> Result<Answer, Problem> {
    let path = Ok("/orders".into());
    let (call, fields) = endpoint.mutation(incoming, Scope::OrdersWrite, path, orders::read_create).await?;
    once(&endpoint.db, &call, &fields, |connection, call, fields| {
        Box::pin(orders::create(connection, call, fields))
    })
    .await
}

async fn save(endpoint: &Endpoint, incoming: &Incoming, id: &str) -> Result<Answer, Problem> {
    let order = order_id(id);
    let path = order.clone().map(|order| format!("/orders/{order}"));
    let (call, (fields, precondition)) =
        endpoint.versioned_mutation(incoming, Scope::OrdersWrite, path, orders::read_save).await?;
    once(
        &endpoint.db,
        &call,
        &(order?, precondition, fields),
        |connection, call, (order, precondition, fields)| {
            Box::pin(orders::save(connection, call, *order, precondition, fields))
        },
    )
    .await
}

async fn cancel(endpoint: &Endpoint, incoming: &Incoming, id: &str) -> Result<Answer, Problem> {
    let order = order_id(id);
    let path = order.clone().map(|order| format!("/orders/{order}/cancel"));
    let (call, ()) = endpoint.mutation(incoming, Scope::OrdersWrite, path, orders::read_empty).await?;
    once(&endpoint.db, &call, &order?, |connection, call, order| {
        Box::pin(orders::cancel(connection, call, *order))
    })
    .await
}
