//! What Shopify's events say of channel orders, customers and shops. Only what the work needs is taken over: no name, no
//! address, no e-mail.
//!
//! A command's `order` has the shape of the body it came from, so that it can stand in for the body when a person is
//! erased (`customers/redact`) and still be read again.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::webhooks::reading::{Id, Meaning, parse};

/// Units on one line. Shopify sends 0 for a line that was edited away.
const QTY_RANGE: std::ops::RangeInclusive<i64> = 0..=1_000_000;
/// Lines of one order; Shopify itself stops at 500.
const MAX_LINES: usize = 1_000;
/// What `restock_type` may be.
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
    sku: Option<String>,
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
struct Request {
    #[serde(default)]
    customer: Option<Person>,
    #[serde(default)]
    orders_to_redact: Vec<Id>,
}

#[derive(Deserialize)]
struct Person {
    #[serde(default)]
    id: Option<Id>,
    #[serde(default)]
    email: Option<String>,
    #[serde(default)]
    phone: Option<String>,
}

/// Reads a body; the topic is a header's.
pub fn read(topic: &str, body: &[u8]) -> Meaning {
    let meaning = match topic {
        "orders/create" | "orders/cancelled" | "orders/fulfilled" => {
            parse(body).and_then(|order| of_order(topic, order))
        }
        "refunds/create" => parse(body).and_then(|refund| of_refund(topic, refund)),
        "customers/redact" => parse(body).map(redact),
        "customers/data_request" => parse(body).map(data_request),
        "shop/redact" | "app/uninstalled" => Ok(Meaning::Command(json!({"do": topic}))),
        _ => Ok(Meaning::Nothing),
    };
    meaning.unwrap_or_else(Meaning::Unreadable)
}

fn check_qty(what: &str, id: &Id, qty: i64) -> Result<(), String> {
    if QTY_RANGE.contains(&qty) {
        Ok(())
    } else {
        Err(format!("{what} {} has the quantity {qty}; 0 … 1,000,000 can be", id.0))
    }
}

fn check_refund_lines<'r>(lines: impl Iterator<Item = &'r RefundLine> + Clone) -> Result<(), String> {
    if lines.clone().count() > MAX_LINES {
        return Err(format!("it refunds more than {MAX_LINES} lines"));
    }
    lines.clone().try_for_each(|line| {
        check_qty("refund line", &line.id, line.quantity)?;
        if RESTOCK_TYPES.contains(&line.restock_type.as_str()) {
            Ok(())
        } else {
            Err(format!("refund line {} has an unknown restock_type", line.id.0))
        }
    })
}

/// Line items, and the refunds that a cancelled order carries. (Refunds in other orders' bodies have events of their own.)
fn of_order(topic: &str, mut order: Order) -> Result<Meaning, String> {
    if order.line_items.len() > MAX_LINES {
        return Err(format!("it has more than {MAX_LINES} lines"));
    }
    for line in &order.line_items {
        check_qty("line item", &line.id, line.quantity)?;
    }
    if topic != "orders/cancelled" {
        order.refunds.clear();
    }
    check_refund_lines(order.refunds.iter().flat_map(|refund| &refund.refund_line_items))?;
    let lines: Vec<Value> =
        order.refunds.iter().flat_map(|refund| &refund.refund_line_items).map(|line| json!(line)).collect();
    Ok(Meaning::Command(json!({"do": topic, "orderId": order.id, "refundLines": lines,
        "customerId": order.customer.as_ref().and_then(|customer| customer.id.as_ref()), "order": order})))
}

fn of_refund(topic: &str, refund: Refund) -> Result<Meaning, String> {
    check_refund_lines(refund.refund_line_items.iter())?;
    Ok(Meaning::Command(json!({"do": topic, "orderId": refund.order_id,
        "refundLines": refund.refund_line_items, "order": refund})))
}

fn redact(request: Request) -> Meaning {
    let person = request.customer;
    let (id, email, phone) = person.map_or((None, None, None), |p| (p.id, p.email, p.phone));
    let traces: Vec<String> =
        [email, phone].into_iter().flatten().filter(|trace| !trace.is_empty()).collect();
    Meaning::Command(json!({"do": "customers/redact", "customerId": id, "orderIds": request.orders_to_redact,
        "traces": traces}))
}

/// The merchant must answer its customer: a person's work.
fn data_request(request: Request) -> Meaning {
    let id = request.customer.and_then(|person| person.id);
    Meaning::Command(json!({"do": "customers/data_request", "customerId": id}))
}
