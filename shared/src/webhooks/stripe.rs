//! Reads Stripe's events about our invoices, in the form of any API version.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::fields::uuid;
use crate::webhooks::members::read_members;
use crate::webhooks::reading::{Meaning, Reading, Reference, Text};

/// An event with the parts of its envelope that we use.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// `evt_…`; `None` if unreadable.
    pub id: Option<String>,
    /// Whether real money moved; `None` if not given.
    pub livemode: Option<bool>,
    /// Type and command.
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
struct EventOf<T> {
    data: Data<T>,
}

#[derive(Deserialize)]
struct Data<T> {
    object: T,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    invoice_id: Option<String>,
}

#[derive(Deserialize)]
struct AnyObject {
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Payment {
    id: Text,
    currency: Text,
    #[serde(default)]
    amount_received: i64,
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Failure {
    id: Text,
    currency: Text,
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
    charge: Option<Text>,
}

#[derive(Deserialize)]
struct Charge {
    id: Text,
    #[serde(default)]
    currency: Option<Text>,
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
    id: Text,
    currency: Text,
    amount: i64,
    #[serde(default)]
    payment_intent: Option<Reference>,
    #[serde(default)]
    metadata: Option<Metadata>,
}

/// Reads an event. Amounts stay in Stripe's minor units, which for a zero-decimal currency are whole units.
pub fn read(body: &[u8]) -> Event {
    let envelope: Envelope = match read_members(body) {
        Ok(envelope) => envelope,
        Err(why) => {
            let reading = Reading { topic: "unreadable".into(), meaning: Meaning::Unreadable(why) };
            return Event { id: None, livemode: None, reading };
        }
    };
    let meaning = match envelope.topic.as_str() {
        "payment_intent.succeeded" => {
            read_members(body).and_then(|event: EventOf<Payment>| payment(event.data.object))
        }
        "payment_intent.payment_failed" => {
            read_members(body).and_then(|event: EventOf<Failure>| failure(event.data.object, &envelope.id))
        }
        "charge.refunded" => read_members(body).and_then(|event: EventOf<Charge>| refund(event.data.object)),
        "charge.dispute.created" => {
            read_members(body).and_then(|event: EventOf<Dispute>| dispute(event.data.object))
        }
        _ => Ok(Meaning::Nothing),
    };
    let meaning = meaning.unwrap_or_else(|why| unreadable(why, body));
    Event {
        id: Some(envelope.id),
        livemode: envelope.livemode,
        reading: Reading { topic: envelope.topic, meaning },
    }
}

/// Even if the event is unreadable, its invoice may be readable, which tells the tenant.
fn unreadable(why: String, body: &[u8]) -> Meaning {
    let metadata = read_members(body).ok().and_then(|event: EventOf<AnyObject>| event.data.object.metadata);
    match metadata.and_then(|metadata| uuid(&metadata.invoice_id?)) {
        Some(invoice) => Meaning::UnreadableOf(why, invoice),
        None => Meaning::Unreadable(why),
    }
}

/// The invoice that the metadata names; `None` if the account uses the payment for something else.
fn invoice_id(metadata: Option<Metadata>) -> Result<Option<String>, String> {
    let named = metadata.unwrap_or_default().invoice_id;
    let id = named.map(|id| uuid(&id).ok_or("data.object.metadata.invoice_id is not the id of an invoice"));
    Ok(id.transpose()?.map(|id| id.to_string()))
}

/// Stripe never sends negative amounts.
fn not_negative(amount: i64, member: &str) -> Result<i64, String> {
    if amount < 0 { Err(format!("data.object.{member} is negative")) } else { Ok(amount) }
}

fn with_invoice(metadata: Option<Metadata>, mut command: Value) -> Result<Meaning, String> {
    let Some(id) = invoice_id(metadata)? else { return Ok(Meaning::Nothing) };
    command["invoiceId"] = json!(id);
    Ok(Meaning::Command(command))
}

fn payment(intent: Payment) -> Result<Meaning, String> {
    let amount = not_negative(intent.amount_received, "amount_received")?;
    let command = json!({"do": "payment", "paymentIntent": intent.id, "reference": intent.id,
        "amountMinor": amount, "currency": intent.currency.0.to_uppercase()});
    with_invoice(intent.metadata, command)
}

/// An intent may fail many times. Each attempt has its own charge, or none if it fails earlier; then the event id stands for it.
fn failure(intent: Failure, event_id: &str) -> Result<Meaning, String> {
    let charge = intent
        .last_payment_error
        .and_then(|error| error.charge)
        .or(intent.latest_charge.map(|charge| charge.0));
    let reference = charge.map_or_else(|| event_id.to_owned(), |charge| charge.0);
    let command = json!({"do": "failure", "paymentIntent": intent.id, "reference": reference,
        "amountMinor": not_negative(intent.amount, "amount")?, "currency": intent.currency.0.to_uppercase()});
    with_invoice(intent.metadata, command)
}

/// A command on the invoice that the metadata names or that SQL finds by the payment intent; without both it is not ours.
fn with_invoice_or_intent(
    metadata: Option<Metadata>,
    intent: Option<Reference>,
    mut command: Value,
) -> Result<Meaning, String> {
    let (invoice, intent) = (invoice_id(metadata)?, intent.map(|intent| intent.0));
    if invoice.is_none() && intent.is_none() {
        return Ok(Meaning::Nothing);
    }
    command["invoiceId"] = json!(invoice);
    command["paymentIntent"] = json!(intent);
    Ok(Meaning::Command(command))
}

/// `amount_refunded` is the total refunded so far, so that charge and total identify the refund under any event id. SQL checks
/// amount and currency if they are given.
fn refund(charge: Charge) -> Result<Meaning, String> {
    let so_far = charge.amount_refunded.or(if charge.refunded { charge.amount } else { None });
    let so_far = so_far.map(|so_far| not_negative(so_far, "amount_refunded")).transpose()?;
    let full =
        charge.refunded || charge.amount.is_some_and(|amount| so_far.is_some_and(|so_far| so_far >= amount));
    if so_far.is_none() && !full {
        return Err("data.object.amount_refunded is missing".into());
    }
    let reference = format!("{}:{}", charge.id.0, so_far.map_or("all".into(), |so_far| so_far.to_string()));
    let command = json!({"do": "refund", "reference": reference, "amountMinor": so_far,
        "currency": charge.currency.map(|currency| currency.0.to_uppercase()), "full": full});
    with_invoice_or_intent(charge.metadata, charge.payment_intent, command)
}

fn dispute(dispute: Dispute) -> Result<Meaning, String> {
    let amount = not_negative(dispute.amount, "amount")?;
    let command = json!({"do": "dispute", "reference": dispute.id, "amountMinor": amount,
        "currency": dispute.currency.0.to_uppercase()});
    with_invoice_or_intent(dispute.metadata, dispute.payment_intent, command)
}
