//! The promises of the console, tested with the deployed handler against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod addresses;
mod attention;
mod batches;
mod buses;
mod destinations;
mod ends;
mod events;
mod exceptions;
mod outbox;
mod page;
mod reconciliations;
mod tried;
mod who;

use console::Console;
use serde_json::{Value, json};
use shared::delivery::address::Guard;
use testing::{Event, Hold, Reply, Seed, Shop, fresh_key};

/// A tenant and a console sandbox.
pub(crate) struct Desk {
    pub(crate) shop: Shop,
    pub(crate) console: Console,
}

impl Desk {
    /// A console that allows destinations at 127.0.0.1.
    pub(crate) async fn open() -> Self {
        let shop = Shop::open(Seed::default()).await;
        let console = Console {
            endpoint: shop.db.endpoint(),
            guard: Guard::allowing("127.0.0.1").unwrap(),
            page: Default::default(),
            sealer: testing::sealer(),
        };
        Self { shop, console }
    }

    pub(crate) async fn send(&self, event: &Event) -> Reply {
        Reply::from(console::handle(&self.console, event.request()).await)
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(&Event::get(path).bearer(&self.shop.tenant.token())).await
    }

    /// A GET that is answered 200.
    pub(crate) async fn read(&self, path: &str) -> Value {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.json());
        reply.json()
    }

    /// A POST under a fresh key.
    pub(crate) fn posting(&self, path: &str, body: &Value) -> Event {
        Event::post(path).bearer(&self.shop.tenant.token()).key(&fresh_key()).json(body)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(&self.posting(path, body)).await
    }

    pub(crate) async fn patch(&self, path: &str, body: &Value) -> Reply {
        let event = Event::new("PATCH", path).bearer(&self.shop.tenant.token());
        self.send(&event.key(&fresh_key()).json(body)).await
    }

    /// Creates a webhook for all events; returns its id.
    pub(crate) async fn webhook(&self) -> String {
        let body = json!({"name": "Partner", "kind": "webhook", "url": "http://127.0.0.1:9/hook", "eventTypes": ["*"]});
        let reply = self.post("/admin/destinations", &body).await;
        assert_eq!(reply.status, 201, "{}", reply.json());
        reply.json()["id"].as_str().unwrap().to_owned()
    }

    /// An event of the tenant whose transaction is still open: it knows the destinations as they were.
    pub(crate) async fn late_event(&self) -> Hold {
        let event = format!(
            "with bumped as (update tenant set event_sequence = event_sequence + 1 where id = '{0}' returning event_sequence as n)
             select holdfast.emit('{0}', array[row('inbox.exception', 'tenant', '{0}', n, null, '{{}}')::holdfast.event]) from bumped",
            self.shop.tenant.id
        );
        self.shop.db.hold(event).await
    }

    /// The ids of a list's items.
    pub(crate) async fn ids(&self, path: &str) -> Vec<String> {
        let list = self.read(path).await;
        list["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
    }
}
