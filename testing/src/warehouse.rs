//! A 3PL that reports its stock page by page.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::TestDb;

/// The bearer token of every account.
const TOKEN: &str = "warehouse-token";
/// A request for a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The account.
    pub account: String,
    /// The number of lines before the page.
    pub cursor: Option<String>,
    /// Lines that were asked for.
    pub limit: usize,
}

type Script = Box<dyn Fn(usize, &Asked, Value) -> Response + Send>;

/// SKU, units and moment of a count.
type Counted = (String, i64, Timestamp);

struct Inner {
    /// By account.
    stock: Mutex<HashMap<String, Vec<Counted>>>,
    asked: Mutex<Vec<Asked>>,
    script: Mutex<Script>,
    delay: Mutex<Duration>,
}

/// An HTTP server on loopback.
#[derive(Clone)]
pub struct Warehouse {
    url: String,
    inner: Arc<Inner>,
}

impl Warehouse {
    /// One without stock, that answers at once.
    pub async fn start() -> Self {
        let inner = Arc::new(Inner {
            stock: Mutex::default(),
            asked: Mutex::default(),
            script: Mutex::new(Box::new(|_, _, page| Json(page).into_response())),
            delay: Mutex::default(),
        });
        let router = Router::new().route("/{account}/inventory", get(report)).with_state(Arc::clone(&inner));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, inner }
    }

    /// Sets what an account has counted at a moment.
    pub fn counted_at(&self, account: &str, stock: &[(String, i64)], as_of: Timestamp) {
        let stock = stock.iter().map(|(sku, count)| (sku.clone(), *count, as_of)).collect();
        self.inner.stock.lock().unwrap().insert(account.to_owned(), stock);
    }

    /// Sets what an account has counted just now.
    pub fn counted(&self, account: &str, stock: &[(String, i64)]) {
        self.counted_at(account, stock, Timestamp::now());
    }

    /// From now on answers are made by `script`, of the number of the request (from 0 on), the request and the page.
    pub fn answer<R: IntoResponse>(&self, script: impl Fn(usize, &Asked, Value) -> R + Send + 'static) {
        self.inner.asked.lock().unwrap().clear();
        *self.inner.script.lock().unwrap() =
            Box::new(move |n, asked, page| script(n, asked, page).into_response());
    }

    /// From now on each answer takes so long.
    pub fn delay(&self, delay: Duration) {
        *self.inner.delay.lock().unwrap() = delay;
    }

    /// The requests since the last [`Warehouse::answer`].
    pub fn asked(&self) -> Vec<Asked> {
        self.inner.asked.lock().unwrap().clone()
    }

    /// Makes accounts of this warehouse a tenant's.
    pub async fn serve(&self, db: &TestDb, tenant: Uuid, accounts: &[&str]) {
        for account in accounts {
            db.execute(self.account_sql(&tenant.to_string(), account)).await;
        }
    }

    /// Statements that make an account of this warehouse a tenant's.
    pub fn account_sql(&self, tenant: &str, account: &str) -> String {
        format!(
            "insert into threepl_account (id, tenant_id, secret) values ('{account}', '{tenant}', 'whsec_eA==');
             insert into threepl_inventory (tenant_id, account_id, base_url, token)
               values ('{tenant}', '{account}', '{}/{account}/', '{TOKEN}')",
            self.url
        )
    }
}

async fn report(
    State(inner): State<Arc<Inner>>,
    Path(account): Path<String>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if headers.get("authorization").is_none_or(|value| value != &format!("Bearer {TOKEN}")) {
        return StatusCode::UNAUTHORIZED.into_response();
    }
    let limit = query.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(100);
    let asked = Asked { account, cursor: query.get("cursor").cloned(), limit };
    let from: usize = asked.cursor.as_ref().and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let page = {
        let stock = inner.stock.lock().unwrap();
        let counted = stock.get(&asked.account).map(Vec::as_slice).unwrap_or_default();
        let items = counted.iter().skip(from).take(limit);
        let items: Vec<_> = items
            .map(|(sku, count, as_of)| json!({"sku": sku, "onHand": count, "asOf": as_of.to_string()}))
            .collect();
        let next = (from + limit < counted.len()).then(|| (from + limit).to_string());
        json!({"items": items, "next": next})
    };
    let number = {
        let mut all = inner.asked.lock().unwrap();
        all.push(asked.clone());
        all.len() - 1
    };
    let delay = *inner.delay.lock().unwrap();
    tokio::time::sleep(delay).await;
    (inner.script.lock().unwrap())(number, &asked, page)
}
