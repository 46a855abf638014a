//! Stock pushed to a shop: one SKU's ATS of this moment, set absolutely, through the Admin GraphQL API.
//!
//! Promises: the quantity is what it was when the facts were read, after the claim of all the changes it stands for; a push
//! that is sent again is harmless; what the shop will never take is told apart from what it may take later, and its
//! throttling is honoured for the whole shop.
//! Relies on: the claim, which lets only one push of a SKU be under way at a time.
//!
//! The destination's `url` is the shop's GraphQL endpoint, its secret the access token, `location_id` the location (the
//! shop's primary one where it is not set). The inventory item is found by the SKU's code at the first push and kept
//! in `shopify_inventory_item`, where a person may also set it.

use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::delivery::attempt::{Attempt, Sender, WireAnswer, judge, message_id};
use crate::delivery::outbox::Claimed;

/// `changeFromQuantity: null` opts out of the comparison: ours is the number that counts.
const SET_QUANTITY: &str = "mutation SetAvailable($input: InventorySetQuantitiesInput!, $key: String!) { \
     inventorySetQuantities(input: $input) @idempotent(key: $key) { userErrors { code field message } } }";
const LOOK_UP: &str = "query FindItem($code: String!) { location { id } \
     inventoryItems(first: 5, query: $code) { nodes { id sku } } }";
/// A user error of one of these codes stays one however often the push is sent.
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
/// Where a throttled answer does not say for how long.
const THROTTLED_WAIT: Duration = Duration::from_secs(2);
/// Nobody is left alone for longer.
const THROTTLED_WAIT_MAX: Duration = Duration::from_secs(60);

/// What a push is made of: `holdfast.push_facts`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    code: String,
    ats: i64,
    inventory_item_id: Option<String>,
    /// Times that a person sent the newest row again.
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

/// How a push went, and which inventory item the SKU turned out to be.
#[derive(Debug)]
pub struct Pushed {
    /// The attempt.
    pub attempt: Attempt,
    /// To be kept, where it was not known before.
    pub learned: Option<String>,
}

impl From<Attempt> for Pushed {
    fn from(attempt: Attempt) -> Self {
        Self { attempt, learned: None }
    }
}

/// Pushes a SKU's ATS. `newest` is the newest of the rows that the push stands for; `facts` are of this moment.
pub async fn push(sender: &Sender, newest: &Claimed, facts: Option<&str>, now: Timestamp) -> Pushed {
    let Some(facts) = facts else {
        return Attempt::Delivered.into(); // an event that changes no stock: the shop is owed nothing
    };
    let facts: Facts = match serde_json::from_str(facts) {
        Ok(facts) => facts,
        Err(error) => return Attempt::Unsendable { error: error.to_string() }.into(),
    };
    let mut learned = None;
    let shop = Shop { sender, newest, now };
    let attempt = sender.within(async {
        let pushed = async {
            let (item, location) = shop.place(&facts, &mut learned).await?;
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
    /// The inventory item and the location, looked up where one of them is not known.
    async fn place(&self, facts: &Facts, learned: &mut Option<String>) -> Result<(String, String), Attempt> {
        if let (Some(item), Some(location)) = (&facts.inventory_item_id, &self.newest.location_id) {
            return Ok((item.clone(), location.clone()));
        }
        let code = facts.code.replace('\\', "\\\\").replace('"', "\\\"");
        let found: Found = self.ask(LOOK_UP, &json!({"code": format!("sku:\"{code}\"")})).await?;
        let location = self.newest.location_id.clone().or(found.location.map(|location| location.id));
        let Some(location) = location else {
            return Err(Attempt::Rejected { error: "the shop has no location".into() });
        };
        if let Some(item) = &facts.inventory_item_id {
            return Ok((item.clone(), location));
        }
        // The shop's search also finds what merely begins alike.
        let items = found.inventory_items.map(|items| items.nodes).unwrap_or_default();
        match items.into_iter().find(|item| item.sku.as_deref() == Some(facts.code.as_str())) {
            Some(item) => {
                *learned = Some(item.id.clone());
                Ok((item.id, location))
            }
            None => Err(Attempt::Rejected { error: format!("the shop has no item with SKU {}", facts.code) }),
        }
    }

    async fn set(&self, item: &str, location: &str, facts: &Facts) -> Result<Attempt, Attempt> {
        let (id, quantity) = (message_id(self.newest.id), facts.ats);
        let variables = json!({
            // The next attempt may find another ATS, and must not get this one's answer; nor must what a person sends
            // again, since the shop may have been changed by hand meanwhile.
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
            return Err(Attempt::Refused {
                error: "the answer holds no inventorySetQuantities".into(),
                retry_after: None,
            });
        };
        let Some(first) = outcome.user_errors.first() else { return Ok(Attempt::Delivered) };
        let code = first.code.as_deref().unwrap_or_default();
        let error = format!("{code}: {}", first.message);
        Ok(if PERMANENT.contains(&code) {
            Attempt::Rejected { error }
        } else {
            Attempt::Refused { error, retry_after: None }
        })
    }

    /// One GraphQL request; its data, or how the attempt failed.
    async fn ask<T: for<'de> Deserialize<'de>>(&self, query: &str, variables: &Value) -> Result<T, Attempt> {
        let body = json!({"query": query, "variables": variables}).to_string();
        let answer = self.sender.exchange(&self.newest.url, self.headers()?, body).await?;
        if answer.status.as_u16() == 429 {
            let wait = answer.retry_after(self.now).unwrap_or(THROTTLED_WAIT);
            return Err(Attempt::Throttled { error: answer.excerpt(), wait: wait.min(THROTTLED_WAIT_MAX) });
        }
        match judge(&answer, self.now) {
            Attempt::Delivered => read(&answer),
            failed => Err(failed),
        }
    }

    fn headers(&self) -> Result<HeaderMap, Attempt> {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let value = |text: &str| {
            HeaderValue::from_str(text)
                .map_err(|_| Attempt::Unsendable { error: "the access token is no header value".into() })
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

fn read<T: for<'de> Deserialize<'de>>(answer: &WireAnswer) -> Result<T, Attempt> {
    let refused = |error: String| Attempt::Refused { error, retry_after: None };
    let read: GraphqlAnswer<T> = serde_json::from_slice(&answer.body)
        .map_err(|_| refused(format!("no GraphQL answer: {}", answer.excerpt())))?;
    if let Some(error) = read.errors.iter().find(|error| error.extensions["code"] == "THROTTLED") {
        let wait = throttled_wait(&read.extensions["cost"]);
        return Err(Attempt::Throttled { error: format!("THROTTLED: {}", error.message), wait });
    }
    match (read.errors.first(), read.data) {
        (Some(error), _) => Err(refused(format!("GraphQL: {}", error.message))),
        (None, Some(data)) => Ok(data),
        (None, None) => Err(refused(format!("no GraphQL answer: {}", answer.excerpt()))),
    }
}

/// Until the bucket holds what the query costs.
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
