//! `PATCH /styles/{styleId}`: saves a style's prices, guarded by version, by the protocol of order saves.

use http::Method;
use lambda_http::{Body, Request, Response};
use shared::auth::Scope;
use shared::endpoint::Endpoint;
use shared::error::Problem;
use shared::fields::uuid;
use shared::http::{Answer, Incoming};
use shared::idempotency::once;
use shared::styles;

/// Serves one event.
pub async fn handle(endpoint: &Endpoint, request: Request) -> Response<Body> {
    let incoming = Incoming::read(request);
    endpoint.respond(&incoming, save(endpoint, &incoming)).await
}

async fn save(endpoint: &Endpoint, incoming: &Incoming) -> Result<Answer, Problem> {
    let ["styles", id] = incoming.route()[..] else { return Err(Problem::not_found()) };
    if incoming.method != Method::PATCH {
        return Err(Problem::method_not_allowed("PATCH"));
    }
    let style = uuid(id).ok_or_else(Problem::not_found);
    let path = style.clone().map(|style| format!("/styles/{style}"));
    let (call, (fields, precondition)) =
        endpoint.versioned_mutation(incoming, Scope::OrdersWrite, path, styles::read_save).await?;
    once(
        &endpoint.db,
        &call,
        &(style?, precondition, fields),
        |connection, call, (style, precondition, fields)| {
            Box::pin(styles::save(connection, call, *style, precondition, fields))
        },
    )
    .await
}
