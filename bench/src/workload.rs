//! The workloads: which order wants which SKU. Ids are those of `bench/sql/seed.sql`.

use rand::RngExt;

pub const TENANT: &str = "11111111-1111-4111-8111-111111111111";
pub const USER: &str = "22222222-2222-4222-8222-222222222222";
/// The last twelve digits of the first order's and SKU's id.
const FIRST: u64 = 100_000_000_000;
/// Number of orders and of SKUs.
const COUNT: u64 = 1_000;
/// Random numbers that are keys.
const KEYS: std::ops::Range<u64> = 1_000_000_000_000_000_000..9_000_000_000_000_000_000;
/// The statement that the function sends, with places for order, SKU and key.
const STATEMENT: &str = include_str!("../sql/allocate.sql");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// All orders want the same SKU.
    Hot,
    /// Each order wants another SKU.
    Spread,
}

/// A request for one unit.
pub struct Allocation {
    pub order: String,
    pub sku: String,
    pub key: String,
}

/// The numbers that make an [`Allocation`].
struct Numbers {
    order: u64,
    sku: u64,
    key: u64,
}

impl Workload {
    pub const ALL: [Self; 2] = [Self::Hot, Self::Spread];

    pub fn name(self) -> &'static str {
        match self {
            Self::Hot => "one hot SKU",
            Self::Spread => "1,000 SKUs",
        }
    }

    /// A request for a random order, with a new key.
    pub fn next(self) -> Allocation {
        let numbers = self.numbers();
        Allocation {
            order: format!("66666666-6666-4666-8666-{}", numbers.order),
            sku: format!("55555555-5555-4555-8555-{}", numbers.sku),
            key: format!("bench-{}", numbers.key),
        }
    }

    /// The same as the statement that the function sends.
    pub fn statement(self) -> String {
        let numbers = self.numbers();
        fill(&numbers.order.to_string(), &numbers.sku.to_string(), &numbers.key.to_string())
    }

    /// The same requests as a pgbench script.
    pub fn pgbench_script(self) -> String {
        let sku = match self {
            Self::Hot => FIRST.to_string(),
            Self::Spread => ":order".to_owned(),
        };
        format!(
            "\\set order random({FIRST}, {})\n\\set sku {sku}\n\\set key random({}, {})\n{}",
            FIRST + COUNT - 1,
            KEYS.start,
            KEYS.end - 1,
            fill(":order", ":sku", ":key")
        )
    }

    fn numbers(self) -> Numbers {
        let mut random = rand::rng();
        let order = random.random_range(FIRST..FIRST + COUNT);
        let sku = match self {
            Self::Hot => FIRST,
            Self::Spread => order,
        };
        Numbers { order, sku, key: random.random_range(KEYS) }
    }
}

fn fill(order: &str, sku: &str, key: &str) -> String {
    STATEMENT.replace("{order}", order).replace("{sku}", sku).replace("{key}", key)
}
