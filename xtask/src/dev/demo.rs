//! The demo data: two users who want the last six units of a jacket.

use anyhow::Result;
use sqlx::{Connection, PgConnection};

use super::state::State;
use crate::partner::{inventory, webhook_url};
use holdfast::master_data::{self, Grant, Orders, Style, User};
use holdfast::secrets::{self, Keys};
use sealed::{destination_place, inventory_place, threepl_place};

pub const SCARCE_CODE: &str = "HARBOR-NVY-M";
pub const PLENTIFUL_CODE: &str = "HARBOR-NVY-L";
/// Units on hand of the scarce and of the plentiful SKU.
const ON_HAND: [i64; 2] = [6, 240];
/// Units of the two that each order wants: together more than there are of the scarce one.
const WANTED: [i64; 2] = [6, 12];
const WHOLESALE_MINOR: i64 = 8_900;
const MSRP_MINOR: i64 = 19_800;

/// Inserts the demo data unless they are there, in one transaction, and points the destinations at the partner's current
/// address.
pub async fn load(conn: &mut PgConnection, state: &State, partner_url: &str) -> Result<()> {
    let demo = &state.demo;
    let mut tx = conn.begin().await?;
    let there: bool = sqlx::query_scalar("select exists (select from tenant where id = $1)")
        .bind(demo.tenant)
        .fetch_one(&mut *tx)
        .await?;
    if !there {
        insert(&mut tx, state, partner_url).await?;
    }
    // Also those of scenarios and of shops that were added since: the partner's port may differ from the last run's.
    sqlx::query(
        r"update threepl_inventory set base_url = regexp_replace(base_url, '^http://127\.0\.0\.1:\d+', $1)
          where base_url ~ '^http://127\.0\.0\.1:\d+/3pl/' and base_url not like $1 || '/%'",
    )
    .bind(partner_url)
    .execute(&mut *tx)
    .await?;
    // A database of an earlier version of this project has the demo without it.
    let url = inventory::url(partner_url, &demo.threepl_account);
    sqlx::query(
        "insert into threepl_inventory (tenant_id, account_id, base_url, token)
         select tenant_id, id, $2, $3 from threepl_account where id = $1 on conflict do nothing",
    )
    .bind(&demo.threepl_account)
    .bind(url)
    .bind(
        Keys::read(Some(&state.secrets_keys))?
            .at_rest(&inventory_place(&demo.threepl_account), &secrets::random_hex())?,
    )
    .execute(&mut *tx)
    .await?;
    add_events_key(&mut tx, state).await?;
    sqlx::query(
        r"update destination set url = regexp_replace(url, '^http://127\.0\.0\.1:\d+', $1)
          where (name = 'Local partner' and url ~ '^http://127\.0\.0\.1:\d+/webhooks/'
                 or kind = 'shopify_inventory' and url ~ '^http://127\.0\.0\.1:\d+/shopify/admin/api/')
            and url not like $1 || '/%'",
    )
    .bind(partner_url)
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(())
}

/// The partner's key for its own events, which the demo of an earlier version lacks.
async fn add_events_key(conn: &mut PgConnection, state: &State) -> Result<()> {
    let (demo, key, scopes) = (&state.demo, &state.events_api_key, ["events:read".to_owned()]);
    let there: bool = sqlx::query_scalar("select exists (select from api_key where key_hash = $1)")
        .bind(secrets::api_key_hash(key))
        .fetch_one(&mut *conn)
        .await?;
    if !there {
        let (grant, label) =
            (Grant { scopes: &scopes, destination: Some(demo.destination) }, "Northbound EDI, its events");
        master_data::add_api_key(conn, demo.tenant, demo.partner_user, label, key, grant, None).await?;
    }
    Ok(())
}

async fn insert(conn: &mut PgConnection, state: &State, partner_url: &str) -> Result<()> {
    let demo = &state.demo;
    let tenant = demo.tenant;
    master_data::add_tenant(conn, tenant, "Alder & Finch").await?;
    let users = [
        (demo.user1, "Maya Ortiz (Austin)", "maya@alder-finch.example"),
        (demo.user2, "Kenji Sato (Tokyo)", "kenji@alder-finch.example"),
        (demo.partner_user, "Northbound EDI", "edi@northbound.example"),
    ];
    for (id, display_name, email) in users {
        master_data::add_user(conn, tenant, &User { id, display_name, email }).await?;
    }
    master_data::add_customer(conn, tenant, demo.customer, "North Loop Outfitters", "USD", None).await?;
    let style = Style {
        id: demo.style,
        name: "Harbor Jacket",
        currency: "USD",
        wholesale_minor: WHOLESALE_MINOR,
        msrp_minor: MSRP_MINOR,
    };
    master_data::add_style(conn, tenant, &style).await?;
    let skus = [demo.scarce_sku, demo.plentiful_sku];
    let codes = [SCARCE_CODE.to_owned(), PLENTIFUL_CODE.to_owned()];
    master_data::add_skus(conn, tenant, demo.style, &skus, &codes).await?;
    master_data::receive_opening_stock(conn, tenant, &skus, &ON_HAND, "demo").await?;
    let orders = Orders {
        ids: &demo.orders,
        customer: demo.customer,
        user: demo.user1,
        currency: "USD",
        skus: &skus,
        qtys: &WANTED,
        unit_price_minor: WHOLESALE_MINOR,
    };
    master_data::add_orders(conn, tenant, &orders).await?;
    let url = webhook_url(partner_url, demo.destination);
    let keys = Keys::read(Some(&state.secrets_keys))?;
    let secret = keys.at_rest(&destination_place(demo.destination), &demo.destination_secret)?;
    master_data::add_webhook_destination(conn, tenant, demo.destination, &url, &secret).await?;
    master_data::add_shop(conn, tenant, &demo.shop_domain).await?;
    let secret = keys.at_rest(&threepl_place(&demo.threepl_account), &demo.threepl_secret)?;
    master_data::add_threepl_account(conn, tenant, &demo.threepl_account, &secret).await?;
    let scopes = ["orders:write".to_owned(), "orders:read".to_owned()];
    let key = &state.partner_api_key;
    let grant = Grant { scopes: &scopes, destination: None };
    master_data::add_api_key(conn, tenant, demo.partner_user, "Northbound EDI", key, grant, None).await?;
    master_data::add_tenant(conn, demo.other_tenant, "Birch & Co").await?;
    let noor = User { id: demo.other_user, display_name: "Noor Haddad (Oslo)", email: "noor@birch.example" };
    master_data::add_user(conn, demo.other_tenant, &noor).await
}
