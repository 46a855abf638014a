//! Pushes stock to a shop: one SKU's current ATS as an absolute quantity, through Shopify's Admin GraphQL API.
//!
//! Promises: the quantity was read after the claim of all the changes that the push covers; a repeated push is harmless;
//! permanent rejections are told apart from failures that may pass; throttling pauses the whole shop.
//! Relies on: the claim, which allows one push of a SKU at a time.
//!
//! The destination's `url` is the shop's GraphQL endpoint and its secret the access token; without `location_id` the shop's
//! primary location counts. The inventory item is looked up by the SKU's code at the first push and stored in
//! `shopify_inventory_item`, where a person may also set it.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::delivery::attempt::{Attempt, PartnerAnswer, Sender, classify, message_id};
use crate::delivery::outbox::Claimed;

/// Sent with `changeFromQuantity: null`, which skips the shop's compare-and-swap: our number counts.
const SET_QUANTITY: &str = "mutation SetAvailable($input: InventorySetQuantitiesInput!, $key: String!) { \
     inventorySetQuantities(input: $input) @idempotent(key: $key) { userErrors { code field message } } }";
/// The search also finds SKUs that only begin with the code: the exact one of the first five is taken.
const LOOK_UP: &str = "query FindItem($code: String!) { location { id } \
     inventoryItems(first: 5, query: $code) { nodes { id sku } } }";
/// User errors that a retry cannot change.
const PERMANENT: [&str; 12] = [
    "INVALID_INVENTORY_ITEM",
    "INVALID_LOCATION",
    "INVALID_NAME",
    "INVALID_QUANTITY_NEGATIVE",
    "INVALID_QUANTITY_TOO_HIGH",
    "INVALID_QUANTITY_TOO_LOW",
    "INVALID_REASON",
    "INVALID_REFERENCE_DOCUMENT",
    "ITEM_NOT_STOCKED_AT_LOCATION",
    "NON_MUTABLE_INVENTORY_ITEM",
    "NO_DUPLICATE_INVENTORY_ITEM_ID_GROUP_ID_PAIR",
    "IDEMPOTENCY_KEY_PARAMETER_MISMATCH",
];
/// The pause where a throttled answer names none.
const THROTTLED_WAIT: Duration = Duration::from_secs(2);
/// Longest pause, whatever the shop asks for.
const THROTTLED_WAIT_MAX: Duration = Duration::from_secs(60);

/// `holdfast.push_facts`, read after the claim.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    code: String,
    ats: i64,
    inventory_item_id: Option<String>,
    /// How often a person has requeued the newest row.
    requeues: i32,
}

#[derive(Deserialize)]
struct GraphqlAnswer<T> {
    data: Option<T>,
    #[serde(default)]
    errors: Vec<GraphqlError>,
    #[serde(default)]
    extensions: Value,
}

#[derive(Deserialize)]
struct GraphqlError {
    message: String,
    #[serde(default)]
    extensions: Value,
}

#[derive(Deserialize)]
struct Found {
    location: Option<Node>,
    #[serde(rename = "inventoryItems")]
    inventory_items: Option<Items>,
}

#[derive(Deserialize)]
struct Items {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    sku: Option<String>,
}

#[derive(Deserialize)]
struct Set {
    #[serde(rename = "inventorySetQuantities")]
    outcome: Option<SetOutcome>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetOutcome {
    #[serde(default)]
    user_errors: Vec<UserError>,
}

#[derive(Deserialize)]
struct UserError {
    code: Option<String>,
    message: String,
}

/// The result of an attempt, and what it found out.
#[derive(Debug)]
pub struct Pushed {
    /// The result.
    pub attempt: Attempt,
    /// The SKU's inventory item, where it was not stored yet.
    pub learned: Option<String>,
}

impl From<Attempt> for Pushed {
    fn from(attempt: Attempt) -> Self {
        Self { attempt, learned: None }
    }
}

/// Pushes a SKU's ATS. `newest` is the newest row that the push covers; `facts` are those of
/// [`crate::delivery::outbox::facts`].
pub async fn push(sender: &Sender, newest: &Claimed, facts: Option<&str>, now: Timestamp) -> Pushed {
    let Some(facts) = facts else {
        return Attempt::Delivered.into(); // the event changes no stock: nothing to push
    };
    let facts: Facts = match serde_json::from_str(facts) {
        Ok(facts) => facts,
        Err(error) => return Attempt::Unsendable(error.to_string()).into(),
    };
    let mut learned = None;
    let shop = Shop { sender, newest, now };
    let attempt = sender.within(async {
        let pushed = async {
            let (item, location) = shop.item_and_location(&facts, &mut learned).await?;
            shop.set(&item, &location, &facts).await
        };
        pushed.await.unwrap_or_else(|attempt: Attempt| attempt)
    });
    let attempt = attempt.await;
    Pushed { attempt, learned }
}

struct Shop<'a> {
    sender: &'a Sender,
    newest: &'a Claimed,
    now: Timestamp,
}

impl Shop<'_> {
    /// Asks the shop only where one of the two is not known.
    async fn item_and_location(
        &self,
        facts: &Facts,
        learned: &mut Option<String>,
    ) -> Result<(String, String), Attempt> {
        if let (Some(item), Some(location)) = (&facts.inventory_item_id, &self.newest.location_id) {
            return Ok((item.clone(), location.clone()));
        }
        let code = facts.code.replace('\\', "\\\\").replace('"', "\\\"");
        let found: Found = self.ask(LOOK_UP, &json!({"code": format!("sku:\"{code}\"")})).await?;
        let location = self.newest.location_id.clone().or(found.location.map(|location| location.id));
        let Some(location) = location else {
            return Err(Attempt::Rejected("the shop has no location".into()));
        };
        if let Some(item) = &facts.inventory_item_id {
            return Ok((item.clone(), location));
        }
        let items = found.inventory_items.map(|items| items.nodes).unwrap_or_default();
        match items.into_iter().find(|item| item.sku.as_deref() == Some(facts.code.as_str())) {
            Some(item) => {
                *learned = Some(item.id.clone());
                Ok((item.id, location))
            }
            None => Err(Attempt::Rejected(format!("the shop has no item with SKU {}", facts.code))),
        }
    }

    async fn set(&self, item: &str, location: &str, facts: &Facts) -> Result<Attempt, Attempt> {
        let (id, quantity) = (message_id(self.newest.id), facts.ats);
        let variables = json!({
            // Shopify replays its answer to an equal key. So another ATS needs another key, and so does a requeue, since
            // somebody may have changed the shop's stock by hand meanwhile.
            "key": format!("{id}-{}-{quantity}", facts.requeues),
            "input": {
                "name": "available",
                "reason": "correction",
                "referenceDocumentUri": format!("holdfast://outbox/{}", self.newest.id),
                "quantities": [{"inventoryItemId": item, "locationId": location, "quantity": quantity,
                    "changeFromQuantity": null}],
            },
        });
        let set: Set = self.ask(SET_QUANTITY, &variables).await?;
        let Some(outcome) = set.outcome else {
            return Err(failed("the answer holds no inventorySetQuantities".into()));
        };
        let Some(first) = outcome.user_errors.first() else { return Ok(Attempt::Delivered) };
        let code = first.code.as_deref().unwrap_or_default();
        let error = format!("{code}: {}", first.message);
        Ok(if PERMANENT.contains(&code) { Attempt::Rejected(error) } else { failed(error) })
    }

    /// Makes one GraphQL request and returns its `data`.
    async fn ask<T: for<'de> Deserialize<'de>>(&self, query: &str, variables: &Value) -> Result<T, Attempt> {
        let body = json!({"query": query, "variables": variables}).to_string();
        let answer = self.sender.post(&self.newest.url, self.headers()?, body).await?;
        if answer.status == StatusCode::TOO_MANY_REQUESTS {
            let wait = answer.retry_after(self.now).unwrap_or(THROTTLED_WAIT);
            return Err(Attempt::Throttled { error: answer.excerpt(), wait: wait.min(THROTTLED_WAIT_MAX) });
        }
        match classify(&answer, self.now) {
            Attempt::Delivered => read(&answer),
            failure => Err(failure),
        }
    }

    fn headers(&self) -> Result<HeaderMap, Attempt> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let value = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| Attempt::Unsendable("the access token is no header value".into()))
        };
        headers.insert("idempotency-key", value(&message_id(self.newest.id))?);
        if let Some(token) = self.newest.secrets.first() {
            let mut token = value(token)?;
            token.set_sensitive(true);
            headers.insert("x-shopify-access-token", token);
        }
        Ok(headers)
    }
}

fn failed(error: String) -> Attempt {
    Attempt::Failed { error, retry_after: None }
}

fn read<T: for<'de> Deserialize<'de>>(answer: &PartnerAnswer) -> Result<T, Attempt> {
    let read: GraphqlAnswer<T> = serde_json::from_slice(&answer.body)
        .map_err(|_| failed(format!("no GraphQL answer: {}", answer.excerpt())))?;
    if let Some(error) = read.errors.iter().find(|error| error.extensions["code"] == "THROTTLED") {
        let wait = throttled_wait(&read.extensions["cost"]);
        return Err(Attempt::Throttled { error: format!("THROTTLED: {}", error.message), wait });
    }
    match (read.errors.first(), read.data) {
        (Some(error), _) => Err(failed(format!("GraphQL: {}", error.message))),
        (None, Some(data)) => Ok(data),
        (None, None) => Err(failed(format!("no GraphQL answer: {}", answer.excerpt()))),
    }
}

/// Time until the shop's leaky bucket has room for the query's cost.
fn throttled_wait(cost: &Value) -> Duration {
    let number = |value: &Value| value.as_f64().filter(|n| n.is_finite());
    let status = &cost["throttleStatus"];
    let (needed, available, rate) = (
        number(&cost["requestedQueryCost"]),
        number(&status["currentlyAvailable"]),
        number(&status["restoreRate"]).filter(|rate| *rate > 0.0),
    );
    match (needed, available, rate) {
        (Some(needed), Some(available), Some(rate)) => {
            let secs = ((needed - available) / rate).clamp(1.0, THROTTLED_WAIT_MAX.as_secs_f64());
            Duration::from_secs_f64(secs)
        }
        _ => THROTTLED_WAIT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throttling_waits_until_the_bucket_holds_enough() {
        let cost = |needed: f64, available: f64, rate: f64| {
            json!({"requestedQueryCost": needed,
                   "throttleStatus": {"maximumAvailable": 1000, "currentlyAvailable": available, "restoreRate": rate}})
        };
        assert_eq!(throttled_wait(&cost(110.0, 10.0, 50.0)), Duration::from_secs(2));
        assert_eq!(throttled_wait(&cost(11.0, 10.0, 50.0)), Duration::from_secs(1));
        assert_eq!(throttled_wait(&cost(1e9, 0.0, 50.0)), THROTTLED_WAIT_MAX);
        for unclear in [cost(11.0, 10.0, 0.0), json!({}), json!(null)] {
            assert_eq!(throttled_wait(&unclear), THROTTLED_WAIT, "{unclear}");
        }
    }
}
