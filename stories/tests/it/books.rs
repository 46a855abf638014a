//! The model of `billing`: two orders and their invoices in whole units, told by the contract alone.

pub const ORDERS: usize = 2;
pub const SKUS: usize = 2;

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
