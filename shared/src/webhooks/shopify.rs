//! Reads Shopify's events about channel orders, customers and shops.
//!
//! Promises: commands hold no name and no address; e-mail and phone are only in `customers/redact`, to find what to erase.
//! A command's `order` can be read again like the body, which it replaces when personal data is erased.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::webhooks::members::read_members;
use crate::webhooks::reading::{Id, Meaning, Text, check_qty};

/// Lines of one order or refund; Shopify's own limit is 500.
const MAX_LINES: usize = 1_000;
const RESTOCK_TYPES: [&str; 4] = ["cancel", "return", "legacy_restock", "no_restock"];

#[derive(Deserialize, Serialize)]
struct Order {
    id: Id,
    #[serde(default)]
    line_items: Vec<LineItem>,
    #[serde(default)]
    refunds: Vec<OrderRefund>,
    #[serde(default)]
    customer: Option<Customer>,
}

#[derive(Deserialize, Serialize)]
struct LineItem {
    id: Id,
    #[serde(default)]
    sku: Option<Text>,
    #[serde(default)]
    variant_id: Option<Id>,
    quantity: i64,
}

#[derive(Deserialize, Serialize)]
struct OrderRefund {
    #[serde(default)]
    refund_line_items: Vec<RefundLine>,
}

#[derive(Deserialize, Serialize)]
struct Refund {
    order_id: Id,
    #[serde(default)]
    refund_line_items: Vec<RefundLine>,
}

#[derive(Deserialize, Serialize)]
struct RefundLine {
    id: Id,
    line_item_id: Id,
    quantity: i64,
    restock_type: String,
}

#[derive(Deserialize, Serialize)]
struct Customer {
    #[serde(default)]
    id: Option<Id>,
}

#[derive(Deserialize)]
struct PrivacyRequest {
    #[serde(default)]
    customer: Option<DataSubject>,
    #[serde(default)]
    orders_to_redact: Vec<Id>,
}

#[derive(Deserialize)]
struct DataSubject {
    #[serde(default)]
    id: Option<Id>,
    #[serde(default)]
    email: Option<Text>,
    #[serde(default)]
    phone: Option<Text>,
}

/// Reads a body; `topic` is the header `X-Shopify-Topic`.
pub fn read(topic: &str, body: &[u8]) -> Meaning {
    let meaning = match topic {
        "orders/create" | "orders/cancelled" | "orders/fulfilled" => {
            read_members(body).and_then(|order| order_command(topic, order))
        }
        "refunds/create" => read_members(body).and_then(|refund| refund_command(topic, refund)),
        "customers/redact" => read_members(body).map(redact),
        "customers/data_request" => read_members(body).map(data_request),
        "shop/redact" | "app/uninstalled" => Ok(Meaning::Command(json!({"do": topic}))),
        _ => Ok(Meaning::Nothing),
    };
    meaning.unwrap_or_else(Meaning::Unreadable)
}

/// `place` names the lines in the sender's terms.
fn check_refund_lines(lines: &[RefundLine], place: &str) -> Result<(), String> {
    if lines.len() > MAX_LINES {
        return Err(format!("{place} holds more than {MAX_LINES} lines"));
    }
    lines.iter().enumerate().try_for_each(|(n, line)| {
        check_qty(line.quantity, || format!("{place}[{n}].quantity"))?;
        if RESTOCK_TYPES.contains(&line.restock_type.as_str()) {
            Ok(())
        } else {
            Err(format!("{place}[{n}].restock_type is not one of {}", RESTOCK_TYPES.join(", ")))
        }
    })
}

/// A cancelled order's refunds are processed with it; refunds in the bodies of other topics have their own events.
fn order_command(topic: &str, mut order: Order) -> Result<Meaning, String> {
    if order.line_items.len() > MAX_LINES {
        return Err(format!("line_items holds more than {MAX_LINES} lines"));
    }
    for (n, line) in order.line_items.iter().enumerate() {
        check_qty(line.quantity, || format!("line_items[{n}].quantity"))?;
    }
    if topic != "orders/cancelled" {
        order.refunds.clear();
    }
    for (n, refund) in order.refunds.iter().enumerate() {
        check_refund_lines(&refund.refund_line_items, &format!("refunds[{n}].refund_line_items"))?;
    }
    let lines: Vec<Value> =
        order.refunds.iter().flat_map(|refund| &refund.refund_line_items).map(|line| json!(line)).collect();
    if lines.len() > MAX_LINES {
        return Err(format!("refunds holds more than {MAX_LINES} lines"));
    }
    Ok(Meaning::Command(json!({"do": topic, "orderId": order.id, "refundLines": lines,
        "customerId": order.customer.as_ref().and_then(|customer| customer.id.as_ref()), "order": order})))
}

fn refund_command(topic: &str, refund: Refund) -> Result<Meaning, String> {
    check_refund_lines(&refund.refund_line_items, "refund_line_items")?;
    Ok(Meaning::Command(json!({"do": topic, "orderId": refund.order_id,
        "refundLines": refund.refund_line_items, "order": refund})))
}

fn redact(request: PrivacyRequest) -> Meaning {
    let customer = request.customer;
    let (id, email, phone) = customer.map_or((None, None, None), |c| (c.id, c.email, c.phone));
    let traces: Vec<Text> =
        [email, phone].into_iter().flatten().filter(|trace| !trace.0.is_empty()).collect();
    Meaning::Command(json!({"do": "customers/redact", "customerId": id, "orderIds": request.orders_to_redact,
        "traces": traces}))
}

/// The command has no effect but an exception for an operator: the merchant must answer its customer.
fn data_request(request: PrivacyRequest) -> Meaning {
    let id = request.customer.and_then(|customer| customer.id);
    Meaning::Command(json!({"do": "customers/data_request", "customerId": id}))
}
