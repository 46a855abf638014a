//! Questions to a shop: how were returned goods disposed of? A webhook says that they were, and names no order.
//!
//! Promises: no transaction is open while the shop is asked; an answer is booked once, each disposition by its own id, and only by
//! whoever holds the question's lease; after the last attempt, or where the shop has no such return, a person is told.
//! Relies on: `holdfast.claim_questions` and `holdfast.settle_question`; the address and token of a destination at that shop.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::Row;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::Db;
use crate::db::error::DbError;
use crate::delivery::attempt::{Attempt, Sender};
use crate::delivery::shopify_api::AdminApi;
use crate::runtime::sealed::{NotOpened, Sealer, destination_place};

const DISPOSITIONS: &str = "query Dispositions($id: ID!) { reverseFulfillmentOrder(id: $id) { order { id } \
     lineItems(first: 100) { pageInfo { hasNextPage } nodes { fulfillmentLineItem { lineItem { id } } \
     dispositions { id type quantity } } } } }";
/// The only disposition after which the goods can be sold again.
const RESTOCKED: &str = "RESTOCKED";

/// A leased question.
#[derive(Debug)]
pub struct Question {
    /// The shop's owner.
    pub tenant_id: Uuid,
    /// The shop.
    pub shop_domain: String,
    /// Shopify's global id of the reverse fulfilment order.
    pub reverse_order_id: String,
    /// The shop's GraphQL endpoint; empty if no destination pushes to it any more.
    url: String,
    /// Its access token, or why that cannot be opened.
    secret: Result<String, NotOpened>,
    token: Uuid,
}

/// What the shop answered: its order, and what of it was put back on the shelf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disposed {
    order_id: String,
    /// Id of the disposition, id of the order's line, units.
    restocked: Vec<(String, String, i64)>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    reverse_fulfillment_order: Option<ReverseOrder>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReverseOrder {
    order: Option<Node>,
    line_items: Lines,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lines {
    page_info: PageInfo,
    nodes: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    fulfillment_line_item: Option<FulfillmentLine>,
    dispositions: Vec<Disposition>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FulfillmentLine {
    line_item: Node,
}

#[derive(Deserialize)]
struct Node {
    id: String,
}

#[derive(Deserialize)]
struct Disposition {
    id: String,
    r#type: String,
    quantity: i64,
}

/// Leases questions that are due, at most `limit`. `sealer` opens the shops' tokens; `None`: they are taken as they are stored.
pub async fn claim(
    db: &Db,
    limit: usize,
    lease: Duration,
    sealer: Option<&Sealer>,
) -> Result<Vec<Question>, DbError> {
    let token = Uuid::new_v4();
    let argument = json!({"limit": limit, "token": token, "leaseSecs": lease.as_secs_f64()});
    let rows = db.call(&Statement::new("holdfast.claim_questions", argument)).await?;
    let questions = rows.iter().map(|row| {
        Ok(Question {
            tenant_id: row.try_get("tenant_id")?,
            shop_domain: row.try_get("shop_domain")?,
            reverse_order_id: row.try_get("reverse_order_id")?,
            url: row.try_get("url")?,
            secret: opened(sealer, row.try_get("destination_id")?, row.try_get("secret")?),
            token,
        })
    });
    questions.collect::<Result<_, sqlx::Error>>().map_err(DbError::Sql)
}

fn opened(sealer: Option<&Sealer>, destination: Option<Uuid>, stored: String) -> Result<String, NotOpened> {
    match (sealer, destination) {
        (Some(sealer), Some(destination)) => sealer.open(&destination_place(destination), &stored),
        _ => Ok(stored),
    }
}

/// Asks the shop, once. The error says how it failed: [`Attempt::Rejected`] if asking again cannot help.
pub async fn ask(sender: &Sender, question: &Question, now: Timestamp) -> Result<Disposed, Attempt> {
    // Asked again once the relay has its key.
    let token = question.secret.as_ref().map_err(|error| Attempt::Unsendable(error.to_string()))?;
    let api = AdminApi::new(sender, &question.url, Some(token), &question.reverse_order_id, now);
    let found: Found = api.ask(DISPOSITIONS, &json!({"id": question.reverse_order_id})).await?;
    read(found).map_err(|error| Attempt::Rejected(error.into()))
}

fn read(found: Found) -> Result<Disposed, &'static str> {
    let found = found.reverse_fulfillment_order.ok_or("it knows no such return")?;
    let order = found.order.ok_or("the return has no order")?;
    if found.line_items.page_info.has_next_page {
        return Err("the return has more than 100 lines");
    }
    let mut restocked = Vec::new();
    for line in found.line_items.nodes {
        let back = line.dispositions.into_iter().filter(|disposition| disposition.r#type == RESTOCKED);
        for disposition in back {
            let of = line.fulfillment_line_item.as_ref().ok_or("a line of the return has no order line")?;
            restocked.push((disposition.id, number(&of.line_item.id), disposition.quantity));
        }
    }
    Ok(Disposed { order_id: number(&order.id), restocked })
}

/// The number in a global id, as webhooks write it: 1 of `gid://shopify/Order/1`.
fn number(global_id: &str) -> String {
    let last = global_id.rsplit('/').next().unwrap_or(global_id);
    last.split('?').next().unwrap_or(last).to_owned()
}

/// Books the answer, or plans the next attempt after `jitter` (1.0 … 1.5) times 2^attempts units. Returns what was done: `booked`,
/// `later`, `kept` as an exception, or `stale`.
pub async fn settle(
    db: &Db,
    question: &Question,
    answer: Result<Disposed, Attempt>,
    unit: Duration,
    jitter: f64,
) -> Result<String, DbError> {
    let mut argument = json!({"tenantId": question.tenant_id, "shop": question.shop_domain,
        "reverseOrderId": question.reverse_order_id, "token": question.token});
    match answer {
        Ok(disposed) => {
            let restocked = disposed.restocked.iter();
            argument["orderId"] = json!(disposed.order_id);
            argument["dispositions"] =
                restocked.map(|(id, line, qty)| json!({"id": id, "lineId": line, "qty": qty})).collect();
        }
        Err(attempt) => {
            let (error, is_final, retry_after) = outcome(attempt);
            argument["error"] = json!(error);
            argument["final"] = json!(is_final);
            argument["jitter"] = json!(jitter);
            argument["unitSecs"] = json!(unit.as_secs_f64());
            argument["retryAfterSecs"] = retry_after.map_or(Value::Null, |wait| json!(wait.as_secs_f64()));
        }
    }
    Ok(db
        .call_one(&Statement::new("holdfast.settle_question", argument))
        .await?
        .try_get("settle_question")?)
}

/// What is to be remembered of a failure: its text, whether it is final, how long to wait at least.
fn outcome(attempt: Attempt) -> (String, bool, Option<Duration>) {
    match attempt {
        Attempt::Rejected(error) | Attempt::Gone(error) => (error, true, None),
        Attempt::Failed { error, retry_after } => (error, false, retry_after),
        Attempt::Throttled { error, wait } => (error, false, wait),
        Attempt::NoAnswer(error) | Attempt::Unsendable(error) => (error, false, None),
        Attempt::Delivered | Attempt::Passed(_) => ("no answer".into(), false, None),
    }
}
