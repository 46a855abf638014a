//! `POST /orders/{orderId}/allocate`: promises stock to an order in one statement, which claims the key, checks, moves stock,
//! writes ledger and events, and records the answer.

use lambda_http::{Body, Request, Response};
use shared::domain::stock;
use shared::http::auth::Scope;
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::idempotency::endpoint::Endpoint;
use shared::idempotency::once::once_fused;

/// Methods, paths, scopes and handlers.
pub const ROUTES: &[Route<Endpoint>] = &[Route::new(
    "POST",
    "/orders/{orderId}/allocate",
    Access::Scope(Scope::OrdersWrite),
    |endpoint, request| Box::pin(allocate(endpoint, request)),
)];

/// Serves one request.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    endpoint.serve(endpoint, ROUTES, request).await
}

async fn allocate(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, allocation) = endpoint.matched_mutation(request, stock::read_allocation).await?;
    once_fused(&endpoint.db, &call, stock::allocate(request.id("orderId")?, &allocation)).await
}
