//! The promises of customer-save, tested with the deployed handler against a real PostgreSQL.
#![expect(clippy::unwrap_used, reason = "a story that cannot be told has failed")]

mod save;
mod versions;
mod who;

use serde_json::Value;
use testing::{Event, Reply, Seed, Shop, fresh_key};

/// What may change a customer and read it.
const SCOPES: &str = "credit:write orders:read";

/// A tenant and a sandbox of this function.
struct Books {
    shop: Shop,
    sandbox: shared::idempotency::endpoint::Endpoint,
}

impl Books {
    async fn open(seed: Seed) -> Self {
        let shop = Shop::open(seed).await;
        let sandbox = shop.db.endpoint();
        Self { shop, sandbox }
    }

    fn path(&self) -> String {
        format!("/customers/{}", self.shop.tenant.customer)
    }

    /// Of Ann, or of Ben.
    fn token(&self, user: usize) -> String {
        testing::token(self.shop.tenant.id, self.shop.tenant.users[user], SCOPES)
    }

    /// Ann's save under a fresh key.
    fn patch(&self, body: &Value) -> Event {
        self.patch_of(0, body)
    }

    fn patch_of(&self, user: usize, body: &Value) -> Event {
        Event::new("PATCH", &self.path()).bearer(&self.token(user)).key(&fresh_key()).json(body)
    }

    async fn send(&self, event: &Event) -> Reply {
        Reply::from(customer_save::handle(&self.sandbox, event.request()).await)
    }

    /// `GET /customers/{customerId}`.
    async fn read(&self) -> Reply {
        let event = Event::get(&self.path()).bearer(&self.token(0));
        Reply::from(query::handle(&self.sandbox, event.request()).await)
    }
}

fn refused(reply: &Reply) -> (u16, String) {
    (reply.status, reply.error().unwrap_or_default())
}

fn refusal(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}
