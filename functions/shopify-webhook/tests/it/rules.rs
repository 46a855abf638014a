//! What the rules say of facts, whatever came first: written from the contract, without the SQL.

use std::collections::BTreeMap;

use sha2::Digest;

use super::history::Message;
use super::*;

/// Units of one SKU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    pub wanted: i64,
    pub written_off: i64,
    pub shipped: i64,
}

/// `on_hand`, `allocated`, missing (in the open shortfall).
pub type Stock = (i64, i64, i64);

impl Wants {
    /// Where this order alone wants what there is.
    pub fn of(self, units: i64) -> Stock {
        let needs = self.wanted + self.written_off + self.shipped;
        let taken = needs.min(units).max(self.shipped);
        let held = self.wanted.min(taken - self.shipped);
        let lost = taken - self.shipped - held;
        let owed = (self.shipped - units).max(0);
        (units - self.shipped - lost + owed, held, self.wanted - held + owed)
    }
}

#[derive(Default)]
struct Facts {
    newest: Option<(String, Value)>,
    whole: Option<(String, Value)>,
    refunds: BTreeMap<i64, (i64, i64, String)>,
    shipments: BTreeMap<i64, (String, bool, BTreeMap<i64, i64>)>,
    edits: BTreeMap<i64, (String, i64, i64)>,
    skus: BTreeMap<i64, usize>,
    ended: bool,
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn id(value: &Value) -> i64 {
    value["id"].as_i64().unwrap()
}

impl Facts {
    fn lines(&mut self, lines: &Value) {
        for line in list(lines) {
            let number: usize = line["sku"].as_str().unwrap()[4..].parse().unwrap();
            self.skus.insert(id(line), number - 1);
        }
    }

    fn shipment(&mut self, told: &Value) {
        let updated = told["updated_at"].as_str().unwrap().to_owned();
        let counts = !["cancelled", "error", "failure"].contains(&told["status"].as_str().unwrap());
        let lines = list(&told["line_items"]).map(|l| (id(l), l["quantity"].as_i64().unwrap())).collect();
        if counts {
            self.lines(&told["line_items"]);
        }
        let known = self.shipments.entry(id(told)).or_default();
        if updated > known.0 {
            *known = (updated, counts, lines);
        }
    }

    fn refund_lines(&mut self, lines: &Value) {
        for line in list(lines) {
            let (of, qty) = (line["line_item_id"].as_i64().unwrap(), line["quantity"].as_i64().unwrap());
            self.refunds.insert(id(line), (of, qty, line["restock_type"].as_str().unwrap().to_owned()));
        }
    }

    fn take(&mut self, message: &Message) {
        let body = &message.body;
        match message.topic {
            "orders/delete" => self.ended = true,
            "refunds/create" => self.refund_lines(&body["refund_line_items"]),
            "fulfillments/create" | "fulfillments/update" => self.shipment(body),
            "orders/edited" => {
                let edit = &body["order_edit"];
                for (list_name, sign) in [("additions", 1), ("removals", -1)] {
                    for change in list(&edit["line_items"][list_name]) {
                        let committed = edit["committed_at"].as_str().unwrap().to_owned();
                        let delta = sign * change["delta"].as_i64().unwrap();
                        self.edits.insert(id(edit), (committed, id(change), delta));
                    }
                }
            }
            topic => {
                self.ended |= topic == "orders/cancelled" || !body["cancelled_at"].is_null();
                list(&body["fulfillments"]).for_each(|told| self.shipment(told));
                list(&body["refunds"]).for_each(|told| self.refund_lines(&told["refund_line_items"]));
                let key = format!(
                    "{} {}",
                    body["updated_at"].as_str().unwrap(),
                    hex::encode(Sha256::digest(body.to_string()))
                );
                if topic == "orders/fulfilled" && self.whole.as_ref().is_none_or(|(old, _)| key > *old) {
                    self.lines(&body["line_items"]);
                    self.whole = Some((key.clone(), body.clone()));
                }
                if self.newest.as_ref().is_none_or(|(old, _)| key > *old) {
                    self.lines(&body["line_items"]);
                    self.newest = Some((key, body.clone()));
                }
            }
        }
    }

    fn refunded(&self, line: i64, how: &[&str]) -> i64 {
        let of_line =
            self.refunds.values().filter(|(of, _, kind)| *of == line && how.contains(&kind.as_str()));
        of_line.map(|(_, qty, _)| qty).sum()
    }

    fn ordered(&self, line: i64) -> i64 {
        let Some((_, body)) = &self.newest else { return 0 };
        let Some(told) = list(&body["line_items"]).find(|told| id(told) == line) else { return 0 };
        let quantity = told["quantity"].as_i64().unwrap();
        let as_told = match told["current_quantity"].as_i64() {
            None => quantity,
            Some(current) if body["refunds"].is_array() => {
                let own = list(&body["refunds"]).flat_map(|refund| list(&refund["refund_line_items"]));
                current
                    + own
                        .filter(|r| r["line_item_id"] == line)
                        .map(|r| r["quantity"].as_i64().unwrap())
                        .sum::<i64>()
            }
            Some(current) => {
                current + self.refunded(line, &super::history::HOW).min((quantity - current).max(0))
            }
        };
        let updated = body["updated_at"].as_str().unwrap();
        let open = self.edits.values().filter(|(at, of, _)| *of == line && at.as_str() > updated);
        (as_told + open.map(|(_, _, delta)| delta).sum::<i64>()).max(0)
    }

    fn shipped(&self, line: i64) -> i64 {
        let listed = self.shipments.values().filter(|(_, counts, _)| *counts);
        let listed: i64 = listed.filter_map(|(_, _, lines)| lines.get(&line)).sum();
        let whole = match &self.whole {
            Some((_, body)) if !self.ended => {
                list(&body["line_items"]).find(|told| id(told) == line).map_or(0, |told| {
                    told["current_quantity"].as_i64().unwrap_or_else(|| {
                        self.ordered(line) - self.refunded(line, &["cancel", "legacy_restock", "no_restock"])
                    })
                })
            }
            _ => 0,
        };
        listed.max(whole)
    }

    fn wants(&self, line: i64) -> Wants {
        let (ordered, shipped) = (self.ordered(line), self.shipped(line));
        let (cancelled, returned) =
            (self.refunded(line, &["cancel", "legacy_restock"]), self.refunded(line, &["return"]));
        let (mut inside, mut outside) = ((ordered - shipped).max(0), shipped);
        // Cancelled units have not left, returned ones have: what there is not of the one is of the other.
        let (from_inside, from_outside) = (cancelled.min(inside), returned.min(outside));
        inside -= from_inside;
        outside -= from_outside;
        let (more_inside, more_outside) =
            ((returned - from_outside).min(inside), (cancelled - from_inside).min(outside));
        inside -= more_inside;
        outside -= more_outside;
        let written_off = self.refunded(line, &["no_restock"]).min(inside);
        Wants { wanted: if self.ended { 0 } else { inside - written_off }, written_off, shipped: outside }
    }
}

/// What an order of which this was told wants, by SKU.
pub fn wants(told: &[Message]) -> [Wants; 2] {
    let mut facts = Facts::default();
    told.iter().for_each(|message| facts.take(message));
    let mut sums = [Wants::default(); 2];
    for (line, sku) in &facts.skus {
        let (of, sum) = (facts.wants(*line), &mut sums[*sku]);
        sum.wanted += of.wanted;
        sum.written_off += of.written_off;
        sum.shipped += of.shipped;
    }
    sums
}
