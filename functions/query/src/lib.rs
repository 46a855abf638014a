//! The reads: `GET` of orders, SKUs, styles, customers, invoices and the system's health. Each is one statement, which renders
//! the document.
//!
//! Never 304: an allocation changes an order's body but not its version.

use lambda_http::{Body, Request, Response};
use shared::domain::reads;
use shared::http::auth::Scope;
use shared::http::event::Answer;
use shared::http::problem::Problem;
use shared::http::query::Query;
use shared::http::route::{Access, Route};
use shared::idempotency::endpoint::Endpoint;

const READS: Access = Access::Scope(Scope::OrdersRead);

/// Methods, paths, scopes and handlers.
pub const ROUTES: &[Route<Endpoint>] = &[
    Route::new("GET", "/health", Access::Open, |endpoint, _| Box::pin(health(endpoint))),
    Route::new("GET", "/orders", READS, |e, r| Box::pin(e.read(r, |r| reads::orders(r.query())))),
    Route::new("GET", "/orders/{orderId}", READS, |e, r| {
        Box::pin(e.read(r, |r| Ok(Query::one("order", r.id("orderId")?))))
    }),
    Route::new("GET", "/skus", READS, |e, r| Box::pin(e.read(r, |r| reads::skus(r.query())))),
    Route::new("GET", "/skus/{skuId}", READS, |e, r| {
        Box::pin(e.read(r, |r| Ok(Query::one("sku", r.id("skuId")?))))
    }),
    Route::new("GET", "/styles/{styleId}", READS, |e, r| {
        Box::pin(e.read(r, |r| Ok(Query::one("style", r.id("styleId")?))))
    }),
    Route::new("GET", "/customers", READS, |e, r| Box::pin(e.read(r, |r| reads::customers(r.query())))),
    Route::new("GET", "/customers/{customerId}", READS, |e, r| {
        Box::pin(e.read(r, |r| Ok(Query::one("customer", r.id("customerId")?))))
    }),
    Route::new("GET", "/orders/{orderId}/history", READS, |e, r| {
        Box::pin(e.read(r, |r| reads::order_history(r.id("orderId")?, r.query())))
    }),
    Route::new("GET", "/invoices", READS, |e, r| Box::pin(e.read(r, |r| reads::invoices(r.query())))),
    Route::new("GET", "/invoices/{invoiceId}", READS, |e, r| {
        Box::pin(e.read(r, |r| Ok(Query::one("invoice", r.id("invoiceId")?))))
    }),
];

/// Serves one request.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    endpoint.serve(endpoint, ROUTES, request).await
}

async fn health(endpoint: &Endpoint) -> Result<Answer, Problem> {
    reads::health(&endpoint.db).await?;
    Ok(Answer::new(200, "application/json", r#"{"ok":true}"#))
}
