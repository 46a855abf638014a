//! Reads a 3PL's events about goods that are announced, received, shipped, returned or counted anew.

use serde::Deserialize;
use serde_json::json;

use crate::http::fields::uuid;
use crate::webhooks::members::read_members;
use crate::webhooks::reading::{Id, Meaning, Reading, Remark, Text, check_qty, check_signed_qty};

/// Lines of one document: far more than a truck holds, and few enough to be booked within a second.
const MAX_LINES: usize = 5_000;

#[derive(Deserialize)]
struct Envelope {
    #[serde(rename = "type")]
    topic: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Notice {
    #[serde(default)]
    asn_id: Option<Id>,
    #[serde(default)]
    receipt_id: Option<Id>,
    #[serde(default)]
    shipment_id: Option<Id>,
    #[serde(default)]
    order_id: Option<Id>,
    #[serde(default)]
    closed: Option<bool>,
    #[serde(default)]
    reason: Remark,
}

#[derive(Deserialize)]
struct Lines {
    #[serde(default)]
    lines: Option<Vec<Line>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    line_id: Id,
    sku: Text,
    qty: i64,
    #[serde(default)]
    reason: Remark,
}

/// Reads an event; its topic is the member `type`.
pub fn read(body: &[u8]) -> Reading {
    let topic = match read_members(body) {
        Ok(Envelope { topic }) => topic,
        Err(why) => return Reading { topic: "unreadable".into(), meaning: Meaning::Unreadable(why) },
    };
    let meaning = match topic.as_str() {
        "asn.created" | "asn.received" | "order.shipped" | "order.returned" | "inventory.adjusted" => {
            read_members(body).and_then(|read: Lines| command(&topic, body, read.lines.unwrap_or_default()))
        }
        "asn.cancelled" => command(&topic, body, Vec::new()),
        // It moves goods that we would go on promising, or nothing at all: a person must see which.
        _ => Err("an event of this type is not handled".into()),
    };
    Reading { topic, meaning: meaning.unwrap_or_else(Meaning::Unreadable) }
}

/// A line's id is unique within `documentId`: the ASN; the receipt, or its ASN if it has no id; the shipment or return, or its
/// order; a line of an adjustment within its account.
fn command(topic: &str, body: &[u8], lines: Vec<Line>) -> Result<Meaning, String> {
    let notice: Notice = read_members(body)?;
    let needed = |id: Option<Id>, name: &str| id.ok_or_else(|| format!("{name} is missing"));
    let mut command = json!({"do": topic, "closed": notice.closed.unwrap_or(false)});
    match topic {
        "inventory.adjusted" => {}
        "order.shipped" | "order.returned" => {
            let order = needed(notice.order_id, "orderId")?;
            let order = uuid(&order.0).ok_or("orderId is not the id of an order")?;
            let of_return = if topic == "order.returned" { notice.receipt_id } else { None };
            let document = of_return.or(notice.shipment_id).map_or_else(|| order.to_string(), |id| id.0);
            command["orderId"] = json!(order);
            command["documentId"] = json!(document);
        }
        _ => {
            let asn = needed(notice.asn_id, "asnId")?;
            let document =
                if topic == "asn.received" { notice.receipt_id.unwrap_or(asn.clone()) } else { asn.clone() };
            command["asnId"] = json!(asn);
            command["documentId"] = json!(document);
        }
    }
    if lines.len() > MAX_LINES {
        return Err(format!("lines holds more than {MAX_LINES} lines"));
    }
    let signed = matches!(topic, "asn.received" | "inventory.adjusted");
    for (n, line) in lines.iter().enumerate() {
        let place = || format!("lines[{n}].qty");
        if signed { check_signed_qty(line.qty, place) } else { check_qty(line.qty, place) }?;
    }
    let lines = lines.iter().filter(|line| line.qty != 0);
    command["lines"] = lines
        .map(|line| {
            let mut told = json!({"lineId": line.line_id, "sku": line.sku, "qty": line.qty});
            if let Some(reason) = line.reason.0.as_ref().or(notice.reason.0.as_ref()) {
                told["reason"] = json!(reason);
            }
            told
        })
        .collect();
    Ok(Meaning::Command(command))
}
