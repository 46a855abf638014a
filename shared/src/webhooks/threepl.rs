//! Reads a 3PL's events about announced, received and shipped goods.

use serde::Deserialize;
use serde_json::json;

use crate::http::fields::uuid;
use crate::webhooks::members::read_members;
use crate::webhooks::reading::{Id, Meaning, Reading, Text, check_qty};

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
}

/// Reads an event; its topic is the member `type`.
pub fn read(body: &[u8]) -> Reading {
    let topic = match read_members(body) {
        Ok(Envelope { topic }) => topic,
        Err(why) => return Reading { topic: "unreadable".into(), meaning: Meaning::Unreadable(why) },
    };
    let meaning = match topic.as_str() {
        "asn.created" | "asn.received" | "order.shipped" => {
            read_members(body).and_then(|read: Lines| command(&topic, body, read.lines.unwrap_or_default()))
        }
        "asn.cancelled" => command(&topic, body, Vec::new()),
        _ => Ok(Meaning::Nothing),
    };
    Reading { topic, meaning: meaning.unwrap_or_else(Meaning::Unreadable) }
}

/// A line's id is unique within `documentId`: the ASN; the receipt, or its ASN if it has no id; the shipment, or its order.
fn command(topic: &str, body: &[u8], lines: Vec<Line>) -> Result<Meaning, String> {
    let notice: Notice = read_members(body)?;
    let needed = |id: Option<Id>, name: &str| id.ok_or_else(|| format!("{name} is missing"));
    let mut command = json!({"do": topic, "closed": notice.closed.unwrap_or(false)});
    if topic == "order.shipped" {
        let order = needed(notice.order_id, "orderId")?;
        let order = uuid(&order.0).ok_or("orderId is not the id of an order")?;
        command["orderId"] = json!(order);
        command["documentId"] = json!(notice.shipment_id.map_or_else(|| order.to_string(), |id| id.0));
    } else {
        let asn = needed(notice.asn_id, "asnId")?;
        let document =
            if topic == "asn.received" { notice.receipt_id.unwrap_or(asn.clone()) } else { asn.clone() };
        command["asnId"] = json!(asn);
        command["documentId"] = json!(document);
    }
    if lines.len() > MAX_LINES {
        return Err(format!("lines holds more than {MAX_LINES} lines"));
    }
    for (n, line) in lines.iter().enumerate() {
        check_qty(line.qty, || format!("lines[{n}].qty"))?;
    }
    let lines = lines.iter().filter(|line| line.qty > 0);
    command["lines"] =
        lines.map(|line| json!({"lineId": line.line_id, "sku": line.sku, "qty": line.qty})).collect();
    Ok(Meaning::Command(command))
}
