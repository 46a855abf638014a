//! What Stripe's events say of our invoices: only the members in use are read, in any API version's shape.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::fields::uuid;
use crate::inbox::{Meaning, Reading, parse};

/// An event's envelope and what it asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// `evt_…`, where there is one.
    pub id: Option<String>,
    /// Whether real money moved; `None` where it does not say.
    pub livemode: Option<bool>,
    /// Its type and meaning.
    pub reading: Reading,
}

#[derive(Deserialize)]
struct Envelope {
    id: String,
    #[serde(rename = "type")]
    topic: String,
    #[serde(default)]
    livemode: Option<bool>,
}

#[derive(Deserialize)]
struct Of<T> {
    data: Data<T>,
}

#[derive(Deserialize)]
struct Data<T> {
    object: T,
}

/// An id, or the object itself where the account expands it.
#[derive(Deserialize)]
#[serde(untagged)]
enum Reference {
    Id(String),
    Object { id: String },
}

impl Reference {
    fn into_id(self) -> String {
        match self {
            Self::Id(id) | Self::Object { id } => id,
        }
    }
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    invoice_id: Option<String>,
}

#[derive(Deserialize)]
struct PaymentIntent {
    id: String,
    currency: String,
    #[serde(default)]
    amount_received: i64,
    #[serde(default)]
    amount: i64,
    #[serde(default)]
    metadata: Option<Metadata>,
    #[serde(default)]
    latest_charge: Option<Reference>,
    #[serde(default)]
    last_payment_error: Option<PaymentError>,
}

#[derive(Deserialize)]
struct PaymentError {
    #[serde(default)]
    charge: Option<String>,
}

#[derive(Deserialize)]
struct Charge {
    id: String,
    currency: String,
    amount: i64,
    amount_refunded: i64,
    #[serde(default)]
    refunded: bool,
    #[serde(default)]
    payment_intent: Option<Reference>,
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Dispute {
    id: String,
    currency: String,
    amount: i64,
    #[serde(default)]
    payment_intent: Option<Reference>,
    #[serde(default)]
    metadata: Option<Metadata>,
}

/// Reads an event. Amounts are minor units as Stripe has them: whole units of a zero-decimal currency.
pub fn read(body: &[u8]) -> Event {
    let envelope: Envelope = match parse(body) {
        Ok(envelope) => envelope,
        Err(why) => {
            let reading = Reading { topic: "unreadable".into(), meaning: Meaning::Unreadable(why) };
            return Event { id: None, livemode: None, reading };
        }
    };
    let meaning = match envelope.topic.as_str() {
        "payment_intent.succeeded" => parse(body).map(|of: Of<PaymentIntent>| payment(of.data.object)),
        "payment_intent.payment_failed" => {
            parse(body).map(|of: Of<PaymentIntent>| failure(of.data.object, &envelope.id))
        }
        "charge.refunded" => parse(body).map(|of: Of<Charge>| refund(of.data.object)),
        "charge.dispute.created" => parse(body).map(|of: Of<Dispute>| dispute(of.data.object)),
        _ => Ok(Meaning::Nothing),
    };
    let meaning = meaning.unwrap_or_else(Meaning::Unreadable);
    Event {
        id: Some(envelope.id),
        livemode: envelope.livemode,
        reading: Reading { topic: envelope.topic, meaning },
    }
}

/// The invoice that the metadata names; none where the payment is for something else of the account.
fn invoice(metadata: Option<Metadata>) -> Result<Option<String>, Meaning> {
    match metadata.unwrap_or_default().invoice_id {
        None => Ok(None),
        Some(id) => match uuid(&id) {
            Some(id) => Ok(Some(id.to_string())),
            None => Err(Meaning::Unreadable("metadata.invoice_id is not the id of an invoice".into())),
        },
    }
}

/// A command on an invoice that must be named.
fn of_invoice(metadata: Option<Metadata>, mut command: Value) -> Meaning {
    match invoice(metadata) {
        Ok(Some(id)) => {
            command["invoiceId"] = json!(id);
            Meaning::Command(command)
        }
        Ok(None) => Meaning::Nothing,
        Err(meaning) => meaning,
    }
}

fn payment(intent: PaymentIntent) -> Meaning {
    let command = json!({"do": "payment", "paymentIntent": intent.id, "reference": intent.id,
        "amountMinor": intent.amount_received, "currency": intent.currency.to_uppercase()});
    of_invoice(intent.metadata, command)
}

/// An intent may fail many times; each time it tries a charge of its own, where it comes to one.
fn failure(intent: PaymentIntent, event_id: &str) -> Meaning {
    let charge = intent
        .last_payment_error
        .and_then(|error| error.charge)
        .or(intent.latest_charge.map(Reference::into_id));
    let reference = charge.unwrap_or_else(|| event_id.to_owned());
    let command = json!({"do": "failure", "paymentIntent": intent.id, "reference": reference,
        "amountMinor": intent.amount, "currency": intent.currency.to_uppercase()});
    of_invoice(intent.metadata, command)
}

/// A command on an invoice that is named, or found by its payment intent; without either it is of another business.
fn found(metadata: Option<Metadata>, intent: Option<Reference>, mut command: Value) -> Meaning {
    let intent = intent.map(Reference::into_id);
    match invoice(metadata) {
        Ok(None) if intent.is_none() => Meaning::Nothing,
        Ok(invoice) => {
            command["invoiceId"] = json!(invoice);
            command["paymentIntent"] = json!(intent);
            Meaning::Command(command)
        }
        Err(meaning) => meaning,
    }
}

/// `amount_refunded` is what was refunded of the charge so far: the same fact under whatever event id.
fn refund(charge: Charge) -> Meaning {
    let full = charge.refunded || charge.amount_refunded >= charge.amount;
    let command = json!({"do": "refund", "reference": format!("{}:{}", charge.id, charge.amount_refunded),
        "amountMinor": charge.amount_refunded, "currency": charge.currency.to_uppercase(), "full": full});
    found(charge.metadata, charge.payment_intent, command)
}

fn dispute(dispute: Dispute) -> Meaning {
    let command = json!({"do": "dispute", "reference": dispute.id, "amountMinor": dispute.amount,
        "currency": dispute.currency.to_uppercase()});
    found(dispute.metadata, dispute.payment_intent, command)
}
