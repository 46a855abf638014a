//! The part of Shopify's Admin GraphQL API that the relay uses, for a shop that has every SKU. Refuses what Shopify would
//! refuse.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Partner, Received, joined};

/// The shop's primary location.
const LOCATION: &str = "gid://shopify/Location/1";

/// The URL of a destination of kind `shopify_inventory`.
pub fn url(partner_url: &str) -> String {
    format!("{partner_url}/shopify/admin/api/2026-04/graphql.json")
}

/// Receives a look-up or a push; its idempotency key names the outbox row, and that the destination.
pub(super) async fn take_push(
    State(partner): State<Arc<Partner>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let (destination_id, secrets) = partner.destination_of(value("idempotency-key")).await;
    let token = value("x-shopify-access-token").unwrap_or_default();
    let body = String::from_utf8_lossy(&body).into_owned();
    let request: Value = serde_json::from_str(&body).unwrap_or_default();
    // A question about a return is no outbox row's, so its key names no destination.
    let about_return = query(&request).contains("reverseFulfillmentOrder");
    let signature_valid =
        secrets.iter().any(|secret| secret == token) || about_return && partner.is_shop_token(token).await;
    let received = Received { destination_id, headers: joined(&headers), body, signature_valid };
    let kind = if is_push(&request) { "push" } else { "look-up" };
    let status = partner.take(kind, received, |_| announce(&request));
    if !status.is_success() {
        return status.into_response();
    }
    if !signature_valid {
        let errors = "[API] Invalid API key or access token (unrecognized login or wrong password)";
        return (StatusCode::UNAUTHORIZED, Json(json!({ "errors": errors }))).into_response();
    }
    if about_return {
        let id =
            request["variables"]["id"].as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let known = partner.memory().returns.get(id).map_or(Value::Null, Return::answer);
        return Json(json!({"data": {"reverseFulfillmentOrder": known}})).into_response();
    }
    Json(answer(&request)).into_response()
}

/// Units of a return that the shop has put back on the shelf.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Return {
    /// Of the reverse fulfilment order.
    id: u64,
    order_id: u64,
    line_id: u64,
    qty: u32,
}

impl Return {
    fn answer(&self) -> Value {
        let Self { id, order_id, line_id, qty } = self;
        let disposition = json!({"id": format!("gid://shopify/ReverseFulfillmentOrderDisposition/{id}"),
            "type": "RESTOCKED", "quantity": qty});
        json!({"order": {"id": format!("gid://shopify/Order/{order_id}")}, "lineItems": {"pageInfo": {"hasNextPage": false},
            "nodes": [{"fulfillmentLineItem": {"lineItem": {"id": format!("gid://shopify/LineItem/{line_id}")}},
                "dispositions": [disposition]}]}})
    }
}

/// Sets what the shop says of a return.
pub(super) async fn set_return(State(partner): State<Arc<Partner>>, body: Bytes) -> (StatusCode, String) {
    match serde_json::from_slice::<Return>(&body) {
        Ok(of) => {
            partner.memory().returns.insert(of.id.to_string(), of);
            (StatusCode::OK, String::new())
        }
        Err(error) => {
            let expected = r#"not {"id","orderId","lineId","qty"}"#;
            (StatusCode::BAD_REQUEST, format!("{expected}: {error}\n"))
        }
    }
}

fn query(request: &Value) -> &str {
    request["query"].as_str().unwrap_or_default()
}

fn is_push(request: &Value) -> bool {
    query(request).contains("inventorySetQuantities")
}

/// Shopify's answer: always status 200, errors are in the body.
pub(super) fn answer(request: &Value) -> Value {
    let variables = &request["variables"];
    if is_push(request) {
        let quantities = variables["input"]["quantities"].as_array().map_or(&[][..], Vec::as_slice);
        let complete = |one: &Value| {
            one["inventoryItemId"].is_string()
                && one["locationId"].is_string()
                && one["quantity"].is_i64()
                && one.get("changeFromQuantity").is_some()
        };
        let idempotent = query(request).contains("@idempotent(key:") && variables["key"].is_string();
        if quantities.is_empty() || !quantities.iter().all(complete) || !idempotent {
            return json!({"errors": [{"message": "inventorySetQuantities needs @idempotent(key:) and, for each item, \
                inventoryItemId, locationId, quantity and changeFromQuantity"}]});
        }
        return json!({"data": {"inventorySetQuantities": {"userErrors": []}}});
    }
    if query(request).contains("query Test") {
        let id = variables["location"].as_str().unwrap_or(LOCATION);
        return json!({"data": {"location": {"id": id}}});
    }
    let code = variables["code"].as_str().and_then(|code| code.strip_prefix("sku:\"")?.strip_suffix('"'));
    let Some(code) = code.filter(|_| query(request).contains("inventoryItems")) else {
        return json!({"errors": [{"message": "this shop knows inventoryItems and inventorySetQuantities"}]});
    };
    let code = code.replace("\\\"", "\"").replace("\\\\", "\\");
    let item = json!({"id": format!("gid://shopify/InventoryItem/{code}"), "sku": code});
    json!({"data": {"location": {"id": LOCATION}, "inventoryItems": {"nodes": [item],
        "pageInfo": {"hasNextPage": false, "endCursor": null}}}})
}

fn announce(request: &Value) {
    if is_push(request) {
        let set = &request["variables"]["input"]["quantities"][0];
        println!(
            "\n✓ the first push reached the shop: {} set to {}",
            set["inventoryItemId"], set["quantity"]
        );
    }
}
