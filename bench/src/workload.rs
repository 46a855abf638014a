//! The workloads: which order wants which SKU. Ids are those of `bench/sql/seed.sql`.

use std::fmt::Write;

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
/// The same rows in the leanest single statement: no claim, no rule beyond the two guards. No function can be faster.
const FLOOR: &str = include_str!("../sql/floor.sql");

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
        fill(STATEMENT, &numbers.order.to_string(), &numbers.sku.to_string(), &numbers.key.to_string())
    }

    /// The same requests as a pgbench script.
    pub fn script(self) -> String {
        self.script_of(STATEMENT)
    }

    /// What writes the same rows, as a pgbench script.
    pub fn floor_script(self) -> String {
        self.script_of(FLOOR)
    }

    fn script_of(self, statement: &str) -> String {
        let sku = match self {
            Self::Hot => FIRST.to_string(),
            Self::Spread => ":order".to_owned(),
        };
        let statement = fill(statement, ":order", ":sku", ":key");
        format!("{}\\set sku {sku}\n{statement};", draw(COUNT))
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

fn fill(statement: &str, order: &str, sku: &str, key: &str) -> String {
    statement.replace("{order}", order).replace("{sku}", sku).replace("{key}", key)
}

/// Lines of a pgbench script that draw an order, of the first `orders`, and a key.
fn draw(orders: u64) -> String {
    format!(
        "\\set order random({FIRST}, {})\n\\set key random({}, {})\n",
        FIRST + orders - 1,
        KEYS.start,
        KEYS.end - 1
    )
}

/// What a function does, as a pgbench script of the messages that it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Of so many lines.
    Allocate(u64),
    Release,
    OrderSave,
    /// Of a warehouse's announcement of one line.
    Receive,
}

impl Operation {
    pub const ALL: [Self; 6] = [
        Self::Allocate(1),
        Self::Allocate(10),
        Self::Allocate(100),
        Self::Release,
        Self::OrderSave,
        Self::Receive,
    ];

    pub fn name(self) -> String {
        match self {
            Self::Allocate(1) => "allocate, 1 line".into(),
            Self::Allocate(lines) => format!("allocate, {lines} lines"),
            Self::Release => "release, 1 line".into(),
            Self::OrderSave => "order-save, 2 lines".into(),
            Self::Receive => "receive of a 3PL's announcement".into(),
        }
    }

    pub fn script(self) -> String {
        let sku = |number: &str| format!("55555555-5555-4555-8555-{number}");
        match self {
            Self::Allocate(1) => Workload::Spread.script(),
            Self::Allocate(lines) => {
                // Only the first ten orders want every SKU.
                let mut script = draw(10);
                let mut wanted = Vec::new();
                let _ = writeln!(script, "\\set k0 random({FIRST}, {})", FIRST + COUNT - lines);
                for n in 0..lines {
                    let _ = writeln!(script, "\\set k{n} :k0 + {n}");
                    wanted.push(format!(r#"{{"skuId":"{}","qty":1}}"#, sku(&format!(":k{n}"))));
                }
                let call = call("allocate", &format!(r#","lines":[{}]"#, wanted.join(",")));
                format!("{script}select * from holdfast.allocate({call});")
            }
            Self::Release => {
                let call = call("release", &format!(r#","lines":[{{"skuId":"{}","qty":1}}]"#, sku(":order")));
                keyed(draw(COUNT), &call, "release_lines")
            }
            Self::OrderSave => {
                let line = |sku: &str| format!(r#"{{"skuId":"{sku}","qty":1000000,"unitPriceMinor":1000}}"#);
                // Those that want two.
                let first = FIRST + 10;
                let lines = [line(&sku(":order")), line(&sku(&FIRST.to_string()))].join(",");
                let call = call(
                    "save",
                    &format!(
                        r#","match":{{"any":true,"tags":[],"status":409,"yours":1}},"fields":{{"lines":[{lines}]}}"#
                    ),
                );
                let drawn = draw(COUNT).replacen(&FIRST.to_string(), &first.to_string(), 1);
                keyed(drawn, &call, "save_order")
            }
            Self::Receive => format!(
                "{}select holdfast.receive({}, '\\x00');",
                draw(1),
                json(
                    r#"{"provider":"3pl:bench","eventId":"e:key","topic":"asn.created","command":{"do":"asn.created","asnId":"a:key","lines":[{"lineId":"1","sku":"SKU-7","qty":1}]}}"#
                )
            ),
        }
    }
}

/// The script as the version before sent it: its argument went through a function of the database.
pub fn as_before(script: &str) -> String {
    script
        .replace("convert_from(convert_to(", "holdfast.json(convert_to(")
        .replace(", 'UTF8'), 'UTF8')::jsonb", ", 'UTF8'))")
}

/// The three messages of a keyed request.
fn keyed(drawn: String, call: &str, work: &str) -> String {
    format!(
        "{drawn}begin; select * from holdfast.claim({call});\nsavepoint work; select * from holdfast.record_outcome(\
         jsonb_build_object('call', {call}, 'outcome', to_jsonb(holdfast.{work}({call}))));\ncommit;"
    )
}

/// The argument of a keyed request.
fn call(verb: &str, members: &str) -> String {
    json(&format!(
        r#"{{"tenantId":"{TENANT}","userId":"{USER}","actor":"user:{USER}","key":"bench-:key","method":"POST","path":"/orders/66666666-6666-4666-8666-:order/{verb}","hash":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","lockRequest":-:key,"lockKey": :key,"orderId":"66666666-6666-4666-8666-:order"{members}}}"#
    ))
}

fn json(text: &str) -> String {
    format!("convert_from(convert_to('{text}', 'UTF8'), 'UTF8')::jsonb")
}
