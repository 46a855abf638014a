//! `POST /orders/{orderId}/release`: gives promised stock back. The wrapped spelling of the same mechanism that
//! allocate uses fused: claim; the work in the open transaction; record and commit.

use lambda_http::{Body, Request, Response};
use shared::auth::Scope;
use shared::endpoint::Endpoint;
use shared::error::Problem;
use shared::http::{Answer, Incoming};
use shared::idempotency::once;
use shared::orders::order_id;
use shared::stock;

/// Serves one event.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    let incoming = Incoming::read(request);
    endpoint.respond(&incoming, release(endpoint, &incoming)).await
}

async fn release(endpoint: &Endpoint, incoming: &Incoming) -> Result<Answer, Problem> {
    let ["orders", id, "release"] = incoming.route()[..] else {
        return Err(Problem::not_found());
    };
    let order = order_id(id);
    let path = order.clone().map(|order| format!("/orders/{order}/release"));
    let (call, lines) = endpoint.mutation(incoming, Scope::OrdersWrite, path, stock::read_lines).await?;
    once(&endpoint.db, &call, &(order?, lines), |connection, call, (order, lines)| {
        Box::pin(stock::give_back(connection, call, *order, lines))
    })
    .await
}
