//! Who wants what: the identifiers of `bench-sql/seed.sql`.

use rand::RngExt;

/// The only tenant.
pub const TENANT: &str = "11111111-1111-4111-8111-111111111111";
/// Its user, who sends every request.
pub const USER: &str = "22222222-2222-4222-8222-222222222222";
/// Lowest number at the end of an order's or SKU's id; there are 1,000 of each.
const FIRST: u64 = 100_000_000_000;
const COUNT: u64 = 1_000;

/// How requests spread over the stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Every order wants one and the same SKU.
    Hot,
    /// Every order wants a SKU of its own.
    Spread,
}

/// What one request asks for.
pub struct Wish {
    /// The order.
    pub order: String,
    /// The SKU, of which it asks for one unit.
    pub sku: String,
    /// The idempotency key, never used before.
    pub key: String,
}

impl Workload {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Hot, Self::Spread];

    /// As it stands in the table and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "one hot SKU",
            Self::Spread => "1,000 SKUs",
        }
    }

    /// The next request.
    pub fn wish(self) -> Wish {
        let mut random = rand::rng();
        let order = random.random_range(FIRST..FIRST + COUNT);
        let sku = match self {
            Self::Hot => FIRST,
            Self::Spread => order,
        };
        Wish {
            order: format!("66666666-6666-4666-8666-{order}"),
            sku: format!("55555555-5555-4555-8555-{sku}"),
            key: format!(
                "bench-{}",
                random.random_range(1_000_000_000_000_000_000..9_000_000_000_000_000_000_u64)
            ),
        }
    }

    /// The same for pgbench.
    pub fn pgbench_script(self) -> String {
        let sku = match self {
            Self::Hot => FIRST.to_string(),
            Self::Spread => ":order".to_owned(),
        };
        include_str!("../sql/floor.sql").replacen("{sku}", &sku, 1)
    }
}
