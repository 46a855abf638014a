//! `holdfast admin reseal`: after a new key was put before the others, every stored secret is sealed with it.
//!
//! A secret that somebody replaces meanwhile is left alone: it is written with its old value as a condition.

use anyhow::{Context, Result};
use sealed::{Sealer, destination_place, inventory_place, shop_place, threepl_place};
use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::secrets::Keys;

/// Names of a place's row, its secret, and the statement that replaces the secret: $1 the name, $2 the old value, $3 the new one.
struct Stored {
    place: String,
    name: String,
    secret: String,
    replace: &'static str,
}

const OF_DESTINATION: &str = "update destination_secret set secret = $3 where id = $1::uuid and secret = $2";
const OF_THREEPL: &str = "update threepl_account set secret = $3 where id = $1 and secret = $2";
const OF_THREEPL_BEFORE: &str =
    "update threepl_account set previous_secret = $3 where id = $1 and previous_secret = $2";
const OF_INVENTORY: &str = "update threepl_inventory set token = $3 where account_id = $1 and token = $2";
const OF_SHOP: &str = "update shopify_shop set secret = $3 where domain = $1 and secret = $2";
const OF_SHOP_BEFORE: &str =
    "update shopify_shop set previous_secret = $3 where domain = $1 and previous_secret = $2";

pub async fn run(conn: &mut PgConnection, keys: &Keys) -> Result<Vec<Value>> {
    let sealer = keys.sealer()?;
    let (mut resealed, mut current) = (0, 0);
    for stored in all(conn).await? {
        if sealer.is_current(&stored.secret) {
            current += 1;
        } else if reseal(conn, sealer, &stored).await? {
            resealed += 1;
        }
    }
    Ok(vec![json!({ "resealed": resealed, "alreadyCurrent": current })])
}

async fn reseal(conn: &mut PgConnection, sealer: &Sealer, stored: &Stored) -> Result<bool> {
    let secret = sealer.open(&stored.place, &stored.secret).with_context(|| stored.place.clone())?;
    let written = sqlx::query(stored.replace)
        .bind(&stored.name)
        .bind(&stored.secret)
        .bind(sealer.seal(&stored.place, &secret)?)
        .execute(conn)
        .await?;
    Ok(written.rows_affected() > 0)
}

async fn all(conn: &mut PgConnection) -> Result<Vec<Stored>> {
    let mut all = Vec::new();
    let destinations: Vec<(Uuid, Uuid, String)> =
        sqlx::query_as("select destination_id, id, secret from destination_secret order by id")
            .fetch_all(&mut *conn)
            .await?;
    for (destination, id, secret) in destinations {
        let place = destination_place(destination);
        all.push(Stored { place, name: id.to_string(), secret, replace: OF_DESTINATION });
    }
    let accounts: Vec<(String, Option<String>, Option<String>)> =
        sqlx::query_as("select id, secret, previous_secret from threepl_account order by id")
            .fetch_all(&mut *conn)
            .await?;
    let shops: Vec<(String, Option<String>, Option<String>)> =
        sqlx::query_as("select domain, secret, previous_secret from shopify_shop order by domain")
            .fetch_all(&mut *conn)
            .await?;
    let inventories: Vec<(String, String)> =
        sqlx::query_as("select account_id, token from threepl_inventory order by account_id")
            .fetch_all(&mut *conn)
            .await?;
    for (name, secret) in inventories {
        all.push(Stored { place: inventory_place(&name), name, secret, replace: OF_INVENTORY });
    }
    let accounts =
        accounts.into_iter().map(|row| (threepl_place(&row.0), row, [OF_THREEPL, OF_THREEPL_BEFORE]));
    let shops = shops.into_iter().map(|row| (shop_place(&row.0), row, [OF_SHOP, OF_SHOP_BEFORE]));
    for (place, (name, now, before), statements) in accounts.chain(shops) {
        for (secret, replace) in [now, before].into_iter().zip(statements) {
            if let Some(secret) = secret {
                all.push(Stored { place: place.clone(), name: name.clone(), secret, replace });
            }
        }
    }
    Ok(all)
}
