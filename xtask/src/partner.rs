//! The local partner: a webhook sink that checks signatures as a partner would, and a 3PL that reports what it was
//! told to. The stand-ins for Shopify and SES come with the functions that call them.
//!
//! | request | does |
//! |---|---|
//! | `POST /webhooks/{destinationId}` | takes an event; answers as told by `/behave`, 200 until then |
//! | `GET /received` | what came, newest last, the last 10,000 |
//! | `POST /behave {"status":500}` | sets how events are answered until changed |
//! | `POST /inventory {"account","items":[{"sku","onHand"}]}` | sets what that 3PL account reports |
//! | `GET /inventory/{account}` | reports it |
//!
//! Bodies are JSON whatever their content type says: these are typed by hand.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};
use standardwebhooks::Webhook;
use uuid::Uuid;

/// Deliveries kept.
const KEEP: usize = 10_000;

/// Where the partner at `partner_url` takes the events of a destination.
pub fn webhook_url(partner_url: &str, destination: Uuid) -> String {
    format!("{partner_url}/webhooks/{destination}")
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    destination_id: Uuid,
    /// Names in lower case; a header sent twice is joined with a comma.
    headers: BTreeMap<String, String>,
    body: String,
    signature_valid: bool,
}

#[derive(Deserialize)]
struct Behave {
    status: u16,
}

#[derive(Clone, Serialize, Deserialize)]
struct Inventory {
    account: String,
    items: Vec<Item>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    sku: String,
    on_hand: i64,
}

struct Partner {
    database: PgPool,
    memory: Mutex<Memory>,
}

struct Memory {
    received: VecDeque<Received>,
    answer: StatusCode,
    inventory: HashMap<String, Inventory>,
    announced: bool,
}

impl Partner {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing in there can be half changed.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves the partner on this address until the returned task is dropped; `owner_url` is where it looks up the
/// secrets that destinations sign with.
///
/// # Errors
/// When the port is taken.
pub async fn serve(address: SocketAddr, owner_url: &str) -> Result<tokio::task::JoinHandle<()>> {
    let database = PgPoolOptions::new().max_connections(4).connect_lazy(owner_url)?;
    let memory = Memory {
        received: VecDeque::new(),
        answer: StatusCode::OK,
        inventory: HashMap::new(),
        announced: false,
    };
    let partner = Arc::new(Partner { database, memory: Mutex::new(memory) });
    let router = Router::new()
        .route("/webhooks/{destination_id}", post(take_event))
        .route("/received", get(list_received))
        .route("/behave", post(behave))
        .route("/inventory", post(set_inventory))
        .route("/inventory/{account}", get(report_inventory))
        .layer(DefaultBodyLimit::max(8 << 20))
        .with_state(partner);
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("the partner cannot listen on {address}"))?;
    Ok(tokio::spawn(async move {
        // Serving ends with the task; an accept that fails is tried again inside.
        let _ = axum::serve(listener, router).await;
    }))
}

async fn take_event(
    State(partner): State<Arc<Partner>>,
    Path(destination_id): Path<Uuid>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let signature_valid = match live_secrets(&partner.database, destination_id).await {
        Ok(secrets) => secrets.iter().any(|secret| signed_with(secret, &headers, &body)),
        Err(error) => {
            eprintln!("partner: cannot read the secrets of destination {destination_id}: {error}");
            false
        }
    };
    let received = Received {
        destination_id,
        headers: joined(&headers),
        body: String::from_utf8_lossy(&body).into_owned(),
        signature_valid,
    };
    let mut memory = partner.memory();
    if !memory.announced {
        memory.announced = true;
        announce(&received);
    }
    if memory.received.len() == KEEP {
        memory.received.pop_front();
    }
    memory.received.push_back(received);
    memory.answer
}

fn announce(received: &Received) {
    let body: serde_json::Value = serde_json::from_str(&received.body).unwrap_or_default();
    let id = received.headers.get("webhook-id").map_or("no webhook-id", String::as_str);
    let signature = if received.signature_valid { "valid" } else { "NOT VALID" };
    let written = body["timestamp"].as_str().and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let waited = written.map_or(0.0, |at| jiff::Timestamp::now().duration_since(at).as_secs_f32());
    println!(
        "\n✓ the first event reached the partner: {} ({id}), signature {signature}, {waited:.1} s after it was written",
        body["type"].as_str().unwrap_or("without a type"),
    );
}

async fn live_secrets(database: &PgPool, destination: Uuid) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        "select secret from destination_secret where destination_id = $1 and (retires_at is null or retires_at > now())",
    )
    .bind(destination)
    .fetch_all(database)
    .await
}

fn signed_with(secret: &str, headers: &HeaderMap, body: &[u8]) -> bool {
    Webhook::new(secret).is_ok_and(|webhook| webhook.verify(body, headers).is_ok())
}

fn joined(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut all = BTreeMap::<String, String>::new();
    for (name, value) in headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        all.entry(name.as_str().to_owned())
            .and_modify(|known| {
                known.push_str(", ");
                known.push_str(&value);
            })
            .or_insert_with(|| value.into_owned());
    }
    all
}

async fn list_received(State(partner): State<Arc<Partner>>) -> Json<Vec<Received>> {
    let received = partner.memory().received.iter().cloned().collect();
    Json(received)
}

async fn behave(State(partner): State<Arc<Partner>>, body: Bytes) -> (StatusCode, String) {
    let wanted: Behave = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(error) => {
            return (StatusCode::BAD_REQUEST, format!("not {{\"status\":…}}: {error}\n"));
        }
    };
    match StatusCode::from_u16(wanted.status) {
        // An informational status would leave the sender waiting for the real one.
        Ok(status) if wanted.status >= 200 => {
            partner.memory().answer = status;
            (StatusCode::OK, format!("events are answered with {status}\n"))
        }
        _ => (StatusCode::BAD_REQUEST, "status is 200 … 999\n".to_owned()),
    }
}

async fn set_inventory(State(partner): State<Arc<Partner>>, body: Bytes) -> (StatusCode, String) {
    match serde_json::from_slice::<Inventory>(&body) {
        Ok(reported) => {
            partner.memory().inventory.insert(reported.account.clone(), reported);
            (StatusCode::OK, String::new())
        }
        Err(error) => (
            StatusCode::BAD_REQUEST,
            format!(
                "not {{\"account\",\"items\"}}: {error}
"
            ),
        ),
    }
}

async fn report_inventory(
    State(partner): State<Arc<Partner>>,
    Path(account): Path<String>,
) -> Result<Json<Inventory>, StatusCode> {
    partner.memory().inventory.get(&account).cloned().map(Json).ok_or(StatusCode::NOT_FOUND)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    fn signed(secret: &str, body: &[u8]) -> HeaderMap {
        let now = jiff::Timestamp::now().as_second();
        let signature = Webhook::new(secret).unwrap().sign("outbox-7", now, body).unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", "outbox-7".parse().unwrap());
        headers.insert("webhook-timestamp", now.to_string().parse().unwrap());
        headers.insert("webhook-signature", signature.parse().unwrap());
        headers
    }

    #[test]
    fn only_the_right_secret_and_the_sent_bytes_count_as_signed() {
        let secret = crate::secrets::webhook_secret();
        let headers = signed(&secret, b"{}");
        assert!(signed_with(&secret, &headers, b"{}"));
        assert!(!signed_with(&secret, &headers, b"{ }"));
        assert!(!signed_with(&crate::secrets::webhook_secret(), &headers, b"{}"));
        assert!(!signed_with("no base64", &headers, b"{}"));
    }

    #[test]
    fn a_header_sent_twice_is_seen_whole() {
        let mut headers = HeaderMap::new();
        headers.append("X-Twice", "a".parse().unwrap());
        headers.append("x-twice", "b".parse().unwrap());
        assert_eq!(joined(&headers)["x-twice"], "a, b");
    }
}
