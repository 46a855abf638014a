//! Everybody who is called: a webhook receiver, a Shopify shop, and a warehouse that reports its stock. All of them misbehave as they
//! are told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How requests are answered from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// 200.
    Well,
    /// 500, after it was taken or not.
    Fails,
    /// 429 or 503 with Retry-After: 1.
    Busy,
    /// No answer for this long; what was sent is taken.
    Hangs(Duration),
    /// Every second request fails.
    Flaky,
}

/// One delivery that arrived.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// From the path.
    pub destination: Uuid,
    /// `webhook-id`.
    pub id: String,
    /// The bytes.
    pub body: String,
    /// Whether it was answered 2xx.
    pub taken: bool,
}

#[derive(Default)]
struct Memory {
    mood: Option<Mood>,
    deliveries: Vec<Delivery>,
    levels: HashMap<String, i64>,
    /// Lines of the warehouse's report.
    counts: Vec<Value>,
    requests: u64,
}

/// The partner; ends when it is dropped.
pub struct Partner {
    memory: Arc<Mutex<Memory>>,
    /// `http://127.0.0.1:…`.
    pub url: String,
    task: JoinHandle<()>,
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn locked(memory: &Mutex<Memory>) -> MutexGuard<'_, Memory> {
    memory.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Partner {
    /// Serves on a free port.
    pub async fn serve() -> Result<Self> {
        let memory = Arc::new(Mutex::new(Memory::default()));
        let router = Router::new()
            .route("/webhooks/{destination}", post(event))
            .route("/shopify/admin/api/{version}/graphql.json", post(shop))
            .route("/3pl/inventory", get(stock))
            .with_state(memory.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let task = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { memory, url, task })
    }

    /// From now on.
    pub fn behave(&self, mood: Mood) {
        locked(&self.memory).mood = Some(mood);
    }

    /// What the warehouse reports from now on: codes and units, counted now.
    pub fn counts(&self, counted: Vec<(String, i64)>) {
        let as_of = jiff::Timestamp::now();
        let line = |(sku, units)| json!({"sku": sku, "onHand": units, "asOf": as_of});
        locked(&self.memory).counts = counted.into_iter().map(line).collect();
    }

    /// All that arrived, oldest first.
    pub fn deliveries(&self) -> Vec<Delivery> {
        locked(&self.memory).deliveries.clone()
    }

    /// What the shop was told last of each SKU.
    pub fn levels(&self) -> HashMap<String, i64> {
        locked(&self.memory).levels.clone()
    }
}

/// Waits or fails as the mood is; whether the request is answered 2xx.
async fn mood(memory: &Mutex<Memory>) -> Result<(), Response> {
    let (mood, count) = {
        let mut memory = locked(memory);
        memory.requests += 1;
        (memory.mood.unwrap_or(Mood::Well), memory.requests)
    };
    match mood {
        Mood::Well => Ok(()),
        Mood::Flaky if count % 2 == 0 => Ok(()),
        Mood::Hangs(time) => {
            tokio::time::sleep(time).await;
            Ok(())
        }
        Mood::Busy => {
            let status =
                if count % 2 == 0 { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::SERVICE_UNAVAILABLE };
            Err((status, [("retry-after", "1")], "busy").into_response())
        }
        Mood::Fails | Mood::Flaky => Err(StatusCode::INTERNAL_SERVER_ERROR.into_response()),
    }
}

async fn event(
    State(memory): State<Arc<Mutex<Memory>>>,
    Path(destination): Path<Uuid>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let id = headers.get("webhook-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
    let body = String::from_utf8_lossy(&body).into_owned();
    // It is known before the answer: an answer that is lost was a delivery all the same.
    let at = {
        let mut memory = locked(&memory);
        memory.deliveries.push(Delivery { destination, id, body, taken: false });
        memory.deliveries.len() - 1
    };
    match mood(&memory).await {
        Ok(()) => {
            locked(&memory).deliveries[at].taken = true;
            StatusCode::OK.into_response()
        }
        Err(answer) => answer,
    }
}

async fn stock(State(memory): State<Arc<Mutex<Memory>>>) -> Response {
    let report = json!({"items": locked(&memory).counts, "next": null});
    match mood(&memory).await {
        Ok(()) => axum::Json(report).into_response(),
        Err(refused) => refused,
    }
}

/// The part of the Admin API that the relay uses, for a shop that has every SKU.
async fn shop(State(memory): State<Arc<Mutex<Memory>>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap_or_default();
    let answer = match request["query"].as_str() {
        Some(query) if query.contains("inventorySetQuantities") => {
            for one in request["variables"]["input"]["quantities"].as_array().into_iter().flatten() {
                let item = one["inventoryItemId"].as_str().and_then(|id| id.rsplit('/').next());
                if let (Some(code), Some(quantity)) = (item, one["quantity"].as_i64()) {
                    locked(&memory).levels.insert(code.to_owned(), quantity);
                }
            }
            json!({"data": {"inventorySetQuantities": {"userErrors": []}}})
        }
        _ => {
            let code = request["variables"]["code"].as_str().unwrap_or_default();
            let code = code.trim_start_matches("sku:\"").trim_end_matches('"');
            let item = json!({"id": format!("gid://shopify/InventoryItem/{code}"), "sku": code});
            json!({"data": {"location": {"id": "gid://shopify/Location/1"}, "inventoryItems": {"nodes": [item]}}})
        }
    };
    match mood(&memory).await {
        Ok(()) => (StatusCode::OK, [("content-type", "application/json")], Body::from(answer.to_string()))
            .into_response(),
        Err(refused) => refused,
    }
}
