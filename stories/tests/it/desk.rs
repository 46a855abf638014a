//! One tenant as its people, its warehouse and its books see it: every function behind one door.

use serde_json::{Value, json};
use shared::delivery::address::Guard;
use shared::idempotency::endpoint::Endpoint;
use shared::webhooks::inbox::Receiver;
use testing::{Event, Reply, Seed, Shop, fresh_key};
use uuid::Uuid;

const ACCOUNT: &str = "north-3pl";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// What an account manager who may also set limits holds.
const SCOPES: &str = "orders:write orders:read credit:write";

/// A tenant whose warehouse is a 3PL.
pub struct Desk {
    pub shop: Shop,
    pub sandbox: Endpoint,
    warehouse: threepl_webhook::Webhook,
}

/// An answer to a single request, by the function that serves its path.
pub async fn answer(sandbox: &Endpoint, event: &Event) -> Reply {
    let request = event.request();
    let (method, path) = (request.method().clone(), event.to_json()["rawPath"].as_str().unwrap().to_owned());
    let last = path.rsplit('/').next().unwrap();
    let response = match (method.as_str(), last) {
        ("GET", _) => query::handle(sandbox, request).await,
        (_, "allocate") => allocate::handle(sandbox, request).await,
        (_, "release") => release::handle(sandbox, request).await,
        (_, "invoices" | "void" | "payments") => invoice::handle(sandbox, request).await,
        _ if path.starts_with("/customers/") => customer_save::handle(sandbox, request).await,
        _ if path.starts_with("/styles/") => style_save::handle(sandbox, request).await,
        _ => order_save::handle(sandbox, request).await,
    };
    let reply = Reply::from(response);
    assert!(reply.status < 500, "{method} {path}: {reply:?}");
    reply
}

impl Desk {
    pub async fn open(seed: Seed) -> Self {
        let shop = Shop::open(seed).await;
        let tenant = shop.tenant.id;
        shop.db
            .execute(format!(
                "insert into threepl_account (id, tenant_id, secret) values ('{ACCOUNT}', '{tenant}', '{SECRET}')"
            ))
            .await;
        let sandbox = shop.db.endpoint();
        let warehouse = threepl_webhook::Webhook {
            receiver: Receiver::new(&shop.db.app_config()).unwrap(),
            sealer: testing::sealer(),
        };
        Self { shop, sandbox, warehouse }
    }

    /// The path of `/orders/{id}` and what follows it.
    pub fn order(&self, order: usize, rest: &str) -> String {
        format!("/orders/{}{rest}", self.shop.tenant.orders[order])
    }

    pub fn customer(&self) -> String {
        format!("/customers/{}", self.shop.tenant.customer)
    }

    pub fn sku(&self, sku: usize) -> Uuid {
        self.shop.tenant.skus[sku]
    }

    pub fn token(&self, user: usize) -> String {
        testing::token(self.shop.tenant.id, self.shop.tenant.users[user], SCOPES)
    }

    /// Ann's request under a fresh key.
    pub fn event(&self, method: &str, path: &str, body: &Value) -> Event {
        self.event_of(0, method, path, body)
    }

    pub fn event_of(&self, user: usize, method: &str, path: &str, body: &Value) -> Event {
        Event::new(method, path).bearer(&self.token(user)).key(&fresh_key()).json(body)
    }

    pub async fn send(&self, event: &Event) -> Reply {
        answer(&self.sandbox, event).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(&self.event("POST", path, body)).await
    }

    pub async fn patch(&self, path: &str, body: &Value) -> Reply {
        self.send(&self.event("PATCH", path, body)).await
    }

    pub async fn read(&self, path: &str) -> Reply {
        self.send(&Event::get(path).bearer(&self.token(0))).await
    }

    /// The document at a path that exists.
    pub async fn get(&self, path: &str) -> Value {
        let reply = self.read(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.json());
        reply.json()
    }

    /// Allocates and asserts that all was promised.
    pub async fn promise(&self, order: usize, sku: usize, qty: i64) {
        let reply = self.post(&self.order(order, "/allocate"), &self.shop.one(sku, qty)).await;
        assert_eq!(reply.status, 200, "{}", reply.json());
    }

    /// The 3PL ships units of an order.
    pub async fn ship(&self, order: usize, lines: &[(usize, i64)]) {
        self.ship_order(self.shop.tenant.orders[order], lines).await;
    }

    pub async fn ship_order(&self, order: Uuid, lines: &[(usize, i64)]) {
        let lines: Vec<Value> = lines
            .iter()
            .enumerate()
            .map(|(n, (sku, qty))| json!({"lineId": n.to_string(), "sku": format!("SKU-{:04}", sku + 1), "qty": qty}))
            .collect();
        let id = fresh_key();
        let body = json!({"type": "order.shipped", "orderId": order, "shipmentId": id, "lines": lines});
        let reply = self.tell(&id, &body).await;
        assert_eq!((reply.status, reply.json()), (200, json!({"received": true})));
    }

    /// What the 3PL tells, under this event id.
    pub async fn tell(&self, id: &str, body: &Value) -> Reply {
        let body = body.to_string();
        let now = jiff::Timestamp::now().as_second();
        let signature =
            standardwebhooks::Webhook::new(SECRET).unwrap().sign(id, now, body.as_bytes()).unwrap();
        let event = Event::post(&format!("/webhooks/3pl/{ACCOUNT}"))
            .header("webhook-id", id)
            .header("webhook-timestamp", &now.to_string())
            .header("webhook-signature", &signature)
            .body(body.as_bytes());
        Reply::from(threepl_webhook::handle(&self.warehouse, event.request()).await)
    }

    /// A sandbox of the console.
    pub fn console(shop: &Shop) -> console::Console {
        console::Console {
            endpoint: shop.db.endpoint(),
            guard: Guard::default(),
            page: Default::default(),
            sealer: testing::sealer(),
        }
    }

    /// The customer's exposure as `GET` tells it.
    pub async fn exposure(&self) -> i64 {
        self.get(&self.customer()).await["exposureMinor"].as_i64().unwrap()
    }

    /// One value of one row, as text.
    pub async fn text(&self, sql: &str) -> String {
        self.shop.db.text(sql).await
    }

    /// `(type, data)` of an aggregate's events, in their sequence.
    pub async fn events(&self, aggregate: Uuid) -> Vec<(String, Value)> {
        let payloads: Vec<String> =
            sqlx::query_scalar("select payload from outbox where aggregate_id = $1 order by sequence")
                .bind(aggregate)
                .fetch_all(&mut self.shop.db.owner().await)
                .await
                .unwrap();
        payloads
            .iter()
            .map(|payload| {
                let event: Value = serde_json::from_str(payload).unwrap();
                (event["type"].as_str().unwrap().to_owned(), event["data"].clone())
            })
            .collect()
    }

    /// The types of an aggregate's events, in their sequence.
    pub async fn types(&self, aggregate: Uuid) -> Vec<String> {
        self.events(aggregate).await.into_iter().map(|(name, _)| name).collect()
    }
}

/// The status and the code of a refusal, or the empty code.
pub fn refused(reply: &Reply) -> (u16, String) {
    (reply.status, reply.error().unwrap_or_default())
}

/// What a refusal should be.
pub fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

/// `qty qtyAllocated qtyShipped qtyInvoiced unitPriceMinor` of each line of an order document.
pub fn lines_of(order: &Value) -> Vec<[i64; 5]> {
    let names = ["qty", "qtyAllocated", "qtyShipped", "qtyInvoiced", "unitPriceMinor"];
    order["lines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| names.map(|name| line[name].as_i64().unwrap()))
        .collect()
}
