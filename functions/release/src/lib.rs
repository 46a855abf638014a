//! `POST /orders/{orderId}/release`: gives promised stock back, by the multi-statement variant of what allocate does in one
//! statement: claim; the work in the open transaction; record and commit.

use lambda_http::{Body, Request, Response};
use shared::domain::stock;
use shared::http::auth::Scope;
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::idempotency::endpoint::Endpoint;
use shared::idempotency::once::once;

/// Methods, paths, scopes and handlers.
pub const ROUTES: &[Route<Endpoint>] = &[Route::new(
    "POST",
    "/orders/{orderId}/release",
    Access::Scope(Scope::OrdersWrite),
    |endpoint, request| Box::pin(release(endpoint, request)),
)];

/// Serves one request.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    endpoint.serve(endpoint, ROUTES, request).await
}

async fn release(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, lines) = endpoint.matched_mutation(request, stock::read_lines).await?;
    once(&endpoint.db, &call, stock::release(request.id("orderId")?, &lines)).await
}
