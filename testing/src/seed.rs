//! A tenant with the data that a test needs, inserted as the owner; stock is entered through the ledger.

use uuid::Uuid;

use super::TestDb;

/// What a tenant starts with; the default is two orders that both want all six units of one SKU.
#[derive(Clone, Debug)]
pub struct Seed {
    /// Number of SKUs.
    pub skus: usize,
    /// Units on hand of each SKU.
    pub on_hand: i64,
    /// Number of open orders, each with a line for every SKU.
    pub orders: usize,
    /// Units of each line.
    pub order_qty: i64,
    /// Unit price of each line in minor units.
    pub unit_price_minor: i64,
    /// The customer's, in minor units; `None` for no limit.
    pub credit_limit_minor: Option<i64>,
}

impl Default for Seed {
    fn default() -> Self {
        Self {
            skus: 1,
            on_hand: 6,
            orders: 2,
            order_qty: 6,
            unit_price_minor: 1000,
            credit_limit_minor: None,
        }
    }
}

/// Ids of a seeded tenant and its data.
#[derive(Clone, Debug)]
pub struct Tenant {
    /// The tenant's.
    pub id: Uuid,
    /// Ann and Ben.
    pub users: [Uuid; 2],
    /// The only one.
    pub customer: Uuid,
    /// Sorted.
    pub skus: Vec<Uuid>,
    /// All open.
    pub orders: Vec<Uuid>,
}

impl Tenant {
    /// A token of Ann with all scopes.
    pub fn token(&self) -> String {
        super::token(self.id, self.users[0], "orders:write orders:read credit:write outbox:admin events:read")
    }

    /// A token of Ben with all scopes.
    pub fn second_token(&self) -> String {
        super::token(self.id, self.users[1], "orders:write orders:read credit:write outbox:admin events:read")
    }
}

/// A destination of kind `webhook`.
#[derive(Clone, Debug)]
pub struct Destination {
    /// `destination.id`.
    pub id: Uuid,
    /// Signs the events, `whsec_…`.
    pub secret: String,
}

impl TestDb {
    /// Inserts a new tenant with these data.
    pub async fn seed(&self, seed: Seed) -> Tenant {
        let [id, ann, ben, customer, style] = std::array::from_fn(|_| Uuid::new_v4());
        let mut skus: Vec<Uuid> = (0..seed.skus).map(|_| Uuid::new_v4()).collect();
        skus.sort();
        let orders: Vec<Uuid> = (0..seed.orders).map(|_| Uuid::new_v4()).collect();
        let list = |ids: &[Uuid]| ids.iter().map(|id| format!("'{id}'")).collect::<Vec<_>>().join(",");
        let (sku_list, order_list) = (list(&skus), list(&orders));
        let limit = seed.credit_limit_minor.map_or("null".into(), |limit| limit.to_string());
        let Seed { on_hand, order_qty, unit_price_minor, .. } = seed;
        self.execute(format!(
            "begin;
             insert into tenant (id, name) values ('{id}', 'Tenant {id}');
             insert into app_user (tenant_id, id, display_name, email) values
               ('{id}', '{ann}', 'Ann', 'ann@tenant.test'), ('{id}', '{ben}', 'Ben', 'ben@tenant.test');
             insert into customer (tenant_id, id, name, currency, credit_limit_minor)
               values ('{id}', '{customer}', 'Boutique', 'USD', {limit});
             insert into style (tenant_id, id, name, currency, wholesale_minor, msrp_minor)
               values ('{id}', '{style}', 'Parka', 'USD', {unit_price_minor}, {unit_price_minor} * 2);
             insert into sku (tenant_id, id, code, style_id)
               select '{id}', s, 'SKU-' || lpad(n::text, 4, '0'), '{style}'
               from unnest(array[{sku_list}]::uuid[]) with ordinality as x(s, n);
             insert into stock_ledger (tenant_id, sku_id, on_hand_delta, entry_type, actor)
               select tenant_id, id, {on_hand}, 'opening', 'seed' from sku where tenant_id = '{id}' and {on_hand} <> 0;
             update sku_position set on_hand = {on_hand} where tenant_id = '{id}';
             insert into wholesale_order (tenant_id, id, number, customer_id, currency, created_by, updated_by)
               select '{id}', o, 'SO-' || n, '{customer}', 'USD', '{ann}', '{ann}'
               from unnest(array[{order_list}]::uuid[]) with ordinality as x(o, n);
             insert into order_line (tenant_id, order_id, sku_id, line_no, qty, unit_price_minor)
               select '{id}', o, s, n, {order_qty}, {unit_price_minor}
               from unnest(array[{order_list}]::uuid[]) as o,
                    unnest(array[{sku_list}]::uuid[]) with ordinality as x(s, n);
             commit"
        ))
        .await;
        Tenant { id, users: [ann, ben], customer, skus, orders }
    }

    /// Inserts an active webhook destination.
    pub async fn destination(&self, tenant: &Tenant, url: &str, event_types: &[&str]) -> Destination {
        use base64::Engine as _;
        let id = Uuid::new_v4();
        let secret =
            format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode(Uuid::new_v4().as_bytes()));
        let types = event_types.join(",");
        let tenant_id = tenant.id;
        self.execute(format!(
            "insert into destination (tenant_id, id, name, kind, url, event_types)
               values ('{tenant_id}', '{id}', 'Partner', 'webhook', '{url}', string_to_array('{types}', ','));
             insert into destination_secret (tenant_id, destination_id, secret) values ('{tenant_id}', '{id}', '{secret}')"
        ))
        .await;
        Destination { id, secret }
    }

    /// Emits `count` events, all of the tenant's own aggregate, in one transaction.
    pub async fn emit(&self, tenant: &Tenant, count: usize) {
        let id = tenant.id;
        self.execute(format!(
            "with bumped as (update tenant set event_sequence = event_sequence + {count} where id = '{id}'
               returning event_sequence - {count} as base)
             select holdfast.emit('{id}', (select array_agg(row('inbox.exception', 'tenant', '{id}', base + n, null,
               format('{{\"n\":%s}}', n))::holdfast.event order by n) from bumped, generate_series(1, {count}) n))"
        ))
        .await;
    }
}
