//! `POST /orders/{orderId}/allocate`: promises stock to an order. Request → strict lines → one message to the
//! database, in which claim, checks, moves, ledger, events and the recorded answer commit together.

use lambda_http::{Body, Request, Response};
use shared::auth::Scope;
use shared::endpoint::Endpoint;
use shared::error::Problem;
use shared::http::{Answer, Incoming};
use shared::idempotency::once_fused;
use shared::orders::order_id;
use shared::stock;

/// Serves one event.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    let incoming = Incoming::read(request);
    endpoint.respond(&incoming, allocate(endpoint, &incoming)).await
}

async fn allocate(endpoint: &Endpoint, incoming: &Incoming) -> Result<Answer, Problem> {
    let ["orders", id, "allocate"] = incoming.route()[..] else {
        return Err(Problem::not_found());
    };
    let order = order_id(id);
    let path = order.clone().map(|order| format!("/orders/{order}/allocate"));
    let (call, lines) = endpoint.mutation(incoming, Scope::OrdersWrite, path, stock::read_lines).await?;
    once_fused(&endpoint.db, stock::ALLOCATE, &call, stock::arguments(order?, &lines)).await
}
