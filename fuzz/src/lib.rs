//! What reads text from outside, each with what must hold for every text. A function takes the bytes that a fuzzer made up,
//! and panics where its promise does not hold. What a fuzzer found stands in `kept/<name>/`, and is tried by every test run.

mod headers;
mod outbound;
mod requests;
mod webhooks;

pub use headers::{idempotency_key, if_match, retry_after, signatures};
pub use outbound::{envelope, inventory_page, outbound_address};
pub use requests::{canonical_body, gateway_event};
pub use webhooks::{shopify_body, stripe_body, threepl_body};

/// Panics where what must hold for every text does not hold for this one.
pub type Holds = fn(&[u8]);

/// All of them by the names of their folders.
pub const ALL: [(&str, Holds); 12] = [
    ("canonical_body", canonical_body),
    ("envelope", envelope),
    ("gateway_event", gateway_event),
    ("idempotency_key", idempotency_key),
    ("if_match", if_match),
    ("inventory_page", inventory_page),
    ("outbound_address", outbound_address),
    ("retry_after", retry_after),
    ("shopify_body", shopify_body),
    ("signatures", signatures),
    ("stripe_body", stripe_body),
    ("threepl_body", threepl_body),
];
