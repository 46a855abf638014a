//! Pushes stock to a shop: one SKU's current ATS as an absolute quantity, through Shopify's Admin GraphQL API.
//!
//! Promises: the quantity was read after the claim of all the changes that the push covers; a repeated push is harmless;
//! permanent rejections are told apart from failures that may pass; throttling pauses the whole shop.
//! Relies on: the claim, which allows one push of a SKU at a time.
//!
//! The destination's `url` is the shop's GraphQL endpoint and its secret the access token; without `location_id` the shop's
//! primary location counts. The inventory item is looked up by the SKU's code at the first push and stored in
//! `shopify_inventory_item`, where a person may also set it.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::delivery::attempt::{Answered, Attempt, Sender, message_id};
use crate::delivery::outbox::Claimed;
use crate::delivery::shopify_api::{AdminApi, failed};

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
    /// The HTTP status of the last answer.
    pub status: Option<u16>,
}

impl From<Attempt> for Pushed {
    fn from(attempt: Attempt) -> Self {
        Self { attempt, learned: None, status: None }
    }
}

impl From<Answered> for Pushed {
    fn from(Answered { attempt, status }: Answered) -> Self {
        Self { attempt, learned: None, status }
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
    let id = message_id(newest.id);
    let token = newest.secrets.first().map(String::as_str);
    let api = AdminApi::new(sender, &newest.url, token, &id, now);
    let shop = Shop { api, newest };
    let attempt = sender.within(async {
        let pushed = async {
            let (item, location) = shop.item_and_location(&facts, &mut learned).await?;
            shop.set(&item, &location, &facts).await
        };
        pushed.await.unwrap_or_else(|attempt: Attempt| attempt)
    });
    let attempt = attempt.await;
    let status = shop.api.last_status();
    Pushed { attempt, learned, status }
}

struct Shop<'a> {
    api: AdminApi<'a>,
    newest: &'a Claimed,
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
        let found: Found = self.api.ask(LOOK_UP, &json!({"code": format!("sku:\"{code}\"")})).await?;
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
        let (id, quantity) = (self.api.message_id, facts.ats);
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
        let set: Set = self.api.ask(SET_QUANTITY, &variables).await?;
        let Some(outcome) = set.outcome else {
            return Err(failed("the answer holds no inventorySetQuantities".into()));
        };
        let Some(first) = outcome.user_errors.first() else { return Ok(Attempt::Delivered) };
        let code = first.code.as_deref().unwrap_or_default();
        let error = format!("{code}: {}", first.message);
        Ok(if PERMANENT.contains(&code) { Attempt::Rejected(error) } else { failed(error) })
    }
}
