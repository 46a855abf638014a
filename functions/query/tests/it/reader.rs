//! A reading user: one sandbox, one token.

use shared::idempotency::endpoint::Endpoint;
use testing::{Event, Reply, Tenant, TestDb};

pub struct Reader {
    endpoint: Endpoint,
    token: String,
}

impl Reader {
    /// The tenant's first user, with all scopes.
    pub fn of(db: &TestDb, tenant: &Tenant) -> Self {
        Self::with(db, tenant.token())
    }

    /// The holder of this credential.
    pub fn with(db: &TestDb, token: String) -> Self {
        Self { endpoint: db.endpoint(), token }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send(Event::get(path).bearer(&self.token)).await
    }

    pub async fn send(&self, event: Event) -> Reply {
        query::handle(&self.endpoint, event.request()).await.into()
    }

    /// The ids of a page, and its `next`.
    pub async fn page(&self, path: &str) -> (Vec<String>, Option<String>) {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", String::from_utf8_lossy(&reply.body));
        let page = reply.json();
        let ids = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["id"].as_str().unwrap().into())
            .collect();
        (ids, page["next"].as_str().map(str::to_owned))
    }
}
