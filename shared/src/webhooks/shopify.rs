//! Reads Shopify's events about channel orders, customers and shops.
//!
//! Promises: commands hold no name and no address; e-mail and phone are only in `customers/redact`, to find what to erase.
//! A command's `order` can be read again like the body, which it replaces when personal data is erased.
//!
//! A command about an order holds `orderId`, `refundLines` and `fulfillments` (both perhaps empty), and of an order's own body
//! `version`, `updatedAt`, `placedAt`, `test`, `cancelled`, `unlisted` (shipped as a whole, without a list of fulfilments) and
//! `lines`; of an edit `editId`, `committedAt` and `edits`.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::webhooks::members::read_members;
use crate::webhooks::reading::{Id, Meaning, Text};
use crate::webhooks::shopify_members::{
    Disposed, Edit, Fulfillment, GoneOrder, LineItem, Order, OrderEdited, PrivacyRequest, Refund, RefundLine,
    Time, check_lines, check_refund_lines,
};

/// Shipments of an order with one of these have not left, or have come back.
const NOT_SHIPPED: [&str; 3] = ["cancelled", "error", "failure"];

/// Reads a body; `topic` is the header `X-Shopify-Topic`, `triggered_at` the header `X-Shopify-Triggered-At`.
pub fn read(topic: &str, triggered_at: Option<&str>, body: &[u8]) -> Meaning {
    let meaning = match topic {
        "orders/create"
        | "orders/updated"
        | "orders/paid"
        | "orders/partially_fulfilled"
        | "orders/fulfilled"
        | "orders/cancelled" => {
            read_members(body).and_then(|order| order_command(topic, triggered_at, body, order))
        }
        "orders/edited" => read_members(body).and_then(|edited| edit_command(topic, edited)),
        "orders/delete" => read_members(body).map(|gone| gone_command(topic, &gone)),
        "refunds/create" => read_members(body).and_then(|refund| refund_command(topic, refund)),
        "fulfillments/create" | "fulfillments/update" => {
            read_members(body).and_then(|shipment| fulfillment_command(topic, shipment))
        }
        "reverse_fulfillment_orders/dispose" => {
            read_members(body).and_then(|disposed| disposed_command(topic, disposed))
        }
        "customers/redact" => read_members(body).map(redact),
        "customers/data_request" => read_members(body).map(data_request),
        "shop/redact" => read_members(body).map(|request: PrivacyRequest| {
            Meaning::Command(json!({"do": topic, "shopDomain": request.shop_domain}))
        }),
        "app/uninstalled" => Ok(Meaning::Command(json!({"do": topic}))),
        // Shopify adds topics: one whose body is an order tells of it, any other says nothing.
        _ if topic.starts_with("orders/") => Ok(read_members(body)
            .ok()
            .filter(|order: &Order| order.line_items.is_some())
            .and_then(|order| order_command(topic, triggered_at, body, order).ok())
            .unwrap_or(Meaning::Nothing)),
        _ => Ok(Meaning::Nothing),
    };
    meaning.unwrap_or_else(Meaning::Unreadable)
}

/// A command about an order that has nothing but what the caller adds.
fn command(topic: &str, order_id: &Value) -> Value {
    json!({"do": topic, "orderId": order_id, "refundLines": [], "fulfillments": []})
}

fn order_command(
    topic: &str,
    triggered_at: Option<&str>,
    body: &[u8],
    order: Order,
) -> Result<Meaning, String> {
    let sent = order.line_items.as_deref().unwrap_or_default();
    check_lines(sent, "line_items")?;
    let mut refund_lines: Vec<&RefundLine> = Vec::new();
    for (n, refund) in order.refunds.iter().flatten().enumerate() {
        check_refund_lines(&refund.refund_line_items, &format!("refunds[{n}].refund_line_items"))?;
        refund_lines.extend(&refund.refund_line_items);
    }
    let mut fulfillments = Vec::new();
    for (n, shipment) in order.fulfillments.iter().flatten().enumerate() {
        fulfillments.push(fulfillment_facts(shipment, &format!("fulfillments[{n}].line_items"))?);
    }
    let lines: Vec<Value> = sent
        .iter()
        .map(|line| line_facts(line, order.refunds.is_some().then_some(refund_lines.as_slice())))
        .collect();
    let mut command = command(topic, &json!(order.id));
    command["version"] = json!(version(&order, triggered_at, body));
    command["updatedAt"] = json!(order.updated_at);
    command["placedAt"] = json!(order.created_at);
    command["test"] = json!(order.test.unwrap_or_default());
    command["cancelled"] = json!(topic == "orders/cancelled" || order.cancelled_at.is_some());
    command["unlisted"] = json!(topic == "orders/fulfilled" && fulfillments.is_empty());
    // Shopify lists removed lines too: a body without any says nothing of them.
    command["lines"] = if lines.is_empty() { Value::Null } else { json!(lines) };
    command["refundLines"] = json!(refund_lines);
    command["fulfillments"] = json!(fulfillments);
    command["customerId"] = json!(order.customer.as_ref().and_then(|customer| customer.id.as_ref()));
    command["order"] = json!(order);
    Ok(Meaning::Command(command))
}

/// Orders the bodies of one order, as texts compare: `updated_at`, then the time of the trigger, then the body's hash.
fn version(order: &Order, triggered_at: Option<&str>, body: &[u8]) -> String {
    let updated = order.updated_at.as_ref().map(Time::sortable).unwrap_or_default();
    let triggered = triggered_at.and_then(Time::parse).map(|time| time.sortable()).unwrap_or_default();
    format!("{updated}/{triggered}/{}", hex::encode(Sha256::digest(body)))
}

/// `refunded`: all refund lines that the body lists, if it lists refunds at all.
fn line_facts(line: &LineItem, refunded: Option<&[&RefundLine]>) -> Value {
    let (qty, unexplained) = match (line.current_quantity, refunded) {
        (None, _) => (line.quantity, 0),
        (Some(current), Some(refunded)) => {
            let of_line = refunded.iter().filter(|refund| refund.line_item_id == line.id);
            (current + of_line.map(|refund| refund.quantity).sum::<i64>(), 0)
        }
        (Some(current), None) => (current, (line.quantity - current).max(0)),
    };
    json!({"id": line.id, "sku": line.code(), "goods": line.is_goods(), "qty": qty,
        "unexplained": unexplained, "fulfilled": line.current_quantity})
}

/// A shipment: what it lists, or nothing where it was cancelled or failed. Of two bodies of one second that one is newer.
fn fulfillment_facts(shipment: &Fulfillment, place: &str) -> Result<Value, String> {
    check_lines(&shipment.line_items, place)?;
    let counts = shipment.status.as_ref().is_none_or(|status| !NOT_SHIPPED.contains(&status.0.as_str()));
    let lines: Vec<Value> = shipment
        .line_items
        .iter()
        .map(|line| {
            json!({"id": line.id, "qty": if counts { line.quantity } else { 0 }, "sku": line.code(),
            "goods": line.is_goods()})
        })
        .collect();
    let lines = json!(lines);
    let updated = shipment.updated_at.as_ref().or(shipment.created_at.as_ref()).map(Time::sortable);
    let hash = hex::encode(Sha256::digest(lines.to_string()));
    let version = format!("{}/{}/{hash}", updated.unwrap_or_default(), u8::from(!counts));
    Ok(json!({"id": shipment.id, "version": version, "lines": lines}))
}

/// What is told alone must name its order.
fn order_of(id: Option<&Id>) -> Result<Value, String> {
    id.map(|id| json!(id)).ok_or_else(|| "order_id is missing".into())
}

fn fulfillment_command(topic: &str, shipment: Fulfillment) -> Result<Meaning, String> {
    let mut command = command(topic, &order_of(shipment.order_id.as_ref())?);
    command["fulfillments"] = json!([fulfillment_facts(&shipment, "line_items")?]);
    command["order"] = json!(shipment);
    Ok(Meaning::Command(command))
}

fn refund_command(topic: &str, refund: Refund) -> Result<Meaning, String> {
    check_refund_lines(&refund.refund_line_items, "refund_line_items")?;
    let mut command = command(topic, &order_of(refund.order_id.as_ref())?);
    command["refundLines"] = json!(refund.refund_line_items);
    command["order"] = json!(refund);
    Ok(Meaning::Command(command))
}

fn edit_command(topic: &str, edited: OrderEdited) -> Result<Meaning, String> {
    let edit = &edited.order_edit;
    let changes = edit.changes()?;
    let Edit { id, order_id, committed_at, .. } = edit;
    let mut command = command(topic, &json!(order_id));
    command["editId"] = json!(id);
    command["committedAt"] = json!(committed_at);
    command["edits"] = json!(changes);
    command["order"] = json!(edited);
    Ok(Meaning::Command(command))
}

/// It names goods by lines of the return, so the worker asks the shop which lines of which order these are.
fn disposed_command(topic: &str, disposed: Disposed) -> Result<Meaning, String> {
    let id = disposed.reverse_order_id().ok_or("admin_graphql_api_id is missing")?;
    Ok(Meaning::Command(json!({"do": topic, "reverseOrderId": id, "order": disposed})))
}

fn gone_command(topic: &str, gone: &GoneOrder) -> Meaning {
    let mut command = command(topic, &json!(gone.id));
    command["order"] = json!(gone);
    Meaning::Command(command)
}

fn redact(request: PrivacyRequest) -> Meaning {
    let (shop, customer) = (request.shop_domain, request.customer);
    let (id, email, phone) = customer.map_or((None, None, None), |c| (c.id, c.email, c.phone));
    let traces: Vec<Text> =
        [email, phone].into_iter().flatten().filter(|trace| !trace.0.is_empty()).collect();
    Meaning::Command(json!({"do": "customers/redact", "shopDomain": shop, "customerId": id,
        "orderIds": request.orders_to_redact, "traces": traces}))
}

/// The command has no effect but an exception for an operator: the merchant must answer its customer.
fn data_request(request: PrivacyRequest) -> Meaning {
    let id = request.customer.and_then(|customer| customer.id);
    Meaning::Command(json!({"do": "customers/data_request", "customerId": id}))
}
