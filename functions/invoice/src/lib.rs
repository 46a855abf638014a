//! `POST /orders/{orderId}/invoices`: a pro-forma invoice for units that are allocated or shipped and not yet invoiced;
//! `POST /invoices/{invoiceId}/void` takes one back; `POST /invoices/{invoiceId}/payments` books a payment that did not come
//! through Stripe.

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
pub const ROUTES: &[Route<Endpoint>] = &[
    Route::new(
        "POST",
        "/orders/{orderId}/invoices",
        Access::Scope(Scope::OrdersWrite),
        |endpoint, request| Box::pin(create(endpoint, request)),
    ),
    Route::new(
        "POST",
        "/invoices/{invoiceId}/void",
        Access::Scope(Scope::CreditWrite),
        |endpoint, request| Box::pin(void(endpoint, request)),
    ),
    Route::new(
        "POST",
        "/invoices/{invoiceId}/payments",
        Access::Scope(Scope::CreditWrite),
        |endpoint, request| Box::pin(pay(endpoint, request)),
    ),
];

/// Serves one request.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    endpoint.serve(endpoint, ROUTES, request).await
}

async fn create(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, ()) = endpoint.matched_mutation(request, read_empty).await?;
    once(&endpoint.db, &call, invoices::create(request.id("orderId")?)).await
}

async fn void(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, reason) = endpoint.mutation(request, invoices::read_void).await?;
    once(&endpoint.db, &call, invoices::void(request.id("invoiceId")?, &reason)).await
}

async fn pay(endpoint: &Endpoint, request: &Matched<'_>) -> Result<Answer, Problem> {
    let (call, payment) = endpoint.mutation(request, invoices::read_payment).await?;
    once(&endpoint.db, &call, invoices::pay(request.id("invoiceId")?, &payment)).await
}
