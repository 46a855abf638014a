//! What is known of a SKU at a shop: its inventory item, found by the first push, or that the shop does not carry it, which is asked
//! again daily.

use serde_json::json;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::Db;
use crate::db::error::DbError;

/// What a push found out of its SKU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Learned {
    /// Shopify's global id, `gid://shopify/InventoryItem/…`; `None`: the shop does not carry it.
    pub inventory_item_id: Option<String>,
    /// The one that was stored, which the shop did not know.
    pub instead_of: Option<String>,
}

/// What is to be stored of one SKU at one shop.
#[derive(Clone, Debug)]
pub struct LearnedItem {
    /// Owner of the SKU.
    pub tenant_id: Uuid,
    /// The shop.
    pub destination_id: Uuid,
    /// Our SKU.
    pub sku_id: Uuid,
    /// The event of the push: the one that asks again.
    pub outbox_id: i64,
    /// What it found out.
    pub learned: Learned,
}

/// Stores it; another item that is stored already, perhaps by a person, stays.
pub async fn learn(db: &Db, item: &LearnedItem) -> Result<(), DbError> {
    let Learned { inventory_item_id, instead_of } = &item.learned;
    let asks_again = inventory_item_id.is_none().then_some(item.outbox_id);
    let argument = json!({"tenantId": item.tenant_id, "destinationId": item.destination_id, "skuId": item.sku_id,
        "inventoryItemId": inventory_item_id, "insteadOf": instead_of, "outboxId": asks_again});
    db.call(&Statement::new("holdfast.learn_inventory_item", argument)).await.map(|_| ())
}

/// Makes up to `most` pushes due again that ended a day ago because their shops did not carry the SKU.
pub async fn ask_again(db: &Db, most: u32) -> Result<(), DbError> {
    db.call(&Statement::new("holdfast.relay_ask_again", json!({"most": most}))).await.map(|_| ())
}
