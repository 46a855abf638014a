//! A shop that sells, edits, ships, refunds and cancels, and tells of it as Shopify does: in bodies of several shapes, some of
//! which get lost.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// One thing that the merchant does to an order.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Units of a line more or fewer; of a line beyond the last, a new line.
    Edit {
        line: usize,
        delta: i64,
    },
    /// Some of a line; `status` as the shipment is told first.
    Ship {
        line: usize,
        qty: i64,
        pending: bool,
    },
    /// All of the order, told without a list of shipments.
    ShipAll,
    /// A shipment is cancelled or fails.
    Undo {
        shipment: usize,
        status: usize,
    },
    Refund {
        line: usize,
        qty: i64,
        how: usize,
    },
    Cancel,
    Delete,
    /// A note or a tag: nothing that concerns stock.
    Touch,
}

/// How a body is written, and whether it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    refunds: bool,
    current: bool,
    fulfillments: bool,
    lost: bool,
}

/// What the merchant does, and how the two bodies are written that tell of each act.
pub type Story = Vec<(Act, [Shape; 2])>;

pub const HOW: [&str; 4] = ["cancel", "return", "legacy_restock", "no_restock"];
const UNDONE: [&str; 3] = ["cancelled", "error", "failure"];
/// Lines of an order at first.
const LINES: usize = 2;

fn any_shape(lost: f64) -> impl Strategy<Value = Shape> {
    let often = || prop::bool::weighted(0.8);
    (often(), often(), often(), prop::bool::weighted(lost))
        .prop_map(|(refunds, current, fulfillments, lost)| Shape { refunds, current, fulfillments, lost })
}

/// `writes_off`: also what is refunded without restock, orders that are shipped as a whole, and lost deliveries.
pub fn any_story(writes_off: bool) -> impl Strategy<Value = Story> {
    let line = 0..LINES + 1;
    let kinds = if writes_off { HOW.len() } else { HOW.len() - 1 };
    let seldom = u32::from(writes_off);
    let act = prop_oneof![
        4 => (line.clone(), -3_i64..=3).prop_map(|(line, delta)| Act::Edit { line, delta }),
        4 => (line.clone(), 1_i64..=3, any::<bool>()).prop_map(|(line, qty, pending)| Act::Ship { line, qty, pending }),
        seldom => Just(Act::ShipAll),
        3 => (0_usize..4, 0..UNDONE.len()).prop_map(|(shipment, status)| Act::Undo { shipment, status }),
        6 => (line, 1_i64..=3, 0..kinds).prop_map(|(line, qty, how)| Act::Refund { line, qty, how }),
        1 => Just(Act::Cancel),
        seldom => Just(Act::Delete),
        1 => Just(Act::Touch),
    ];
    let shape = move || any_shape(if writes_off { 0.15 } else { 0.0 });
    vec((act, [shape(), shape()]), 0..9)
}

struct Line {
    id: i64,
    sku: usize,
    quantity: i64,
    removed: i64,
    refunds: Vec<(i64, i64, usize)>,
}

impl Line {
    fn current(&self) -> i64 {
        self.quantity - self.removed - self.refunds.iter().map(|(_, qty, _)| qty).sum::<i64>()
    }
}

struct Shipment {
    id: i64,
    status: &'static str,
    updated: u32,
    line: i64,
    sku: usize,
    qty: i64,
}

/// The order as the shop has it.
struct Sim {
    id: i64,
    second: u32,
    lines: Vec<Line>,
    shipments: Vec<Shipment>,
    cancelled: bool,
    told: Vec<Message>,
}

/// A delivery.
#[derive(Clone, Debug)]
pub struct Message {
    pub topic: &'static str,
    pub body: Value,
}

pub fn time(second: u32) -> String {
    format!("2026-02-01T10:{:02}:{:02}Z", second / 60, second % 60)
}

fn code(sku: usize) -> String {
    format!("SKU-{:04}", sku + 1)
}

impl Sim {
    fn body(&self, shape: Shape) -> Value {
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|line| {
                let mut told =
                    json!({"id": line.id, "sku": code(line.sku), "variant_id": 1, "quantity": line.quantity});
                if shape.current {
                    told["current_quantity"] = json!(line.current());
                }
                told
            })
            .collect();
        let mut body = json!({"id": self.id, "created_at": time(0), "updated_at": time(self.second), "line_items": lines,
            "cancelled_at": self.cancelled.then(|| time(self.second))});
        if shape.refunds {
            let refunds =
                self.lines.iter().flat_map(|line| line.refunds.iter().map(|refund| (line.id, *refund)));
            body["refunds"] = refunds
                .map(|(line, (id, qty, how))| json!({"id": id, "refund_line_items": refund_lines(&[(id, line, qty, HOW[how])])}))
                .collect();
        }
        if shape.fulfillments {
            body["fulfillments"] = self.shipments.iter().map(Self::shipment).collect();
        }
        body
    }

    fn shipment(of: &Shipment) -> Value {
        json!({"id": of.id, "status": of.status, "updated_at": time(of.updated),
            "line_items": [{"id": of.line, "sku": code(of.sku), "variant_id": 1, "quantity": of.qty}]})
    }

    fn tell(&mut self, shape: Shape, topic: &'static str, body: Value) {
        if !shape.lost {
            self.told.push(Message { topic, body });
        }
    }

    fn tell_order(&mut self, shape: Shape, topic: &'static str) {
        let body = self.body(shape);
        self.tell(shape, topic, body);
    }

    fn edit(&mut self, line: usize, delta: i64, shapes: [Shape; 2]) {
        if line >= self.lines.len() {
            let id = self.id * 100 + i64::try_from(line).unwrap() + 1;
            self.lines.push(Line { id, sku: line % 2, quantity: 0, removed: 0, refunds: Vec::new() });
        }
        let line = line.min(self.lines.len() - 1);
        let of = &mut self.lines[line];
        let delta = delta.max(-of.current());
        if delta > 0 {
            of.quantity += delta;
        } else {
            of.removed -= delta;
        }
        let change = json!([{"id": of.id, "delta": delta.abs()}]);
        let edit = json!({"order_edit": {"id": self.id * 10_000 + i64::from(self.second), "order_id": self.id,
            "committed_at": time(self.second),
            "line_items": if delta > 0 { json!({"additions": change, "removals": []}) } else { json!({"removals": change}) }}});
        self.tell(shapes[0], "orders/edited", edit);
        self.tell_order(shapes[1], "orders/updated");
    }

    fn act(&mut self, act: Act, shapes: [Shape; 2]) {
        self.second += 1;
        match act {
            Act::Edit { line, delta } if delta != 0 => self.edit(line, delta, shapes),
            Act::Ship { line, qty, pending } => {
                let Some(of) = self.lines.get(line) else { return };
                let (line, sku) = (of.id, of.sku);
                let shipped = self.shipments.iter().filter(|s| s.line == line && !UNDONE.contains(&s.status));
                let qty = qty.min(of.current() - shipped.map(|s| s.qty).sum::<i64>());
                if qty <= 0 {
                    return;
                }
                let id = self.id * 1_000 + i64::from(self.second);
                let status = if pending { "pending" } else { "success" };
                self.shipments.push(Shipment { id, status, updated: self.second, line, sku, qty });
                let mut alone = Self::shipment(self.shipments.last().unwrap());
                alone["order_id"] = json!(self.id);
                self.tell(shapes[0], "fulfillments/create", alone);
                let listed = Shape { fulfillments: true, ..shapes[1] };
                self.tell_order(listed, "orders/partially_fulfilled");
            }
            Act::ShipAll => {
                self.tell_order(Shape { fulfillments: false, ..shapes[0] }, "orders/fulfilled");
            }
            Act::Undo { shipment, status } => {
                let Some(of) = self.shipments.get_mut(shipment) else { return };
                (of.status, of.updated) = (UNDONE[status], self.second);
                let mut alone = Self::shipment(&self.shipments[shipment]);
                alone["order_id"] = json!(self.id);
                self.tell(shapes[0], "fulfillments/update", alone);
                self.tell_order(shapes[1], "orders/updated");
            }
            Act::Refund { line, qty, how } => {
                let Some(of) = self.lines.get_mut(line) else { return };
                let qty = qty.min(of.current());
                if qty <= 0 {
                    return;
                }
                let (id, line) = (self.id * 10_000 + i64::from(self.second), of.id);
                of.refunds.push((id, qty, how));
                let alone = refund(self.id, &[(id, line, qty, HOW[how])]);
                self.tell(shapes[0], "refunds/create", alone);
                self.tell_order(shapes[1], "orders/updated");
            }
            Act::Cancel => {
                self.cancelled = true;
                self.tell_order(shapes[0], "orders/cancelled");
            }
            Act::Delete => self.tell(shapes[0], "orders/delete", json!({"id": self.id})),
            Act::Edit { .. } | Act::Touch => self.tell_order(shapes[0], "orders/updated"),
        }
    }
}

/// All that the shop tells of an order of these units, in the order in which it happened.
pub fn messages(id: i64, ordered: [i64; LINES], story: &Story) -> Vec<Message> {
    let lines = ordered.iter().zip(0..).map(|(quantity, n)| Line {
        id: id * 100 + n + 1,
        sku: usize::try_from(n).unwrap() % 2,
        quantity: *quantity,
        removed: 0,
        refunds: Vec::new(),
    });
    let mut sim = Sim {
        id,
        second: 0,
        lines: lines.collect(),
        shipments: Vec::new(),
        cancelled: false,
        told: Vec::new(),
    };
    let whole = Shape { refunds: true, current: true, fulfillments: true, lost: false };
    sim.tell_order(whole, "orders/create");
    for (act, shapes) in story {
        sim.act(*act, *shapes);
    }
    sim.told
}
