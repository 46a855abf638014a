//! Reads Stripe's events about our invoices, in the form of any API version.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::fields::uuid;
use crate::webhooks::members::read_members;
use crate::webhooks::minor_units;
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

/// What is needed of the envelope besides, where its object concerns us.
#[derive(Deserialize)]
struct Origin {
    #[serde(default)]
    account: Option<Text>,
    #[serde(default)]
    created: Option<i64>,
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
struct Intent {
    id: Text,
    currency: Text,
    amount_received: i64,
    #[serde(default)]
    latest_charge: Option<Reference>,
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct CapturedCharge {
    id: Text,
    currency: Text,
    amount: i64,
    #[serde(default)]
    amount_captured: Option<i64>,
    #[serde(default)]
    captured: Option<bool>,
    #[serde(default)]
    payment_intent: Option<Reference>,
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct Session {
    id: Text,
    #[serde(default)]
    currency: Option<Text>,
    #[serde(default)]
    amount_total: Option<i64>,
    #[serde(default)]
    payment_status: Option<Text>,
    #[serde(default)]
    payment_intent: Option<Reference>,
    #[serde(default)]
    invoice: Option<Reference>,
    #[serde(default)]
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
struct StripeInvoice {
    id: Text,
    currency: Text,
    amount_paid: i64,
    #[serde(default)]
    payment_intent: Option<Reference>,
    #[serde(default)]
    charge: Option<Reference>,
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
struct RefundedCharge {
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

/// A refund or a dispute.
#[derive(Deserialize)]
struct Return {
    id: Text,
    currency: Text,
    amount: i64,
    #[serde(default)]
    status: Option<Text>,
    #[serde(default)]
    charge: Option<Reference>,
    #[serde(default)]
    payment_intent: Option<Reference>,
    #[serde(default)]
    metadata: Option<Metadata>,
}

/// Reads an event. Amounts become ISO 4217 minor units.
pub fn read(body: &[u8]) -> Event {
    let envelope: Envelope = match read_members(body) {
        Ok(envelope) => envelope,
        Err(why) => {
            let reading = Reading { topic: "unreadable".into(), meaning: Meaning::Unreadable(why) };
            return Event { id: None, livemode: None, reading };
        }
    };
    let meaning = meaning(&envelope, body).unwrap_or_else(|why| unreadable(why, body));
    Event {
        id: Some(envelope.id),
        livemode: envelope.livemode,
        reading: Reading { topic: envelope.topic, meaning },
    }
}

fn meaning(envelope: &Envelope, body: &[u8]) -> Result<Meaning, String> {
    let meaning = match envelope.topic.as_str() {
        "payment_intent.succeeded" => intent(object(body)?)?,
        "charge.succeeded" | "charge.captured" => captured(object(body)?)?,
        "checkout.session.completed" | "checkout.session.async_payment_succeeded" => session(object(body)?)?,
        "invoice.paid" => stripe_invoice(object(body)?)?,
        "payment_intent.payment_failed" => failure(object(body)?, &envelope.id)?,
        "charge.refunded" => running_total(object(body)?)?,
        "refund.created" | "refund.updated" | "charge.refund.updated" => refund(object(body)?, "succeeded")?,
        "refund.failed" => refund(object(body)?, "failed")?,
        "charge.dispute.created" => dispute(object(body)?, Some("needs_response"))?,
        "charge.dispute.updated"
        | "charge.dispute.closed"
        | "charge.dispute.funds_withdrawn"
        | "charge.dispute.funds_reinstated" => dispute(object(body)?, None)?,
        _ => Meaning::Nothing,
    };
    let Meaning::Command(mut command) = meaning else { return Ok(meaning) };
    let origin: Origin = read_members(body)?;
    command["account"] = json!(origin.account);
    command["toldAt"] = json!(origin.created.unwrap_or(0));
    Ok(Meaning::Command(command))
}

fn object<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, String> {
    read_members(body).map(|event: EventOf<T>| event.data.object)
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

/// Stripe never sends a negative amount. `member` names it in a fault.
fn iso_minor(amount: i64, currency: &str, member: &str) -> Result<i64, String> {
    let minor = if amount < 0 { Err("is negative") } else { minor_units::of_stripe(amount, currency) };
    minor.map_err(|why| format!("data.object.{member} {why}"))
}

/// A payment is named by its intent; without one `own` names it.
struct Paid<'a> {
    own: Text,
    intent: Option<Reference>,
    charge: Option<Text>,
    /// Which amount is believed where several tell of one payment; see `stripe_payment.source`.
    source: u8,
    amount: i64,
    member: &'a str,
    currency: Text,
}

fn payment(paid: Paid<'_>, metadata: Option<Metadata>) -> Result<Meaning, String> {
    let currency = paid.currency.0.to_uppercase();
    let amount_minor = iso_minor(paid.amount, &currency, paid.member)?;
    let own_id = paid.intent.is_none();
    let id = paid.intent.map_or(paid.own, |intent| intent.0);
    let command = json!({"do": "payment", "paymentIntent": id, "reference": id, "charge": paid.charge,
        "source": paid.source, "ownId": own_id, "amountMinor": amount_minor, "currency": currency});
    with_invoice(metadata, command)
}

fn with_invoice(metadata: Option<Metadata>, mut command: Value) -> Result<Meaning, String> {
    let Some(id) = invoice_id(metadata)? else { return Ok(Meaning::Nothing) };
    command["invoiceId"] = json!(id);
    Ok(Meaning::Command(command))
}

fn intent(intent: Intent) -> Result<Meaning, String> {
    let paid = Paid {
        own: intent.id.clone(),
        intent: Some(Reference(intent.id)),
        charge: intent.latest_charge.map(|charge| charge.0),
        source: 1,
        amount: intent.amount_received,
        member: "amount_received",
        currency: intent.currency,
    };
    payment(paid, intent.metadata)
}

fn captured(charge: CapturedCharge) -> Result<Meaning, String> {
    if charge.captured == Some(false) {
        return Ok(Meaning::Nothing);
    }
    let paid = Paid {
        own: charge.id.clone(),
        intent: charge.payment_intent,
        charge: Some(charge.id),
        source: 2,
        amount: charge.amount_captured.unwrap_or(charge.amount),
        member: "amount_captured",
        currency: charge.currency,
    };
    payment(paid, charge.metadata)
}

/// A session without an intent may be for a Stripe invoice, whose own id then names the payment.
fn session(session: Session) -> Result<Meaning, String> {
    if session.payment_status.is_none_or(|status| status.0 != "paid") {
        return Ok(Meaning::Nothing);
    }
    let (Some(amount), Some(currency)) = (session.amount_total, session.currency) else {
        return match invoice_id(session.metadata)? {
            Some(_) => Err("data.object.amount_total or currency is missing".into()),
            None => Ok(Meaning::Nothing),
        };
    };
    let own = session.invoice.map_or(session.id, |invoice| invoice.0);
    let paid = Paid {
        own,
        intent: session.payment_intent,
        charge: None,
        source: 3,
        amount,
        member: "amount_total",
        currency,
    };
    payment(paid, session.metadata)
}

fn stripe_invoice(invoice: StripeInvoice) -> Result<Meaning, String> {
    let paid = Paid {
        own: invoice.id,
        intent: invoice.payment_intent,
        charge: invoice.charge.map(|charge| charge.0),
        source: 4,
        amount: invoice.amount_paid,
        member: "amount_paid",
        currency: invoice.currency,
    };
    payment(paid, invoice.metadata)
}

/// An intent may fail many times. Each attempt has its own charge, or none if it fails earlier; then the event id stands for it.
fn failure(intent: Failure, event_id: &str) -> Result<Meaning, String> {
    let charge = intent
        .last_payment_error
        .and_then(|error| error.charge)
        .or(intent.latest_charge.map(|charge| charge.0));
    let reference = charge.map_or_else(|| event_id.to_owned(), |charge| charge.0);
    let currency = intent.currency.0.to_uppercase();
    let command = json!({"do": "failure", "paymentIntent": intent.id, "reference": reference,
        "amountMinor": iso_minor(intent.amount, &currency, "amount")?, "currency": currency});
    with_invoice(intent.metadata, command)
}

/// A command on the invoice that the metadata names or that SQL finds by the payment; without both it is not ours.
fn with_invoice_or_payment(
    metadata: Option<Metadata>,
    intent: Option<Reference>,
    charge: Option<Text>,
    mut command: Value,
) -> Result<Meaning, String> {
    let (invoice, intent) = (invoice_id(metadata)?, intent.map(|intent| intent.0));
    if invoice.is_none() && intent.is_none() && charge.is_none() {
        return Ok(Meaning::Nothing);
    }
    command["invoiceId"] = json!(invoice);
    command["paymentIntent"] = json!(intent.as_ref().or(charge.as_ref()));
    command["charge"] = json!(charge);
    Ok(Meaning::Command(command))
}

/// `amount_refunded` is the total refunded so far; where it is missing, a charge that is `refunded` was refunded as a whole.
fn running_total(charge: RefundedCharge) -> Result<Meaning, String> {
    let so_far = charge.amount_refunded.or(if charge.refunded { charge.amount } else { None });
    let currency = charge.currency.map(|currency| currency.0.to_uppercase());
    let so_far = match (so_far, &currency) {
        (Some(so_far), Some(currency)) => Some(iso_minor(so_far, currency, "amount_refunded")?),
        (None, _) if charge.refunded => None,
        (None, _) => return Err("data.object.amount_refunded is missing".into()),
        (Some(_), None) => return Err("data.object.currency is missing".into()),
    };
    let command =
        json!({"do": "refund_total", "reference": charge.id, "amountMinor": so_far, "currency": currency});
    with_invoice_or_payment(charge.metadata, charge.payment_intent, Some(charge.id), command)
}

fn refund(refund: Return, unless_told: &str) -> Result<Meaning, String> {
    returned("refund", refund, Some(unless_told))
}

fn dispute(dispute: Return, unless_told: Option<&str>) -> Result<Meaning, String> {
    returned("dispute", dispute, unless_told)
}

fn returned(what: &str, told: Return, unless_told: Option<&str>) -> Result<Meaning, String> {
    let currency = told.currency.0.to_uppercase();
    let status = told.status.map(|status| status.0).or(unless_told.map(str::to_owned));
    let status = status.ok_or("data.object.status is missing")?;
    let command = json!({"do": what, "reference": told.id, "status": status,
        "amountMinor": iso_minor(told.amount, &currency, "amount")?, "currency": currency});
    let charge = told.charge.map(|charge| charge.0);
    with_invoice_or_payment(told.metadata, told.payment_intent, charge, command)
}
