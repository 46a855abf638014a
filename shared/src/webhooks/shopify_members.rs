//! The members of Shopify's bodies that are used, and what they must be.

use jiff::Timestamp;
use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::webhooks::reading::{Id, Text, check_qty};

/// Lines of one order, shipment or refund; Shopify's own limit is 500.
const MAX_LINES: usize = 1_000;
const RESTOCK_TYPES: [&str; 4] = ["cancel", "return", "legacy_restock", "no_restock"];

#[derive(Deserialize, Serialize)]
pub(super) struct Order {
    pub(super) id: Id,
    #[serde(default)]
    pub(super) created_at: Option<Time>,
    #[serde(default)]
    pub(super) updated_at: Option<Time>,
    #[serde(default)]
    pub(super) cancelled_at: Option<Time>,
    #[serde(default)]
    pub(super) test: Option<bool>,
    #[serde(default)]
    pub(super) line_items: Option<Vec<LineItem>>,
    #[serde(default)]
    pub(super) refunds: Option<Vec<Refund>>,
    #[serde(default)]
    pub(super) fulfillments: Option<Vec<Fulfillment>>,
    #[serde(default)]
    pub(super) customer: Option<Customer>,
}

#[derive(Deserialize, Serialize)]
pub(super) struct Customer {
    #[serde(default)]
    pub(super) id: Option<Id>,
}

/// A line of an order, or of a shipment: then `quantity` is what was shipped of it.
#[derive(Deserialize, Serialize)]
pub(super) struct LineItem {
    pub(super) id: Id,
    pub(super) quantity: i64,
    #[serde(default)]
    pub(super) current_quantity: Option<i64>,
    #[serde(default)]
    sku: Option<Text>,
    #[serde(default)]
    variant_id: Option<Id>,
    #[serde(default)]
    gift_card: Option<bool>,
    #[serde(default)]
    requires_shipping: Option<bool>,
}

impl LineItem {
    pub(super) fn code(&self) -> Option<&str> {
        self.sku.as_ref().map(|sku| sku.0.trim()).filter(|code| !code.is_empty())
    }

    /// A gift card and what is not shipped are none, and a line with neither SKU nor variant is a tip or a gift wrap.
    pub(super) fn is_goods(&self) -> bool {
        self.gift_card != Some(true)
            && self.requires_shipping != Some(false)
            && (self.code().is_some() || self.variant_id.is_some())
    }
}

/// Alone, or in its order's body.
#[derive(Deserialize, Serialize)]
pub(super) struct Refund {
    #[serde(default)]
    pub(super) order_id: Option<Id>,
    #[serde(default)]
    pub(super) refund_line_items: Vec<RefundLine>,
}

#[derive(Deserialize, Serialize)]
pub(super) struct RefundLine {
    pub(super) id: Id,
    pub(super) line_item_id: Id,
    pub(super) quantity: i64,
    restock_type: String,
}

/// Alone, or in its order's body.
#[derive(Deserialize, Serialize)]
pub(super) struct Fulfillment {
    pub(super) id: Id,
    #[serde(default)]
    pub(super) order_id: Option<Id>,
    #[serde(default)]
    pub(super) status: Option<Text>,
    #[serde(default)]
    pub(super) created_at: Option<Time>,
    #[serde(default)]
    pub(super) updated_at: Option<Time>,
    #[serde(default)]
    pub(super) line_items: Vec<LineItem>,
}

#[derive(Deserialize, Serialize)]
pub(super) struct GoneOrder {
    pub(super) id: Id,
}

#[derive(Deserialize, Serialize)]
pub(super) struct OrderEdited {
    pub(super) order_edit: Edit,
}

#[derive(Deserialize, Serialize)]
pub(super) struct Edit {
    pub(super) id: Id,
    pub(super) order_id: Id,
    pub(super) committed_at: Time,
    #[serde(default)]
    line_items: Changes,
}

#[derive(Default, Deserialize, Serialize)]
struct Changes {
    #[serde(default)]
    additions: Vec<Change>,
    #[serde(default)]
    removals: Vec<Change>,
}

#[derive(Deserialize, Serialize)]
struct Change {
    id: Id,
    delta: i64,
}

impl Edit {
    /// `[{"id","delta"}]`, signed.
    pub(super) fn changes(&self) -> Result<Vec<Value>, String> {
        let (additions, removals) = (&self.line_items.additions, &self.line_items.removals);
        if additions.len() + removals.len() > MAX_LINES {
            return Err(format!("order_edit.line_items holds more than {MAX_LINES} lines"));
        }
        let added = additions.iter().map(|change| ("additions", change, 1));
        let removed = removals.iter().map(|change| ("removals", change, -1));
        added
            .chain(removed)
            .map(|(list, change, sign)| {
                let delta = change.delta.saturating_abs();
                check_qty(delta, || format!("a delta in order_edit.line_items.{list}"))?;
                Ok(json!({"id": change.id, "delta": sign * delta}))
            })
            .collect()
    }
}

/// A reverse fulfilment order of which goods were disposed of.
#[derive(Deserialize, Serialize)]
pub(super) struct Disposed {
    #[serde(default)]
    id: Option<Id>,
    #[serde(default)]
    admin_graphql_api_id: Option<Id>,
}

impl Disposed {
    /// Shopify's global id.
    pub(super) fn reverse_order_id(&self) -> Option<String> {
        let of_number = |id: &Id| format!("gid://shopify/ReverseFulfillmentOrder/{}", id.0);
        self.admin_graphql_api_id.as_ref().map(|id| id.0.clone()).or_else(|| self.id.as_ref().map(of_number))
    }
}

#[derive(Deserialize)]
pub(super) struct PrivacyRequest {
    #[serde(default)]
    pub(super) shop_domain: Option<Text>,
    #[serde(default)]
    pub(super) customer: Option<DataSubject>,
    #[serde(default)]
    pub(super) orders_to_redact: Vec<Id>,
}

#[derive(Deserialize)]
pub(super) struct DataSubject {
    #[serde(default)]
    pub(super) id: Option<Id>,
    #[serde(default)]
    pub(super) email: Option<Text>,
    #[serde(default)]
    pub(super) phone: Option<Text>,
}

/// A moment, written as RFC 3339 with any offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Time(Timestamp);

impl Time {
    pub(super) fn parse(text: &str) -> Option<Self> {
        text.trim().parse().ok().map(Self)
    }

    /// In UTC and always as long, so that texts compare as times do.
    pub(super) fn sortable(&self) -> String {
        format!("{:.6}", self.0)
    }
}

impl Serialize for Time {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.sortable())
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimeVisitor;
        impl Visitor<'_> for TimeVisitor {
            type Value = Time;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a time as in RFC 3339")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Time, E> {
                Time::parse(text).ok_or_else(|| E::invalid_value(Unexpected::Other("text"), &self))
            }
        }
        deserializer.deserialize_str(TimeVisitor)
    }
}

/// `place` names the lines in the sender's terms.
pub(super) fn check_lines(lines: &[LineItem], place: &str) -> Result<(), String> {
    if lines.len() > MAX_LINES {
        return Err(format!("{place} holds more than {MAX_LINES} lines"));
    }
    lines.iter().enumerate().try_for_each(|(n, line)| {
        check_qty(line.quantity, || format!("{place}[{n}].quantity"))?;
        line.current_quantity
            .map_or(Ok(()), |current| check_qty(current, || format!("{place}[{n}].current_quantity")))
    })
}

pub(super) fn check_refund_lines(lines: &[RefundLine], place: &str) -> Result<(), String> {
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
