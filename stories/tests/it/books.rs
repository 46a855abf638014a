//! The model of `billing`: two orders and their invoices in whole units, told by the contract alone.

use proptest::prelude::*;

pub const ORDERS: usize = 2;
pub const SKUS: usize = 2;
/// What a save may set.
pub const PRICES: [i64; 4] = [0, 300, 700, 1_900];

/// What somebody does; `invoice` counts round the invoices that there are.
#[derive(Clone, Debug)]
pub enum Step {
    Allocate {
        order: usize,
        sku: usize,
        qty: i64,
        partial: bool,
    },
    Release {
        order: usize,
        sku: usize,
        qty: i64,
    },
    Ship {
        order: usize,
        sku: usize,
        qty: i64,
    },
    /// Per SKU: units beside those that are held (none and none held: the line goes), and the price.
    Save {
        order: usize,
        lines: [(i64, usize); SKUS],
    },
    Invoice {
        order: usize,
    },
    Void {
        invoice: usize,
    },
    /// In hundredths of what is due.
    Pay {
        invoice: usize,
        hundredths: i64,
    },
    Bounce {
        invoice: usize,
    },
    Close {
        order: usize,
    },
    Cancel {
        order: usize,
    },
}

pub fn any_step() -> impl Strategy<Value = Step> {
    let line = |most: i64| (0..ORDERS, 0..SKUS, 1..=most);
    let saved = || (0_i64..6, 0..PRICES.len());
    prop_oneof![
        8 => (line(7), any::<bool>())
            .prop_map(|((order, sku, qty), partial)| Step::Allocate { order, sku, qty, partial }),
        5 => line(4).prop_map(|(order, sku, qty)| Step::Release { order, sku, qty }),
        4 => line(7).prop_map(|(order, sku, qty)| Step::Ship { order, sku, qty }),
        4 => (0..ORDERS, saved(), saved()).prop_map(|(order, a, b)| Step::Save { order, lines: [a, b] }),
        5 => (0..ORDERS).prop_map(|order| Step::Invoice { order }),
        3 => any::<prop::sample::Index>().prop_map(|n| Step::Void { invoice: n.index(64) }),
        5 => (any::<prop::sample::Index>(), prop_oneof![Just(100_i64), 1_i64..130])
            .prop_map(|(n, hundredths)| Step::Pay { invoice: n.index(64), hundredths }),
        2 => any::<prop::sample::Index>().prop_map(|n| Step::Bounce { invoice: n.index(64) }),
        1 => (0..ORDERS).prop_map(|order| Step::Close { order }),
        1 => (0..ORDERS).prop_map(|order| Step::Cancel { order }),
    ]
}

/// Of one SKU on one order. An absent line holds nothing; what was invoiced of it stays invoiced.
#[derive(Clone, Copy, Debug, Default)]
pub struct Line {
    pub present: bool,
    pub qty: i64,
    pub allocated: i64,
    pub shipped: i64,
    pub invoiced: i64,
    pub price: i64,
}

impl Line {
    pub fn held(&self) -> i64 {
        self.allocated + self.shipped
    }

    pub fn open(&self) -> i64 {
        if self.present { self.qty - self.held() } else { 0 }
    }

    /// Units that the next invoice bills.
    pub fn due(&self) -> i64 {
        (self.held() - self.invoiced).max(0)
    }

    fn value(&self) -> i64 {
        self.due() * self.price
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Open,
    Cancelled,
    Shipped,
}

impl Status {
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Cancelled => "cancelled",
            Self::Shipped => "shipped",
        }
    }
}

#[derive(Clone, Debug)]
pub struct Order {
    pub status: Status,
    pub version: i64,
    pub lines: [Line; SKUS],
}

impl Order {
    /// The value of what it holds or has shipped and was not invoiced.
    pub fn value(&self) -> i64 {
        self.lines.iter().map(Line::value).sum()
    }

    /// It is shipped as soon as it has lines and nothing of them remains.
    pub fn end_if_shipped(&mut self) {
        let mut lines = self.lines.iter().filter(|line| line.present).peekable();
        if self.status == Status::Open && lines.peek().is_some() && lines.all(|line| line.shipped == line.qty)
        {
            self.status = Status::Shipped;
        }
    }

    pub fn has_shipped(&self) -> bool {
        self.lines.iter().any(|line| line.shipped > 0)
    }
}

#[derive(Clone, Debug)]
pub struct Invoice {
    pub id: String,
    pub order: usize,
    pub units: [i64; SKUS],
    pub total_minor: i64,
    /// Amounts of the payments that came and did not bounce.
    pub payments: Vec<i64>,
    /// Whether a payment ever came.
    pub touched: bool,
    pub void: bool,
    /// Given back whole after it had been paid.
    pub refunded: bool,
}

impl Invoice {
    pub fn due(&self) -> i64 {
        if self.void || self.refunded { 0 } else { self.total_minor - self.payments.iter().sum::<i64>() }
    }
}

/// All that the customer's exposure follows from.
#[derive(Clone, Debug)]
pub struct Books {
    pub limit: Option<i64>,
    pub orders: [Order; ORDERS],
    pub invoices: Vec<Invoice>,
}

/// What a request that adds to the exposure meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credit {
    Within,
    Exceeded,
    /// It adds nothing, and the limit is passed already: not told by the contract.
    Unsaid,
}

impl Books {
    pub fn exposure(&self) -> i64 {
        self.orders.iter().map(Order::value).sum::<i64>()
            + self.invoices.iter().map(Invoice::due).sum::<i64>()
    }

    /// Of going to `after`.
    pub fn credit(&self, after: &Self) -> Credit {
        match self.limit {
            Some(limit) if after.exposure() > limit => {
                if after.exposure() > self.exposure() {
                    Credit::Exceeded
                } else {
                    Credit::Unsaid
                }
            }
            _ => Credit::Within,
        }
    }

    /// Units that a partial allocation gives: one after the other, until the order or the limit forbids the next.
    pub fn what_there_is(&self, order: usize, sku: usize, qty: i64) -> i64 {
        let mut books = self.clone();
        let mut given = 0;
        while given < qty && books.orders[order].lines[sku].open() > 0 {
            let before = books.exposure();
            books.orders[order].lines[sku].allocated += 1;
            if books.exposure() > before && self.limit.is_some_and(|limit| books.exposure() > limit) {
                break;
            }
            given += 1;
        }
        given
    }
}
