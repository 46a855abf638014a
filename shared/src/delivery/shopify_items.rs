//! Which inventory item a SKU is at a shop: learned by the first push, kept for the next ones.

use serde_json::json;
use uuid::Uuid;

use crate::db::call::Statement;
use crate::db::connection::{Db, DbError};

/// What a push has learned.
#[derive(Clone, Debug)]
pub struct LearnedItem {
    /// Whose SKU.
    pub tenant_id: Uuid,
    /// The shop.
    pub destination_id: Uuid,
    /// The SKU.
    pub sku_id: Uuid,
    /// The shop's id of the inventory item.
    pub inventory_item_id: String,
}

/// Keeps it.
///
/// # Errors
/// As [`Db::run`].
pub async fn learn(db: &Db, item: &LearnedItem) -> Result<(), DbError> {
    let argument = json!({"tenantId": item.tenant_id, "destinationId": item.destination_id,
        "skuId": item.sku_id, "inventoryItemId": item.inventory_item_id});
    db.call(&Statement::new("holdfast.learn_inventory_item", argument)).await.map(|_| ())
}
