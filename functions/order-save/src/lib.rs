//! `POST /orders` creates an order; `PATCH /orders/{orderId}` saves the fields sent, with optimistic concurrency (the
//! compare-and-swap is `holdfast.save_order`); `POST /orders/{orderId}/cancel` releases all its stock and ends it. Each is one
//! keyed transaction.

use lambda_http::{Body, Request, Response};
use shared::domain::orders;
use shared::http::auth::Scope;
use shared::http::event::Answer;
use shared::http::fields::read_empty;
use shared::http::problem::Problem;
use shared::http::route::{Access, Matched, Route};
use shared::idempotency::endpoint::Endpoint;
use shared::idempotency::once::once;

const WRITES: Access = Access::Scope(Scope::OrdersWrite);

/// Methods, paths, scopes and handlers.
pub const ROUTES: &[Route<Endpoint>] = &[
    Route::new("POST", "/orders", WRITES, |endpoint, request| Box::pin(create(endpoint, request))),
    Route::new("PATCH", "/orders/{orderId}", WRITES, |endpoint, request| Box::pin(save(endpoint, request))),
    Route::new("POST", "/orders/{orderId}/close", WRITES, |endpoint, request| {
        Box::pin(close(endpoint, request))
    }),
    Route::new("POST", "/orders/{orderId}/cancel", WRITES, |endpoint, request| {
        Box::pin(cancel(endpoint, request))
    }),
];

/// Serves one request.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    endpoint.serve(endpoint, ROUTES, request).await
}

async fn create(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, fields) = endpoint.mutation(request, orders::read_create).await?;
    once(&endpoint.db, &call, orders::create(&fields)).await
}

async fn save(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, fields) = endpoint.versioned_mutation(request, orders::read_save).await?;
    once(&endpoint.db, &call, orders::save(request.id("orderId")?, &fields)).await
}

async fn close(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, ()) = endpoint.matched_mutation(request, read_empty).await?;
    once(&endpoint.db, &call, orders::close(request.id("orderId")?)).await
}

async fn cancel(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, ()) = endpoint.matched_mutation(request, read_empty).await?;
    once(&endpoint.db, &call, orders::cancel(request.id("orderId")?)).await
}
