//! `PATCH /styles/{styleId}`: saves a style's prices with optimistic concurrency, as order-save does.

use lambda_http::{Body, Request, Response};
use shared::domain::styles;
use shared::http::auth::Scope;
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::idempotency::endpoint::Endpoint;
use shared::idempotency::once::once;

/// Methods, paths, scopes and handlers.
pub const ROUTES: &[Route<Endpoint>] =
    &[Route::new("PATCH", "/styles/{styleId}", Access::Scope(Scope::OrdersWrite), |endpoint, request| {
        Box::pin(save(endpoint, request))
    })];

/// Serves one request.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    endpoint.serve(endpoint, ROUTES, request).await
}

async fn save(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, fields) = endpoint.versioned_mutation(request, styles::read_save).await?;
    once(&endpoint.db, &call, styles::save(request.id("styleId")?, &fields)).await
}
