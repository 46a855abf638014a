//! Invoices: billed, voided, paid by hand. SQL decides under the locks of customer, invoice and order; an invoice's state follows
//! from its payment ledger.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::db::call::Statement;
use crate::http::fields::Fields;
use crate::http::json::BodyError;

const MAX_REASON_CHARS: usize = 2_000;
const MAX_REFERENCE_CHARS: usize = 255;
/// In minor units; a payment that bounced is taken back by a negative amount.
const AMOUNT_RANGE: std::ops::RangeInclusive<i64> = -10_000_000_000..=10_000_000_000;

/// The checked body of a payment by hand.
#[derive(Debug)]
pub struct Payment {
    amount_minor: i64,
    reference: String,
}

/// Reads `{"reason"}`, or returns every mistake.
pub fn read_void(body: &Value) -> Result<String, Vec<BodyError>> {
    let mut errors = Vec::new();
    let mut reason = String::new();
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        reason = fields.text("reason", MAX_REASON_CHARS, &mut errors).unwrap_or_default().to_owned();
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok(reason) } else { Err(errors) }
}

/// Reads `{"amountMinor","reference"}`, or returns every mistake.
pub fn read_payment(body: &Value) -> Result<Payment, Vec<BodyError>> {
    let mut errors = Vec::new();
    let mut payment = Payment { amount_minor: 0, reference: String::new() };
    if let Some(mut fields) = Fields::open(body, "", &mut errors) {
        if let Some(amount_minor) = fields.integer("amountMinor", AMOUNT_RANGE, &mut errors) {
            payment.amount_minor = amount_minor;
            if amount_minor == 0 {
                fields.wrong("amountMinor", "must not be 0", &mut errors);
            }
        }
        let reference = fields.text("reference", MAX_REFERENCE_CHARS, &mut errors);
        payment.reference = reference.unwrap_or_default().to_owned();
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok(payment) } else { Err(errors) }
}

/// Invoices the allocated and shipped units that are not invoiced yet: 201; 404, 409, 422.
pub fn create(order_id: Uuid) -> Statement {
    Statement::new("holdfast.invoice_order", json!({"orderId": order_id}))
}

/// Takes an invoice back that holds no money: 200; 404, 409.
pub fn void(invoice_id: Uuid, reason: &str) -> Statement {
    Statement::new("holdfast.void_invoice", json!({"invoiceId": invoice_id, "reason": reason}))
}

/// Books a payment that did not come through Stripe: 201; 404, 409, 422.
pub fn pay(invoice_id: Uuid, payment: &Payment) -> Statement {
    let Payment { amount_minor, reference } = payment;
    Statement::new(
        "holdfast.pay_invoice",
        json!({"invoiceId": invoice_id, "amountMinor": amount_minor, "reference": reference}),
    )
}
