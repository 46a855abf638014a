//! `POST /orders/{orderId}/invoices`: a pro-forma invoice for what is allocated and not yet invoiced.

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
    endpoint.respond(&incoming, invoice(endpoint, &incoming)).await
}

async fn invoice(endpoint: &Endpoint, incoming: &Incoming) -> Result<Answer, Problem> {
    let ["orders", id, "invoices"] = incoming.route()[..] else { return Err(Problem::not_found()) };
    if incoming.method != Method::POST {
        return Err(Problem::method_not_allowed("POST"));
    }
    let order = order_id(id);
    let path = order.clone().map(|order| format!("/orders/{order}/invoices"));
    let (call, ()) = endpoint.mutation(incoming, Scope::OrdersWrite, path, orders::read_empty).await?;
    once(&endpoint.db, &call, &order?, |connection, call, order| {
        Box::pin(orders::invoice(connection, call, *order))
    })
    .await
}
