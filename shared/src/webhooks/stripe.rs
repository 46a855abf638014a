//! What Stripe's events say of our invoices: only the members in use are read, in any API version's shape.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::fields::uuid;
use crate::webhooks::reading::{Meaning, Reading, parse};

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

/// Of any object: what it belongs to.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Payment {
    id: String,
    currency: String,
    #[serde(default)]
    amount_received: i64,
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Failure {
    id: String,
    currency: String,
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
    #[serde(default)]
    currency: Option<String>,
    #[serde(default)]
    amount: Option<i64>,
    #[serde(default)]
    amount_refunded: Option<i64>,
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
        "payment_intent.succeeded" => parse(body).and_then(|of: Of<Payment>| payment(of.data.object)),
        "payment_intent.payment_failed" => {
            parse(body).and_then(|of: Of<Failure>| failure(of.data.object, &envelope.id))
        }
        "charge.refunded" => parse(body).and_then(|of: Of<Charge>| refund(of.data.object)),
        "charge.dispute.created" => parse(body).and_then(|of: Of<Dispute>| dispute(of.data.object)),
        _ => Ok(Meaning::Nothing),
    };
    let meaning = meaning.unwrap_or_else(|why| unreadable(why, body));
    Event {
        id: Some(envelope.id),
        livemode: envelope.livemode,
        reading: Reading { topic: envelope.topic, meaning },
    }
}

/// Whose it is may be readable all the same.
fn unreadable(why: String, body: &[u8]) -> Meaning {
    let named = parse(body).ok().and_then(|of: Of<Named>| of.data.object.metadata);
    match named.and_then(|metadata| uuid(&metadata.invoice_id?)) {
        Some(invoice) => Meaning::UnreadableOf(why, invoice),
        None => Meaning::Unreadable(why),
    }
}

/// The invoice that the metadata names; none where the payment is for something else of the account.
fn invoice(metadata: Option<Metadata>) -> Result<Option<String>, String> {
    let named = metadata.unwrap_or_default().invoice_id;
    let id = named.map(|id| uuid(&id).ok_or("metadata.invoice_id is not the id of an invoice"));
    Ok(id.transpose()?.map(|id| id.to_string()))
}

/// An amount, which Stripe never lets fall below zero.
fn minor(amount: i64) -> Result<i64, String> {
    if amount < 0 { Err(format!("it has the amount {amount}")) } else { Ok(amount) }
}

/// A command on an invoice that must be named.
fn of_invoice(metadata: Option<Metadata>, mut command: Value) -> Result<Meaning, String> {
    let Some(id) = invoice(metadata)? else { return Ok(Meaning::Nothing) };
    command["invoiceId"] = json!(id);
    Ok(Meaning::Command(command))
}

fn payment(intent: Payment) -> Result<Meaning, String> {
    let command = json!({"do": "payment", "paymentIntent": intent.id, "reference": intent.id,
        "amountMinor": minor(intent.amount_received)?, "currency": intent.currency.to_uppercase()});
    of_invoice(intent.metadata, command)
}

/// An intent may fail many times; each time it tries a charge of its own, where it comes to one.
fn failure(intent: Failure, event_id: &str) -> Result<Meaning, String> {
    let charge = intent
        .last_payment_error
        .and_then(|error| error.charge)
        .or(intent.latest_charge.map(Reference::into_id));
    let reference = charge.unwrap_or_else(|| event_id.to_owned());
    let command = json!({"do": "failure", "paymentIntent": intent.id, "reference": reference,
        "amountMinor": minor(intent.amount)?, "currency": intent.currency.to_uppercase()});
    of_invoice(intent.metadata, command)
}

/// A command on an invoice that is named, or found by its payment intent; without either it is of another business.
fn found(
    metadata: Option<Metadata>,
    intent: Option<Reference>,
    mut command: Value,
) -> Result<Meaning, String> {
    let (invoice, intent) = (invoice(metadata)?, intent.map(Reference::into_id));
    if invoice.is_none() && intent.is_none() {
        return Ok(Meaning::Nothing);
    }
    command["invoiceId"] = json!(invoice);
    command["paymentIntent"] = json!(intent);
    Ok(Meaning::Command(command))
}

/// `amount_refunded` is what was refunded of the charge so far: the same fact under whatever event id. Amounts and
/// currency are compared where they are told.
fn refund(charge: Charge) -> Result<Meaning, String> {
    let so_far = charge.amount_refunded.or(if charge.refunded { charge.amount } else { None });
    let so_far = so_far.map(minor).transpose()?;
    let full =
        charge.refunded || charge.amount.is_some_and(|amount| so_far.is_some_and(|so_far| so_far >= amount));
    if so_far.is_none() && !full {
        return Err("it does not say how much was refunded".into());
    }
    let reference = format!("{}:{}", charge.id, so_far.map_or("all".into(), |so_far| so_far.to_string()));
    let command = json!({"do": "refund", "reference": reference, "amountMinor": so_far,
        "currency": charge.currency.map(|currency| currency.to_uppercase()), "full": full});
    found(charge.metadata, charge.payment_intent, command)
}

fn dispute(dispute: Dispute) -> Result<Meaning, String> {
    let command = json!({"do": "dispute", "reference": dispute.id, "amountMinor": minor(dispute.amount)?,
        "currency": dispute.currency.to_uppercase()});
    found(dispute.metadata, dispute.payment_intent, command)
}
