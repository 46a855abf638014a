//! After any history of an order and its invoices the customer's exposure is what it owes and holds, and every unit that was
//! shipped is billed exactly once.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use testing::Seed;

use crate::books::{Books, Credit, Invoice, Line, ORDERS, Order, PRICES, SKUS, Status, Step, any_step};
use crate::desk::{Desk, refused};

const ON_HAND: i64 = 1_000;
const QTY: i64 = 10;
const PRICE: i64 = 700;

/// A tenant, and what the model says of it.
struct Run {
    desk: Desk,
    books: Books,
    references: usize,
    /// What went through, by name.
    done: Vec<&'static str>,
}

impl Run {
    async fn open(limit: Option<i64>) -> Self {
        let seed = Seed {
            skus: SKUS,
            on_hand: ON_HAND,
            orders: ORDERS,
            order_qty: QTY,
            unit_price_minor: PRICE,
            credit_limit_minor: limit,
        };
        let line = Line { present: true, qty: QTY, price: PRICE, ..Line::default() };
        let order = Order { status: Status::Open, version: 1, lines: [line; SKUS] };
        let books = Books { limit, orders: std::array::from_fn(|_| order.clone()), invoices: Vec::new() };
        Self { desk: Desk::open(seed).await, books, references: 0, done: Vec::new() }
    }

    /// Posts; asserts status and code (empty for a success).
    async fn expect(&self, path: &str, body: &Value, status: u16, code: &str) -> Value {
        let reply = self.desk.post(path, body).await;
        assert_eq!(
            refused(&reply),
            (status, code.to_owned()),
            "{path} {body}: {}\n{:#?}",
            reply.json(),
            self.books
        );
        reply.json()
    }

    async fn take(&mut self, step: &Step) {
        match *step {
            Step::Allocate { order, sku, qty, partial } => self.allocate(order, sku, qty, partial).await,
            Step::Release { order, sku, qty } => self.release(order, sku, qty).await,
            Step::Ship { order, sku, qty } => self.ship(order, sku, qty).await,
            Step::Save { order, lines } => self.save(order, lines).await,
            Step::Invoice { order } => self.invoice(order).await,
            Step::Close { order } => self.close(order).await,
            Step::Cancel { order } => self.cancel(order).await,
            Step::Void { invoice } => self.void(invoice).await,
            Step::Pay { invoice, hundredths } => self.pay(invoice, hundredths).await,
            Step::Bounce { invoice } => self.bounce(invoice).await,
        }
    }

    async fn allocate(&mut self, order: usize, sku: usize, qty: i64, partial: bool) {
        let path = self.desk.order(order, "/allocate");
        let mut body = self.desk.shop.one(sku, qty);
        body["partial"] = json!(partial);
        let line = self.books.orders[order].lines[sku];
        let mut after = self.books.clone();
        after.orders[order].lines[sku].allocated += qty;
        let refusal = match self.books.credit(&after) {
            _ if self.books.orders[order].status != Status::Open => Some((409, "order_not_open")),
            _ if !line.present => Some((422, "sku_not_on_order")),
            _ if qty > line.open() => Some((422, "exceeds_ordered")),
            Credit::Exceeded => Some((422, "credit_limit_exceeded")),
            Credit::Within => None,
            Credit::Unsaid => {
                if self.desk.post(&path, &body).await.status == 200 {
                    self.books = after;
                }
                return;
            }
        };
        let given = if refusal.is_none() {
            qty
        } else if partial
            && refusal.is_some_and(|(_, code)| code.ends_with("_exceeded") || code == "exceeds_ordered")
        {
            self.books.what_there_is(order, sku, qty)
        } else {
            0
        };
        let Some((status, code)) = refusal.filter(|_| given == 0) else {
            let answer = self.expect(&path, &body, 200, "").await;
            assert_eq!(answer["lines"][0]["qty"], given, "{answer} {body} {:#?}", self.books);
            self.books.orders[order].lines[sku].allocated += given;
            self.done.push(if given < qty { "partial" } else { "allocate" });
            return;
        };
        self.expect(&path, &body, status, code).await;
    }

    async fn release(&mut self, order: usize, sku: usize, qty: i64) {
        let (path, body) = (self.desk.order(order, "/release"), self.desk.shop.one(sku, qty));
        let of = &mut self.books.orders[order];
        let (status, code) = match () {
            () if of.status != Status::Open => (409, "order_not_open"),
            () if !of.lines[sku].present => (422, "sku_not_on_order"),
            () if qty > of.lines[sku].allocated => (422, "exceeds_allocated"),
            () => {
                of.lines[sku].allocated -= qty;
                (200, "")
            }
        };
        self.expect(&path, &body, status, code).await;
        self.done.extend((status == 200).then_some("release"));
    }

    async fn ship(&mut self, order: usize, sku: usize, qty: i64) {
        self.desk.ship(order, &[(sku, qty)]).await;
        let of = &mut self.books.orders[order];
        let line = &mut of.lines[sku];
        // First what the order holds, then up to what it wants; the rest leaves on_hand only.
        let held = qty.min(line.allocated);
        let more = (qty - held).min(line.open());
        line.allocated -= held;
        line.shipped += held + more;
        of.end_if_shipped();
        self.done.push("ship");
    }

    async fn save(&mut self, order: usize, lines: [(i64, usize); SKUS]) {
        let mut after = self.books.clone();
        let mut run = Vec::new();
        for (sku, (line, (more, price))) in after.orders[order].lines.iter_mut().zip(lines).enumerate() {
            let qty = line.held() + more;
            *line = Line { present: qty > 0, qty, price: PRICES[price], ..*line };
            if line.present {
                run.push(json!({"skuId": self.desk.sku(sku), "qty": qty, "unitPriceMinor": line.price}));
            }
        }
        after.orders[order].version += 1;
        after.orders[order].end_if_shipped();
        let body = json!({"baseVersion": self.books.orders[order].version, "lines": run});
        let reply = self.desk.patch(&self.desk.order(order, ""), &body).await;
        let context = format!("{body}: {}\n{:#?}", reply.json(), self.books);
        let (status, code) = match self.books.credit(&after) {
            _ if self.books.orders[order].status != Status::Open => (409, "order_not_open"),
            Credit::Exceeded => (422, "credit_limit_exceeded"),
            // It adds nothing.
            Credit::Within | Credit::Unsaid => (200, ""),
        };
        assert_eq!(refused(&reply), (status, code.to_owned()), "{context}");
        if status == 200 {
            assert_eq!(reply.json()["order"]["status"], after.orders[order].status.name(), "{context}");
            self.books = after;
            self.done.push("save");
        }
    }

    async fn invoice(&mut self, order: usize) {
        let path = self.desk.order(order, "/invoices");
        let of = self.books.orders[order].clone();
        let total_minor = of.value();
        if total_minor == 0 {
            let reply = self.desk.post(&path, &json!({})).await;
            let cancelled =
                of.status == Status::Cancelled && refused(&reply) == (409, "order_not_open".into());
            assert!(cancelled || refused(&reply) == (422, "nothing_to_invoice".into()), "{}", reply.json());
            return;
        }
        let made = self.expect(&path, &json!({}), 201, "").await;
        assert_eq!((&made["totalMinor"], &made["status"]), (&json!(total_minor), &json!("awaiting_payment")));
        let units = of.lines.map(|line| line.due());
        for (line, billed) in self.books.orders[order].lines.iter_mut().zip(units) {
            line.invoiced += billed;
        }
        self.done.push("invoice");
        let id = made["id"].as_str().unwrap().to_owned();
        self.books.invoices.push(Invoice {
            id,
            order,
            units,
            total_minor,
            payments: Vec::new(),
            touched: false,
            void: false,
            refunded: false,
        });
    }

    async fn close(&mut self, order: usize) {
        let path = self.desk.order(order, "/close");
        let of = &mut self.books.orders[order];
        let (status, code) = match () {
            () if of.status != Status::Open => (409, "order_not_open"),
            () if !of.has_shipped() => (409, "nothing_shipped"),
            () => {
                of.status = Status::Shipped;
                for line in &mut of.lines {
                    *line = Line { present: line.shipped > 0, qty: line.shipped, allocated: 0, ..*line };
                }
                of.version += 1;
                (200, "")
            }
        };
        self.expect(&path, &json!({}), status, code).await;
        self.done.extend((status == 200).then_some("close"));
    }

    async fn cancel(&mut self, order: usize) {
        let path = self.desk.order(order, "/cancel");
        let of = &mut self.books.orders[order];
        let (status, code) = match () {
            () if of.status != Status::Open => (409, "order_not_open"),
            () if of.has_shipped() => (409, "order_part_shipped"),
            () => {
                of.status = Status::Cancelled;
                of.lines.iter_mut().for_each(|line| line.allocated = 0);
                of.version += 1;
                (200, "")
            }
        };
        self.expect(&path, &json!({}), status, code).await;
        self.done.extend((status == 200).then_some("cancel"));
    }

    /// One of the invoices, if there is any.
    fn pick(&self, invoice: usize) -> Option<usize> {
        invoice.checked_rem(self.books.invoices.len())
    }

    async fn void(&mut self, invoice: usize) {
        let Some(n) = self.pick(invoice) else { return };
        let of = self.books.invoices[n].clone();
        if of.touched && of.payments.is_empty() && !of.void {
            // All that was received bounced: whether that is nothing is not told by the contract.
            return;
        }
        let path = format!("/invoices/{}/void", of.id);
        let taken = !of.void && of.payments.is_empty();
        let (status, code) = if taken { (200, "") } else { (409, "invoice_state") };
        let answer = self.expect(&path, &json!({"reason": "a wrong price"}), status, code).await;
        if taken {
            assert_eq!((&answer["id"], &answer["status"]), (&json!(of.id), &json!("void")));
            self.books.invoices[n].void = true;
            self.done.push("void");
            for (line, units) in self.books.orders[of.order].lines.iter_mut().zip(of.units) {
                line.invoiced -= units;
            }
        }
    }

    async fn pay(&mut self, invoice: usize, hundredths: i64) {
        let Some(n) = self.pick(invoice) else { return };
        let of = self.books.invoices[n].clone();
        if of.void || of.refunded {
            return;
        }
        let amount = (of.due() * hundredths / 100).max(1);
        self.references += 1;
        let body = json!({"amountMinor": amount, "reference": format!("transfer {}", self.references)});
        let path = format!("/invoices/{}/payments", of.id);
        if amount > of.due() {
            self.expect(&path, &body, 422, "exceeds_due").await;
            return;
        }
        let answer = self.expect(&path, &body, 201, "").await;
        self.books.invoices[n].payments.push(amount);
        self.books.invoices[n].touched = true;
        let due = self.books.invoices[n].due();
        self.done.push(if due == 0 { "paid" } else { "pay" });
        let status = if due == 0 { "paid" } else { "awaiting_payment" };
        assert_eq!((&answer["status"], &answer["paidMinor"]), (&json!(status), &json!(of.total_minor - due)));
        self.expect(&path, &json!({"amountMinor": 1, "reference": body["reference"]}), 409, "payment_exists")
            .await;
    }

    /// The last payment comes back.
    async fn bounce(&mut self, invoice: usize) {
        let Some(n) = self.pick(invoice) else { return };
        let of = &mut self.books.invoices[n];
        let Some(amount) = of.payments.pop() else { return };
        self.references += 1;
        let body = json!({"amountMinor": -amount, "reference": format!("bounced {}", self.references)});
        let path = format!("/invoices/{}/payments", of.id);
        let reply = self.desk.post(&path, &body).await;
        assert_eq!(reply.status, 201, "{body}: {}", reply.json());
        let of = &mut self.books.invoices[n];
        self.done.push("bounce");
        of.refunded = reply.json()["status"] == "refunded";
        assert!(of.refunded || reply.json()["status"] == "awaiting_payment", "{}", reply.json());
        assert!(!of.refunded || of.payments.is_empty(), "some of it is still here: {}", reply.json());
    }

    /// Compares the customer, the orders and the invoices with the model.
    async fn check(&self, after: &str) {
        let desk = &self.desk;
        assert_eq!(desk.exposure().await, self.books.exposure(), "exposure {after}: {:#?}", self.books);
        for (n, order) in self.books.orders.iter().enumerate() {
            let told = desk.get(&desk.order(n, "")).await;
            assert_eq!(
                (&told["status"], &told["version"]),
                (&json!(order.status.name()), &json!(order.version)),
                "{after}"
            );
            let mut lines: Vec<Value> = Vec::new();
            for (sku, line) in order.lines.iter().enumerate().filter(|(_, line)| line.present) {
                lines.push(
                    json!({"skuId": desk.sku(sku), "code": format!("SKU-{:04}", sku + 1), "qty": line.qty,
                    "qtyAllocated": line.allocated, "qtyShipped": line.shipped, "qtyInvoiced": line.invoiced,
                    "unitPriceMinor": line.price}),
                );
            }
            assert_eq!(told["lines"], json!(lines), "{after}");
        }
    }
}

/// Plays a history from a new tenant to its end, and returns what went through.
pub async fn live(limit: Option<i64>, steps: &[Step]) -> Vec<&'static str> {
    let mut run = Run::open(limit).await;
    for step in steps {
        run.take(step).await;
        run.check(&format!("after {step:?}")).await;
    }
    // The end: all is billed, and that once.
    for order in 0..ORDERS {
        run.invoice(order).await;
        run.invoice(order).await;
    }
    run.check("at the end").await;
    for order in &run.books.orders {
        for line in &order.lines {
            assert!(line.invoiced >= line.shipped || (order.value() == 0 && line.price == 0), "{order:#?}");
        }
    }
    let uneven = "order_line l where l.qty_invoiced <> coalesce((select sum(x.qty) from invoice i
          join invoice_line x on x.tenant_id = i.tenant_id and x.invoice_id = i.id
          where i.order_id = l.order_id and i.status <> 'void' and x.sku_id = l.sku_id), 0)";
    assert_eq!(run.desk.shop.db.count(uneven).await, 0, "lines that differ from their invoices");
    let uneven = "invoice i where total_minor <> (select sum(qty * unit_price_minor) from invoice_line x where x.invoice_id = i.id)";
    assert_eq!(run.desk.shop.db.count(uneven).await, 0, "invoices that differ from their lines");
    run.desk.shop.db.assert_consistent().await;
    run.done
}

#[test]
fn after_any_history_exposure_is_what_is_owed_and_held_and_every_shipped_unit_is_billed_once() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let config = Config { cases: 24, failure_persistence: None, max_shrink_iters: 80, ..Config::default() };
    let limit = prop::option::weighted(0.5, 3_000_i64..25_000);
    TestRunner::new(config)
        .run(&(limit, vec(any_step(), 10..34)), |(limit, steps)| {
            runtime.block_on(live(limit, &steps));
            Ok(())
        })
        .unwrap();
}
