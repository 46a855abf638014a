//! What there is before the first request: a tenant with customers, SKUs, orders, invoices, destinations, and the secrets of
//! its senders.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use sqlx::{Connection, PgConnection};
use uuid::Uuid;

use holdfast::master_data::{self, Orders, Style, User};
use holdfast::secrets;
use xtask::tokens::TokenIssuer;

/// SKUs that everything moves.
pub const SKUS: usize = 6;
/// SKUs that nothing but allocations and releases moves: their `atsAfter` is a counter.
pub const COUNTERS: usize = 2;
const ORDERS: usize = 24;
const COUNTER_ORDERS: usize = 8;
const INVOICES: usize = 40;
/// Units of each SKU on hand in the beginning.
pub const ON_HAND: i64 = 40;
const ORDER_QTY: i64 = 20;
const PRICE_MINOR: i64 = 1_000;
/// Of one of the two customers.
const LIMIT_MINOR: i64 = 150_000;
/// Of each invoice.
pub const INVOICE_MINOR: i64 = 5_000;

/// Ids, secrets, and what has been created meanwhile.
pub struct World {
    pub tenant: Uuid,
    pub users: [Uuid; 2],
    pub tokens: [String; 2],
    /// The first has a limit.
    pub customers: [Uuid; 2],
    pub style: Uuid,
    pub skus: Vec<(Uuid, String)>,
    pub counters: Vec<(Uuid, String)>,
    pub counter_orders: Vec<Uuid>,
    pub invoices: Vec<Uuid>,
    /// An unordered and an ordered webhook.
    pub webhooks: [Uuid; 2],
    pub shop: Uuid,
    pub shop_domain: String,
    pub threepl_account: String,
    pub threepl_secret: String,
    pub stripe_secret: String,
    pub shopify_secret: String,
    pub issuer: TokenIssuer,
    orders: Mutex<Vec<Uuid>>,
}

impl World {
    /// Makes the tenant in the database of this owner.
    pub async fn make(conn: &mut PgConnection, seed: u64, partner_url: &str) -> Result<Arc<Self>> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut id = || uuid::Builder::from_random_bytes(rng.random()).into_uuid();
        let issuer = TokenIssuer {
            secret: secrets::random_hex(),
            issuer: "https://issuer.chaos".into(),
            audience: "holdfast-chaos".into(),
            tenant_claim: "tenant_id".into(),
            scope_claim: "scope".into(),
        };
        let tenant = id();
        let users = [id(), id()];
        let mut skus = |prefix: &str, count: usize| {
            let mut skus: Vec<_> = (0..count).map(|n| (id(), format!("{prefix}-{n}"))).collect();
            skus.sort();
            skus
        };
        let (traded, counters) = (skus("CHAOS", SKUS), skus("COUNT", COUNTERS));
        let mut ids = |count: usize| (0..count).map(|_| id()).collect::<Vec<_>>();
        let (orders, counter_orders, invoices) = (ids(ORDERS), ids(COUNTER_ORDERS), ids(INVOICES));
        let [limited, free, style, plain, ordered, shop] =
            <[Uuid; 6]>::try_from(ids(6)).map_err(|_| anyhow::anyhow!("six ids"))?;
        let world = Self {
            tenant,
            users,
            tokens: [issuer.token(tenant, users[0])?, issuer.token(tenant, users[1])?],
            customers: [limited, free],
            style,
            skus: traded,
            counters,
            counter_orders,
            invoices,
            webhooks: [plain, ordered],
            shop,
            shop_domain: "chaos.myshopify.com".into(),
            threepl_account: "chaos".into(),
            threepl_secret: secrets::webhook_secret(),
            stripe_secret: "whsec_chaos".into(),
            shopify_secret: "shpss_chaos".into(),
            issuer,
            orders: Mutex::new(orders),
        };
        let mut tx = conn.begin().await?;
        world.insert(&mut tx, partner_url).await?;
        tx.commit().await?;
        Ok(Arc::new(world))
    }

    async fn insert(&self, conn: &mut PgConnection, partner_url: &str) -> Result<()> {
        let tenant = self.tenant;
        master_data::add_tenant(conn, tenant, "Chaos").await?;
        for (id, name) in self.users.into_iter().zip(["Maya", "Kenji"]) {
            let email = format!("{name}@chaos.example");
            master_data::add_user(conn, tenant, &User { id, display_name: name, email: &email }).await?;
        }
        let limits = [Some(LIMIT_MINOR), None];
        for (customer, limit) in self.customers.into_iter().zip(limits) {
            master_data::add_customer(conn, tenant, customer, "Boutique", "USD", limit).await?;
        }
        let style = Style {
            id: self.style,
            name: "Parka",
            currency: "USD",
            wholesale_minor: PRICE_MINOR,
            msrp_minor: 2 * PRICE_MINOR,
        };
        master_data::add_style(conn, tenant, &style).await?;
        for skus in [&self.skus, &self.counters] {
            let (ids, codes): (Vec<Uuid>, Vec<String>) = skus.iter().cloned().unzip();
            master_data::add_skus(conn, tenant, self.style, &ids, &codes).await?;
            master_data::receive_opening_stock(conn, tenant, &ids, &vec![ON_HAND; ids.len()], "chaos")
                .await?;
        }
        for (at, customer) in self.customers.into_iter().enumerate() {
            let of_this = |ids: &[Uuid]| ids.iter().copied().skip(at).step_by(2).collect::<Vec<_>>();
            for (ids, skus) in
                [(of_this(&self.orders()), &self.skus), (of_this(&self.counter_orders), &self.counters)]
            {
                let skus: Vec<Uuid> = skus.iter().map(|(id, _)| *id).collect();
                let orders = Orders {
                    ids: &ids,
                    customer,
                    user: self.users[0],
                    currency: "USD",
                    skus: &skus,
                    qtys: &vec![ORDER_QTY; skus.len()],
                    unit_price_minor: PRICE_MINOR,
                };
                master_data::add_orders(conn, tenant, &orders).await?;
            }
        }
        sqlx::query(
            "insert into invoice (tenant_id, id, customer_id, total_minor, currency)
             select $1, id, $2, $3, 'USD' from unnest($4::uuid[]) as i(id)",
        )
        .bind(tenant)
        .bind(self.customers[1])
        .bind(INVOICE_MINOR)
        .bind(&self.invoices)
        .execute(&mut *conn)
        .await?;
        for destination in self.webhooks {
            let url = format!("{partner_url}/webhooks/{destination}");
            master_data::add_webhook_destination(conn, tenant, destination, &url, &secrets::webhook_secret())
                .await?;
        }
        sqlx::query("update destination set ordered = true where id = $1")
            .bind(self.webhooks[1])
            .execute(&mut *conn)
            .await?;
        let shop = format!("{partner_url}/shopify/admin/api/2026-04/graphql.json");
        sqlx::query(
            "insert into destination (tenant_id, id, name, kind, url, event_types)
             values ($1, $2, 'Shop', 'shopify_inventory', $3, array['sku.ats_changed'])",
        )
        .bind(self.tenant)
        .bind(self.shop)
        .bind(shop)
        .execute(&mut *conn)
        .await?;
        sqlx::query("insert into destination_secret (tenant_id, destination_id, secret) values ($1, $2, 'shpat_chaos')")
            .bind(self.tenant)
            .bind(self.shop)
            .execute(&mut *conn)
            .await?;
        master_data::add_shop(conn, tenant, &self.shop_domain).await?;
        master_data::add_threepl_account(conn, tenant, &self.threepl_account, &self.threepl_secret).await?;
        let warehouse = format!("{partner_url}/3pl");
        master_data::set_threepl_inventory(conn, tenant, &self.threepl_account, &warehouse, "wms_chaos").await
    }

    /// What the functions need to know.
    pub fn environment(&self, app_url: String, worker_url: String) -> Vec<(String, String)> {
        let issuer = &self.issuer;
        [
            ("APP_DATABASE_URL", app_url.as_str()),
            ("WORKER_DATABASE_URL", &worker_url),
            ("DATABASE_POOLER", "none"),
            ("JWT_SECRET", &issuer.secret),
            ("JWT_ISSUER", &issuer.issuer),
            ("JWT_AUDIENCE", &issuer.audience),
            ("JWT_TENANT_CLAIM", &issuer.tenant_claim),
            ("JWT_SCOPE_CLAIM", &issuer.scope_claim),
            ("STRIPE_WEBHOOK_SECRET", &self.stripe_secret),
            ("STRIPE_LIVEMODE", "any"),
            ("SHOPIFY_WEBHOOK_SECRET", &self.shopify_secret),
            ("SECRETS_KEYS", testing::SECRETS_KEYS),
            ("DESTINATION_ALLOW", "127.0.0.1,localhost"),
            // Without credentials and endpoints there is neither mail nor a helper.
            ("RELAY_MAX_HELPERS", "0"),
            // No person is there to decide about a difference.
            ("RECONCILE_SKU_FLOOR", "1000000"),
            ("RECONCILE_RUN_FLOOR", "1000000"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// The orders that were there or were created since, without those of the counters.
    pub fn orders(&self) -> Vec<Uuid> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An order that was created.
    pub fn add_order(&self, order: Uuid) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push(order);
    }
}
