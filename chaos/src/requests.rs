//! What clients and partners ask for, drawn at random.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use jiff::Timestamp;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::intent::Request;
use crate::world::{INVOICE_MINOR, World};
use xtask::signing;

/// Counts what needs an id of its own: ASNs, events, channel orders.
#[derive(Default)]
pub struct Numbers(AtomicU64);

impl Numbers {
    fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// One of those that were given out, often a late one.
    fn recent(&self, rng: &mut StdRng) -> u64 {
        let last = self.0.load(Ordering::SeqCst).max(1);
        rng.random_range(last.saturating_sub(20).max(1)..=last)
    }
}

/// Draws requests.
pub struct Requests<'w> {
    pub world: &'w World,
    pub seed: u64,
    pub asns: &'w Numbers,
    pub channel_orders: &'w Numbers,
    pub deliveries: &'w Numbers,
}

/// A first draft of a request, which needs the version of what it saves.
pub enum Drawn {
    Ready(Request),
    /// Saves this order: its version has to be read first.
    Save(Uuid),
    /// Saves the style or a customer: path to read, function that saves.
    SaveAt {
        read: String,
        function: &'static str,
    },
}

impl Requests<'_> {
    /// Any request.
    pub fn draw(&self, rng: &mut StdRng) -> Result<Drawn> {
        let orders = self.world.orders();
        let order = *orders.choose(rng).unwrap_or(&self.world.tenant);
        let ready = |request| Ok(Drawn::Ready(request));
        match rng.random_range(0..100) {
            0..22 => ready(self.allocate(rng, order, 1, false)),
            22..30 => {
                let order = *self.world.counter_orders.choose(rng).unwrap_or(&order);
                ready(self.count(rng, order))
            }
            30..36 => ready(self.allocate(rng, order, 3, false)),
            36..42 => ready(self.allocate(rng, order, 4, true)),
            42..54 => ready(self.release(rng, order)),
            54..62 => Ok(Drawn::Save(order)),
            62..64 => {
                let customer = self.world.customers[rng.random_range(0..2)];
                Ok(match rng.random_bool(0.5) {
                    true => {
                        Drawn::SaveAt { read: format!("/customers/{customer}"), function: "customer-save" }
                    }
                    false => Drawn::SaveAt {
                        read: format!("/styles/{}", self.world.style),
                        function: "style-save",
                    },
                })
            }
            64..68 => ready(self.create(rng)),
            68..69 => {
                ready(self.keyed("order-save", format!("/orders/{order}/cancel"), json!({}), "cancel", rng))
            }
            69..70 => {
                ready(self.keyed("order-save", format!("/orders/{order}/close"), json!({}), "close", rng))
            }
            70..74 => {
                ready(self.keyed("invoice", format!("/orders/{order}/invoices"), json!({}), "invoice", rng))
            }
            74..77 => {
                let invoice = self.invoice(rng);
                let body = json!({"amountMinor": rng.random_range(1..3_000), "reference": format!("wire {}", self.deliveries.next())});
                ready(self.keyed(
                    "invoice",
                    format!("/invoices/{invoice}/payments"),
                    body,
                    "pay by hand",
                    rng,
                ))
            }
            77..78 => {
                let path = format!("/invoices/{}/void", self.invoice(rng));
                ready(self.keyed("invoice", path, json!({"reason": "chaos"}), "void", rng))
            }
            78..83 => Ok(Drawn::Ready(self.stripe(rng)?)),
            83..92 => Ok(Drawn::Ready(self.shopify(rng)?)),
            _ => Ok(Drawn::Ready(self.threepl(rng, order)?)),
        }
    }

    fn invoice(&self, rng: &mut StdRng) -> Uuid {
        *self.world.invoices.choose(rng).unwrap_or(&self.world.tenant)
    }

    /// A keyed request of one of the users; POST.
    pub fn keyed(
        &self,
        function: &'static str,
        path: String,
        body: Value,
        what: &'static str,
        rng: &mut StdRng,
    ) -> Request {
        let key = format!("chaos-{}-{:016x}", self.seed, rng.next_u64());
        let token = &self.world.tokens[rng.random_range(0..2)];
        let headers = vec![
            ("authorization".to_owned(), format!("Bearer {token}")),
            ("content-type".to_owned(), "application/json".to_owned()),
            ("idempotency-key".to_owned(), key.clone()),
        ];
        Request {
            function,
            method: "POST",
            path,
            headers,
            body: body.to_string(),
            key: Some(key),
            delivery: None,
            what,
        }
    }

    fn lines(&self, rng: &mut StdRng, count: usize) -> Vec<Value> {
        let skus = &self.world.skus;
        (0..count)
            .filter_map(|_| skus.choose(rng).map(|(sku, _)| (*sku, rng.random_range(1..5))))
            .map(|(sku, qty)| json!({"skuId": sku, "qty": qty}))
            .collect()
    }

    fn allocate(&self, rng: &mut StdRng, order: Uuid, lines: usize, partial: bool) -> Request {
        let lines = self.lines(rng, lines);
        let body = match (lines.as_slice(), partial) {
            ([one], false) => one.clone(),
            (many, true) => json!({"lines": many, "partial": true}),
            (many, false) => json!({"lines": many}),
        };
        let what = if partial { "allocate what there is" } else { "allocate" };
        self.keyed("allocate", format!("/orders/{order}/allocate"), body, what, rng)
    }

    fn release(&self, rng: &mut StdRng, order: Uuid) -> Request {
        let many = rng.random_range(1..3);
        let lines = self.lines(rng, many);
        self.keyed("release", format!("/orders/{order}/release"), json!({"lines": lines}), "release", rng)
    }

    /// An allocation or a release of a counter.
    fn count(&self, rng: &mut StdRng, order: Uuid) -> Request {
        let sku = self.world.counters.choose(rng).map(|(sku, _)| *sku);
        let body = json!({"skuId": sku, "qty": rng.random_range(1..4)});
        let function = if rng.random_bool(0.6) { "allocate" } else { "release" };
        self.keyed(function, format!("/orders/{order}/{function}"), body, function, rng)
    }

    fn create(&self, rng: &mut StdRng) -> Request {
        let lines: Vec<Value> = self
            .world
            .skus
            .iter()
            .map(|(sku, _)| json!({"skuId": sku, "qty": rng.random_range(5..25), "unitPriceMinor": 1_000}))
            .collect();
        let customer = self.world.customers[rng.random_range(0..2)];
        self.keyed(
            "order-save",
            "/orders".into(),
            json!({"customerId": customer, "lines": lines}),
            "create",
            rng,
        )
    }

    /// A save of what was read; `document` is the order, style or customer.
    pub fn save(&self, rng: &mut StdRng, function: &'static str, path: String, document: &Value) -> Request {
        let version = &document["version"];
        let body = match function {
            "order-save" if rng.random_bool(0.5) => {
                let lines = document["lines"].as_array().cloned().unwrap_or_default().into_iter().map(|line| {
                    let used = line["qtyAllocated"].as_i64().unwrap_or(0) + line["qtyShipped"].as_i64().unwrap_or(0);
                    json!({"skuId": line["skuId"], "qty": used.max(1) + rng.random_range(0..20), "unitPriceMinor": line["unitPriceMinor"]})
                });
                json!({"baseVersion": version, "lines": lines.collect::<Vec<_>>()})
            }
            "order-save" => json!({"baseVersion": version, "notes": format!("note {}", rng.next_u32())}),
            "style-save" => json!({"baseVersion": version, "wholesaleMinor": rng.random_range(500..2_000)}),
            _ if rng.random_bool(0.2) => json!({"baseVersion": version, "onHold": rng.random_bool(0.3)}),
            _ if document["creditLimitMinor"].is_null() => {
                json!({"baseVersion": version, "name": "Boutique"})
            }
            _ => {
                json!({"baseVersion": version, "creditLimitMinor": rng.random_range(100_000..250_000), "onHold": false})
            }
        };
        let mut request = self.keyed(function, path, body, "save", rng);
        request.method = "PATCH";
        request
    }

    /// Seconds by which a sender's clock is off: mostly within what is tolerated.
    fn clock(rng: &mut StdRng) -> Timestamp {
        let now = Timestamp::now();
        let skew = rng.random_range(-240..240);
        now.saturating_add(jiff::SignedDuration::from_secs(skew)).unwrap_or(now)
    }

    fn delivery(
        function: &'static str,
        path: String,
        headers: Vec<(&str, String)>,
        body: &Value,
        delivery: (String, String),
        what: &'static str,
    ) -> Request {
        let mut headers: Vec<_> = headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        headers.push(("content-type".into(), "application/json".into()));
        Request {
            function,
            method: "POST",
            path,
            headers,
            body: body.to_string(),
            key: None,
            delivery: Some(delivery),
            what,
        }
    }

    /// A payment; a payment intent is told of under several event ids.
    fn stripe(&self, rng: &mut StdRng) -> Result<Request> {
        let invoice = self.invoice(rng);
        let event = format!("evt_{}_{}", self.seed, self.deliveries.next());
        let intent = format!("pi_{}_{}", &invoice.simple().to_string()[..12], rng.random_range(0..2));
        let body = json!({
            "id": event, "object": "event", "type": "payment_intent.succeeded", "livemode": false,
            "created": Timestamp::now().as_second(), "api_version": "2026-01-28",
            "data": {"object": {
                "id": intent, "object": "payment_intent", "amount": INVOICE_MINOR, "amount_received": INVOICE_MINOR,
                "currency": "usd", "status": "succeeded", "metadata": {"invoice_id": invoice},
            }},
        });
        let signature =
            signing::stripe(&self.world.stripe_secret, Self::clock(rng), body.to_string().as_bytes())?;
        let headers = vec![("stripe-signature", signature)];
        Ok(Self::delivery(
            "stripe-webhook",
            "/webhooks/stripe".into(),
            headers,
            &body,
            ("stripe".into(), event),
            "payment",
        ))
    }

    /// A channel order, or a newer body of one: other quantities, or its cancellation.
    fn shopify(&self, rng: &mut StdRng) -> Result<Request> {
        let fresh = rng.random_bool(0.6);
        let number = if fresh { self.channel_orders.next() } else { self.channel_orders.recent(rng) };
        let cancelled = !fresh && rng.random_bool(0.3);
        let (topic, what) = match (fresh, cancelled) {
            (true, _) => ("orders/create", "channel order"),
            (_, true) => ("orders/cancelled", "channel order cancelled"),
            _ => ("orders/updated", "channel order edited"),
        };
        // The lines of an order are the same in all its bodies, but for the quantity.
        let sku = |line: u64| {
            &self.world.skus[usize::try_from((number + line) % self.world.skus.len() as u64).unwrap_or(0)].1
        };
        let now = Timestamp::now();
        let lines: Vec<Value> = (0..2)
            .map(|line| {
                let quantity = rng.random_range(1..5);
                json!({"id": number * 10 + line, "sku": sku(line), "quantity": quantity, "current_quantity": quantity,
                       "requires_shipping": true, "price": "10.00"})
            })
            .collect();
        let body = json!({
            "id": 7_000_000_000_000_000_000_u64 + number, "name": format!("#{number}"),
            "created_at": "2026-01-01T00:00:00Z", "updated_at": now, "cancelled_at": cancelled.then_some(now),
            "refunds": [], "fulfillments": [], "line_items": lines,
        });
        let id = format!("shopify-{}-{}", self.seed, self.deliveries.next());
        let headers = vec![
            (
                "x-shopify-hmac-sha256",
                signing::shopify(&self.world.shopify_secret, body.to_string().as_bytes())?,
            ),
            ("x-shopify-topic", topic.to_owned()),
            ("x-shopify-shop-domain", self.world.shop_domain.clone()),
            ("x-shopify-webhook-id", id.clone()),
            ("x-shopify-triggered-at", now.to_string()),
        ];
        let provider = format!("shopify:{}", self.world.shop_domain);
        Ok(Self::delivery(
            "shopify-webhook",
            "/webhooks/shopify".into(),
            headers,
            &body,
            (provider, id),
            what,
        ))
    }

    /// An ASN, its receipt, or a shipment.
    fn threepl(&self, rng: &mut StdRng, order: Uuid) -> Result<Request> {
        let line = |rng: &mut StdRng, id: String| {
            let code = self.world.skus.choose(rng).map(|(_, code)| code.as_str());
            json!({"lineId": id, "sku": code, "qty": rng.random_range(1..8)})
        };
        let (body, what) = match rng.random_range(0..10) {
            0..4 => {
                let asn = self.asns.next();
                let lines = [line(rng, "1".into())];
                (json!({"type": "asn.created", "asnId": format!("ASN-{asn}"), "lines": lines}), "asn.created")
            }
            4..8 => {
                let asn = self.asns.recent(rng);
                let receipt = format!("R-{}", self.deliveries.next());
                let lines = [line(rng, "1".into())];
                let closed = rng.random_bool(0.5);
                let body = json!({"type": "asn.received", "asnId": format!("ASN-{asn}"), "receiptId": receipt, "closed": closed, "lines": lines});
                (body, "asn.received")
            }
            _ => {
                let shipment = format!("S-{}", self.deliveries.next());
                let lines = [line(rng, "1".into())];
                (
                    json!({"type": "order.shipped", "orderId": order, "shipmentId": shipment, "lines": lines}),
                    "order.shipped",
                )
            }
        };
        let id = format!("3pl-{}-{}", self.seed, self.deliveries.next());
        let now = Self::clock(rng);
        let signature =
            signing::standard_webhooks(&self.world.threepl_secret, &id, now, body.to_string().as_bytes())?;
        let headers = vec![
            ("webhook-id", id.clone()),
            ("webhook-timestamp", now.as_second().to_string()),
            ("webhook-signature", signature),
        ];
        let account = &self.world.threepl_account;
        let path = format!("/webhooks/3pl/{account}");
        Ok(Self::delivery("threepl-webhook", path, headers, &body, (format!("3pl:{account}"), id), what))
    }
}
