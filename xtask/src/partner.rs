//! The local partner stands in for all that Holdfast calls: a webhook receiver that checks signatures, a Shopify shop
//! ([`shopify`]), SES ([`ses`]) and a 3PL's inventory report ([`inventory`]).
//!
//! | request | effect |
//! |---|---|
//! | `POST /webhooks/{destinationId}` | receives an event; answers with the status set by `/behave`, 200 by default |
//! | `POST /shopify/admin/api/{version}/graphql.json` | receives a stock push, or looks up the inventory item of a SKU or a return |
//! | `POST /v2/email/outbound-emails` | receives a mail |
//! | `GET /received` | the last 10,000 of these requests, newest last |
//! | `POST /behave {"status":500}` | sets the status that they are answered with |
//! | `POST /inventory {"account","items":[{"sku","onHand"}]}` | sets what this 3PL account reports |
//! | `GET /3pl/{account}/inventory?cursor=&limit=` | the 3PL's report, with the account's token |
//! | `POST /returns {"id","orderId","lineId","qty"}` | sets what the shop says of a reverse fulfilment order: these units were restocked |
//!
//! Bodies are read as JSON whatever their content type: people type these requests by hand.

pub mod inventory;
pub mod ses;
pub mod shopify;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{get, post};
use axum::{Json, Router};
use sealed::{Sealer, destination_place, inventory_place};
use serde::{Deserialize, Serialize};
use sqlx::postgres::{PgPool, PgPoolOptions};
use standardwebhooks::Webhook;
use uuid::Uuid;

const MAX_KEPT: usize = 10_000;
const MAX_BODY_BYTES: usize = 8 << 20;
const MAX_CONNECTIONS: u32 = 4;

/// The URL at which the partner receives the events of a destination.
pub fn webhook_url(partner_url: &str, destination: Uuid) -> String {
    format!("{partner_url}/webhooks/{destination}")
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    /// `None` if the request does not name one.
    destination_id: Option<Uuid>,
    /// By lower-case name; the values of a repeated header are joined by commas.
    headers: BTreeMap<String, String>,
    body: String,
    /// For a push: whether its access token is the shop's. For a mail: whether it names this stack's access key.
    signature_valid: bool,
}

#[derive(Deserialize)]
struct Behave {
    status: u16,
}

struct Partner {
    database: PgPool,
    sealer: Sealer,
    memory: Mutex<Memory>,
}

struct Memory {
    received: VecDeque<Received>,
    answer: StatusCode,
    inventory: inventory::Inventories,
    /// By the number of the reverse fulfilment order.
    returns: BTreeMap<String, shopify::Return>,
    /// Kinds of requests whose first arrival has been printed.
    announced: HashSet<&'static str>,
}

impl Partner {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        // A panic while it was locked leaves no change half made.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the request and returns the status to answer with; calls `announce` for the first one of its kind.
    fn take(&self, kind: &'static str, received: Received, announce: impl FnOnce(&Received)) -> StatusCode {
        let mut memory = self.memory();
        if memory.announced.insert(kind) {
            announce(&received);
        }
        if memory.received.len() == MAX_KEPT {
            memory.received.pop_front();
        }
        memory.received.push_back(received);
        memory.answer
    }

    /// The destination of an outbox row, by the row's message id (`outbox-7`), and its valid secrets.
    async fn destination_of(&self, message_id: Option<&str>) -> (Option<Uuid>, Vec<String>) {
        let Some(id) = message_id.and_then(|id| id.strip_prefix("outbox-")?.parse::<i64>().ok()) else {
            return (None, Vec::new());
        };
        let found = sqlx::query_scalar::<_, Option<Uuid>>("select destination_id from outbox where id = $1");
        match found.bind(id).fetch_optional(&self.database).await {
            Ok(found) => match found.flatten() {
                Some(destination) => (Some(destination), self.live_secrets(destination).await),
                None => (None, Vec::new()),
            },
            Err(error) => {
                eprintln!("partner: cannot read outbox row {id}: {error}");
                (None, Vec::new())
            }
        }
    }

    /// Whether any destination that pushes to the shop has this access token.
    async fn is_shop_token(&self, token: &str) -> bool {
        let found = sqlx::query_scalar(
            "select exists (select from destination_secret s join destination d on d.id = s.destination_id
               where d.kind = 'shopify_inventory' and s.secret = $1 and (s.retires_at is null or s.retires_at > now()))",
        );
        found.bind(token).fetch_one(&self.database).await.unwrap_or_else(|error| {
            eprintln!("partner: cannot read the shops' tokens: {error}");
            false
        })
    }

    async fn live_secrets(&self, destination: Uuid) -> Vec<String> {
        let secrets = sqlx::query_scalar::<_, String>(
            "select secret from destination_secret where destination_id = $1 and (retires_at is null or retires_at > now())",
        );
        let stored = secrets.bind(destination).fetch_all(&self.database).await.unwrap_or_else(|error| {
            eprintln!("partner: cannot read the secrets of destination {destination}: {error}");
            Vec::new()
        });
        let place = destination_place(destination);
        stored.iter().filter_map(|secret| self.sealer.open(&place, secret).ok()).collect()
    }

    fn inventory_token(&self, account: &str, stored: &str) -> Option<String> {
        self.sealer.open(&inventory_place(account), stored).ok()
    }
}

/// Serves the partner on this address for as long as the runtime lives. It looks up the destinations' secrets in the
/// database at `owner_url`, and opens them with `sealer`.
pub async fn serve(
    address: SocketAddr,
    owner_url: &str,
    sealer: Sealer,
) -> Result<tokio::task::JoinHandle<()>> {
    let database = PgPoolOptions::new().max_connections(MAX_CONNECTIONS).connect_lazy(owner_url)?;
    let memory = Memory {
        received: VecDeque::new(),
        answer: StatusCode::OK,
        inventory: inventory::Inventories::new(),
        returns: BTreeMap::new(),
        announced: HashSet::new(),
    };
    let partner = Arc::new(Partner { database, sealer, memory: Mutex::new(memory) });
    let router = Router::new()
        .route("/webhooks/{destination_id}", post(take_event))
        .route("/shopify/admin/api/{version}/graphql.json", post(shopify::take_push))
        .route("/v2/email/outbound-emails", post(ses::take_mail))
        .route("/received", get(list_received))
        .route("/behave", post(behave))
        .route("/returns", post(shopify::set_return))
        .route("/inventory", post(inventory::set))
        .route("/3pl/{account}/inventory", get(inventory::report))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(partner);
    let listener = tokio::net::TcpListener::bind(address)
        .await
        .with_context(|| format!("the partner cannot listen on {address}"))?;
    Ok(tokio::spawn(async move {
        // Retries a failed accept by itself.
        let _ = axum::serve(listener, router).await;
    }))
}

async fn take_event(
    State(partner): State<Arc<Partner>>,
    Path(destination_id): Path<Uuid>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let secrets = partner.live_secrets(destination_id).await;
    let received = Received {
        destination_id: Some(destination_id),
        headers: joined(&headers),
        body: String::from_utf8_lossy(&body).into_owned(),
        signature_valid: secrets.iter().any(|secret| signed_with(secret, &headers, &body)),
    };
    partner.take("event", received, announce)
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
        // After an informational status (1xx) the sender would wait for the real one.
        Ok(status) if wanted.status >= 200 => {
            partner.memory().answer = status;
            (StatusCode::OK, format!("from now on requests are answered with {status}\n"))
        }
        _ => (StatusCode::BAD_REQUEST, "status is 200 … 999\n".to_owned()),
    }
}
