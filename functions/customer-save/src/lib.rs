//! `PATCH /customers/{customerId}`: saves credit limit, hold and name, guarded by version, with the protocol of order saves.

use lambda_http::{Body, Request, Response};
use shared::domain::customers;
use shared::http::auth::Scope;
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::idempotency::endpoint::Endpoint;
use shared::idempotency::once::once;

/// Its routes.
pub const ROUTES: &[Route<Endpoint>] = &[Route::new(
    "PATCH",
    "/customers/{customerId}",
    Access::Scope(Scope::CreditWrite),
    |endpoint, request| Box::pin(save(endpoint, request)),
)];

/// Serves one event.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    endpoint.serve(endpoint, ROUTES, request).await
}

async fn save(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, fields) = endpoint.versioned_mutation(request, customers::read_save).await?;
    once(&endpoint.db, &call, customers::save(request.id("customerId")?, &fields)).await
}
