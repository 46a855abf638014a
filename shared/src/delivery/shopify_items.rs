//! A shop's inventory item id for a SKU: found by the first push, stored for the next ones.

use serde_json::json;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::Db;
use crate::db::error::DbError;

/// The inventory item of one SKU at one shop.
#[derive(Clone, Debug)]
pub struct LearnedItem {
    /// Owner of the SKU.
    pub tenant_id: Uuid,
    /// The shop.
    pub destination_id: Uuid,
    /// Our SKU.
    pub sku_id: Uuid,
    /// Shopify's global id, `gid://shopify/InventoryItem/…`.
    pub inventory_item_id: String,
}

/// Stores it; an item that is stored already, perhaps by a person, stays.
pub async fn learn(db: &Db, item: &LearnedItem) -> Result<(), DbError> {
    let argument = json!({"tenantId": item.tenant_id, "destinationId": item.destination_id,
        "skuId": item.sku_id, "inventoryItemId": item.inventory_item_id});
    db.call(&Statement::new("holdfast.learn_inventory_item", argument)).await.map(|_| ())
}
