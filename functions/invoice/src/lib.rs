//! `POST /orders/{orderId}/invoices`: a pro-forma invoice for units that are allocated or shipped and not yet invoiced.

use lambda_http::{Body, Request, Response};
use shared::domain::invoices;
use shared::http::auth::Scope;
use shared::http::event::Answer;
use shared::http::fields::read_empty;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::idempotency::endpoint::Endpoint;
use shared::idempotency::once::once;

/// Methods, paths, scopes and handlers.
pub const ROUTES: &[Route<Endpoint>] = &[Route::new(
    "POST",
    "/orders/{orderId}/invoices",
    Access::Scope(Scope::OrdersWrite),
    |endpoint, request| Box::pin(create(endpoint, request)),
)];

/// Serves one request.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    endpoint.serve(endpoint, ROUTES, request).await
}

async fn create(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, ()) = endpoint.matched_mutation(request, read_empty).await?;
    once(&endpoint.db, &call, invoices::create(request.id("orderId")?)).await
}
