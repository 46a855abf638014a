//! Pushes stock to a shop: one SKU's current ATS as an absolute quantity, through Shopify's Admin GraphQL API.
//!
//! Promises: the quantity was read after the claim of all the changes that the push covers; a repeated push is harmless;
//! permanent rejections are told apart from failures that may pass; throttling pauses the whole shop.
//! Relies on: the claim, which allows one push of a SKU at a time.
//!
//! The destination's `url` is the shop's GraphQL endpoint and its secret the access token; without `location_id` the shop's
//! primary location counts. The inventory item is looked up by the SKU's code at the first push and stored in
//! `shopify_inventory_item`, where a person may also set it. A SKU that the shop (or this location) does not carry is stored as well:
//! its changes end without a call, and the shop is asked again daily.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::delivery::attempt::{Answered, Attempt, Sender, message_id};
use crate::delivery::outbox::Claimed;
use crate::delivery::shopify_api::{AdminApi, failed};
use crate::delivery::shopify_items::Learned;

/// Sent with `changeFromQuantity: null`, which skips the shop's compare-and-swap: our number counts.
const SET_QUANTITY: &str = "mutation SetAvailable($input: InventorySetQuantitiesInput!, $key: String!) { \
     inventorySetQuantities(input: $input) @idempotent(key: $key) { userErrors { code field message } } }";
/// The search also finds SKUs that only begin with the code: the exact one is taken, on whatever page it stands.
const LOOK_UP: &str = "query FindItem($code: String!, $after: String) { location { id } \
     inventoryItems(first: 100, query: $code, after: $after) { nodes { id sku } pageInfo { hasNextPage endCursor } } }";
/// What a test asks: it shows that the token and the location are right, and sets nothing.
const PRIMARY_LOCATION: &str = "query TestPrimary { location { id } }";
const LOCATION: &str = "query TestLocation($location: ID!) { location(id: $location) { id } }";
/// The stored item is gone.
const NO_SUCH_ITEM: &str = "INVALID_INVENTORY_ITEM";
/// The shop has the item, but not at this location.
const NOT_AT_LOCATION: &str = "ITEM_NOT_STOCKED_AT_LOCATION";
/// User errors that a retry cannot change.
const PERMANENT: [&str; 11] = [
    NO_SUCH_ITEM,
    "INVALID_LOCATION",
    "INVALID_NAME",
    "INVALID_QUANTITY_NEGATIVE",
    "INVALID_QUANTITY_TOO_HIGH",
    "INVALID_QUANTITY_TOO_LOW",
    "INVALID_REASON",
    "INVALID_REFERENCE_DOCUMENT",
    "NON_MUTABLE_INVENTORY_ITEM",
    "NO_DUPLICATE_INVENTORY_ITEM_ID_GROUP_ID_PAIR",
    "IDEMPOTENCY_KEY_PARAMETER_MISMATCH",
];

/// `holdfast.relay_facts`, read after the claim.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Facts {
    Stock(Stock),
    /// A person wants to know whether the shop can be reached.
    Test {
        #[serde(rename = "test")]
        _is_test: bool,
    },
}

/// `holdfast.push_facts`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stock {
    code: String,
    ats: i64,
    inventory_item_id: Option<String>,
    /// How often a person has requeued the newest row.
    requeues: i32,
    /// Less than a day ago the shop did not carry the SKU.
    silent: bool,
}

#[derive(Deserialize)]
struct Located {
    location: Option<Node>,
}

#[derive(Deserialize)]
struct Found {
    location: Option<Node>,
    #[serde(rename = "inventoryItems")]
    inventory_items: Option<Items>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Items {
    nodes: Vec<Node>,
    #[serde(default)]
    page_info: PageInfo,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
    end_cursor: Option<String>,
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
    /// What is not stored yet of the SKU at this shop.
    pub learned: Option<Learned>,
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
        let done = match &facts {
            Facts::Stock(stock) => shop.push(stock, &mut learned).await,
            Facts::Test { .. } => shop.test().await,
        };
        done.unwrap_or_else(|attempt| attempt)
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
    async fn push(&self, stock: &Stock, learned: &mut Option<Learned>) -> Result<Attempt, Attempt> {
        let not_carried = |learned: &mut Option<Learned>| {
            *learned = Some(Learned { inventory_item_id: None, instead_of: stock.inventory_item_id.clone() });
            Ok(Attempt::Passed(format!(
                "the shop has no item with SKU {}; it is asked again daily",
                stock.code
            )))
        };
        if stock.silent {
            return Ok(Attempt::Passed(format!("the shop had no item with SKU {} within a day", stock.code)));
        }
        let Some((mut item, location)) = self.item_and_location(stock, learned).await? else {
            return not_carried(learned);
        };
        let mut set = self.set(&item, &location, stock).await?;
        if set.as_ref().is_err_and(|error| error.is(NO_SUCH_ITEM)) && stock.inventory_item_id.is_some() {
            // It was deleted, and perhaps made anew.
            let stored = std::mem::take(&mut item);
            match self.look_up(stock).await?.0 {
                Some(found) if found != stored => item = found,
                _ => return not_carried(learned),
            }
            *learned = Some(Learned { inventory_item_id: Some(item.clone()), instead_of: Some(stored) });
            set = self.set(&item, &location, stock).await?;
        }
        match set {
            Ok(()) => Ok(Attempt::Delivered),
            Err(error) if error.is(NOT_AT_LOCATION) => not_carried(learned),
            Err(error) => Ok(error.attempt()),
        }
    }

    /// Asks the shop only where one of the two is not known. `None`: it does not carry the SKU.
    async fn item_and_location(
        &self,
        stock: &Stock,
        learned: &mut Option<Learned>,
    ) -> Result<Option<(String, String)>, Attempt> {
        if let (Some(item), Some(location)) = (&stock.inventory_item_id, &self.newest.location_id) {
            return Ok(Some((item.clone(), location.clone())));
        }
        let (found, location) = self.look_up(stock).await?;
        let Some(location) = self.newest.location_id.clone().or(location) else {
            return Err(Attempt::Rejected("the shop has no location".into()));
        };
        if let Some(item) = &stock.inventory_item_id {
            return Ok(Some((item.clone(), location)));
        }
        *learned = found.clone().map(|item| Learned { inventory_item_id: Some(item), instead_of: None });
        Ok(found.map(|item| (item, location)))
    }

    /// The item with exactly this code, and the shop's primary location.
    async fn look_up(&self, stock: &Stock) -> Result<(Option<String>, Option<String>), Attempt> {
        let code = stock.code.replace('\\', "\\\\").replace('"', "\\\"");
        let mut after = None;
        loop {
            let variables = json!({"code": format!("sku:\"{code}\""), "after": after});
            let found: Found = self.api.ask(LOOK_UP, &variables).await?;
            let location = found.location.map(|location| location.id);
            let items = found.inventory_items.unwrap_or_default();
            let exact = items.nodes.into_iter().find(|item| item.sku.as_deref() == Some(stock.code.as_str()));
            after = items.page_info.end_cursor;
            if exact.is_some() || !items.page_info.has_next_page || after.is_none() {
                return Ok((exact.map(|item| item.id), location));
            }
        }
    }

    async fn set(&self, item: &str, location: &str, stock: &Stock) -> Result<Result<(), UserError>, Attempt> {
        let (id, quantity) = (self.api.message_id, stock.ats);
        let variables = json!({
            // Shopify replays its answer to an equal key. So another ATS, item or location needs another key, and so does a
            // requeue, since somebody may have changed the shop's stock by hand meanwhile.
            "key": format!("{id}-{}-{quantity}-{}-{}", stock.requeues, number(item), number(location)),
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
        Ok(outcome.user_errors.into_iter().next().map_or(Ok(()), Err))
    }

    /// Asks for the location, with which token and address are tried too.
    async fn test(&self) -> Result<Attempt, Attempt> {
        let found: Located = match &self.newest.location_id {
            Some(location) => self.api.ask(LOCATION, &json!({"location": location})).await?,
            None => self.api.ask(PRIMARY_LOCATION, &json!({})).await?,
        };
        match (found.location, &self.newest.location_id) {
            (Some(_), _) => Ok(Attempt::Delivered),
            (None, Some(location)) => Err(Attempt::Rejected(format!("the shop has no location {location}"))),
            (None, None) => Err(Attempt::Rejected("the shop has no location".into())),
        }
    }
}

impl UserError {
    fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    fn attempt(self) -> Attempt {
        let code = self.code.unwrap_or_default();
        let error = format!("{code}: {}", self.message);
        if PERMANENT.contains(&code.as_str()) { Attempt::Rejected(error) } else { failed(error) }
    }
}

/// The number in a global id: 1 of `gid://shopify/Location/1`.
fn number(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or(id)
}
