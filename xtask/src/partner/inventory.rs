//! A 3PL's report of its stock, page by page.

use std::collections::HashMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Partner;

const DEFAULT_LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

/// Where an account's report is, without `/inventory`.
pub fn url(partner_url: &str, account: &str) -> String {
    format!("{partner_url}/3pl/{account}")
}

#[derive(Deserialize)]
pub(super) struct Told {
    account: String,
    items: Vec<Item>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item {
    sku: String,
    on_hand: Value,
    /// When it was counted: when it was told, if that was not said.
    as_of: Option<Value>,
}

/// `POST /inventory`.
pub(super) async fn set(State(partner): State<Arc<Partner>>, body: Bytes) -> (StatusCode, String) {
    let mut told: Told = match serde_json::from_slice(&body) {
        Ok(told) => told,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("not {{\"account\",\"items\"}}: {error}\n")),
    };
    let now = json!(Timestamp::now().to_string());
    for item in &mut told.items {
        item.as_of.get_or_insert_with(|| now.clone());
    }
    let answer = format!("{} reports {} SKUs from now on\n", told.account, told.items.len());
    partner.memory().inventory.insert(told.account, told.items);
    (StatusCode::OK, answer)
}

#[derive(Deserialize)]
pub(super) struct Asked {
    cursor: Option<String>,
    limit: Option<usize>,
}

/// `GET /3pl/{account}/inventory?cursor=&limit=`, with the account's token. An account of which nothing was told reports no
/// SKU.
pub(super) async fn report(
    State(partner): State<Arc<Partner>>,
    Path(account): Path<String>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
) -> Result<Json<Value>, StatusCode> {
    let stored: Option<String> =
        sqlx::query_scalar("select token from threepl_inventory where account_id = $1")
            .bind(&account)
            .fetch_optional(&partner.database)
            .await
            .map_err(|error| {
                eprintln!("partner: cannot read the token of {account}: {error}");
                StatusCode::INTERNAL_SERVER_ERROR
            })?;
    let token = stored.and_then(|stored| partner.inventory_token(&account, &stored));
    let sent = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    if token.is_none() || token.as_deref() != sent {
        return Err(StatusCode::UNAUTHORIZED);
    }
    let from = match asked.cursor.as_deref().map(str::parse::<usize>) {
        None => 0,
        Some(Ok(from)) => from,
        Some(Err(_)) => return Err(StatusCode::BAD_REQUEST),
    };
    let limit = asked.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let memory = partner.memory();
    let items = memory.inventory.get(&account).map(Vec::as_slice).unwrap_or_default();
    let page: Vec<&Item> = items.iter().skip(from).take(limit).collect();
    let next = (from + page.len() < items.len()).then(|| (from + page.len()).to_string());
    Ok(Json(json!({"items": page, "next": next})))
}

/// What accounts report.
pub(super) type Inventories = HashMap<String, Vec<Item>>;
