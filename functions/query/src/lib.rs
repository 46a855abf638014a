//! The reads: `GET` of orders, SKUs, styles, customers and invoices, and of the system's health. Route → what to read →
//! one message to the database, in which the document is rendered.
//!
//! Never 304: allocation changes an order's body without changing its version.

use http::Method;
use lambda_http::{Body, Request, Response};
use shared::auth::Scope;
use shared::endpoint::Endpoint;
use shared::error::Problem;
use shared::fields::uuid;
use shared::http::{Answer, Incoming, MAX_BODY_BYTES};
use shared::orders::order_id;
use shared::reads::{Read, health};
use uuid::Uuid;

/// Serves one event.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    let incoming = Incoming::read(request);
    endpoint.respond(&incoming, query(endpoint, &incoming)).await
}

async fn query(endpoint: &Endpoint, incoming: &Incoming) -> Result<Answer, Problem> {
    let parameters = &incoming.query;
    let read = match incoming.route()[..] {
        ["health"] => Ok(None),
        ["orders"] => Read::orders(parameters).map(Some),
        ["orders", id] => order_id(id).map(Read::Order).map(Some),
        ["skus"] => Read::skus(parameters).map(Some),
        ["skus", id] => path_id(id).map(Read::Sku).map(Some),
        ["styles", id] => path_id(id).map(Read::Style).map(Some),
        ["customers"] => Read::customers(parameters).map(Some),
        ["invoices", id] => path_id(id).map(Read::Invoice).map(Some),
        _ => return Err(Problem::not_found()),
    };
    if incoming.method != Method::GET {
        return Err(Problem::method_not_allowed("GET"));
    }
    let Some(read) = read.transpose() else {
        return alive(endpoint).await;
    };
    let read = if incoming.body.len() > MAX_BODY_BYTES { Err(Problem::body_too_large()) } else { read };
    let (caller, read) = endpoint.reader(incoming, Scope::OrdersRead, read).await?;
    read.answer(&endpoint.db, &caller).await
}

fn path_id(segment: &str) -> Result<Uuid, Problem> {
    uuid(segment).ok_or_else(Problem::not_found)
}

async fn alive(endpoint: &Endpoint) -> Result<Answer, Problem> {
    health(&endpoint.db).await?;
    Ok(Answer {
        status: 200,
        body: br#"{"ok":true}"#.to_vec(),
        content_type: "application/json".into(),
        etag: None,
        location: None,
        replayed: false,
    })
}
