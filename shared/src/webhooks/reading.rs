//! The common part of reading webhook bodies.
//!
//! Promises: only members that are used are required; 64-bit ids keep all digits; the reason why a body cannot be read does
//! not quote the body, which may hold personal data.

use serde_json::{Value, json};
use uuid::Uuid;

/// Bytes of a sender's id or code that can be stored.
pub(super) const MAX_TEXT: usize = 255;
const MAX_FAULT_CHARS: usize = 500;
/// Units of one line of a webhook; senders write 0 for a line that was removed.
pub(super) const LINE_QTY_RANGE: std::ops::RangeInclusive<i64> = 0..=1_000_000;

/// A body that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The sender's name for the type of event.
    pub topic: String,
    /// The command in it, if any.
    pub meaning: Meaning,
}

/// What a body means for us.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// A command `{"do":…}` for `holdfast.take_effect`.
    Command(Value),
    /// Not relevant for us.
    Nothing,
    /// Can never be processed, with the reason (the fault) for an operator.
    Unreadable(String),
    /// As `Unreadable`, with the invoice that it names, which tells the tenant.
    UnreadableOf(String, Uuid),
}

impl Meaning {
    /// Adds the members `command` and `fault` that `holdfast.receive` takes. A command that cannot be stored becomes a fault.
    pub(super) fn write_into(&self, argument: &mut Value) {
        match self {
            Self::Nothing => {}
            Self::Unreadable(why) => argument["fault"] = json!(printable(why)),
            Self::UnreadableOf(why, invoice) => {
                argument["fault"] = json!(printable(why));
                argument["command"] = json!({"invoiceId": invoice});
            }
            Self::Command(command) => match storage_fault(command) {
                None => argument["command"] = command.clone(),
                Some(fault) => {
                    argument["fault"] = json!(fault);
                    if let Some(invoice) = command.get("invoiceId") {
                        argument["command"] = json!({"invoiceId": invoice});
                    }
                }
            },
        }
    }
}

/// A fault shortened, without control characters (a text column refuses U+0000).
fn printable(why: &str) -> String {
    why.chars().filter(|c| !c.is_control()).take(MAX_FAULT_CHARS).collect()
}

pub(super) fn is_storable(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TEXT && !text.contains('\0')
}

/// Why a text of the command cannot be stored. Recursion is safe: our own readers build commands, so they are not deep.
fn storage_fault(command: &Value) -> Option<&'static str> {
    match command {
        Value::String(text) if text.contains('\0') => Some("it has U+0000 in a text that is needed"),
        Value::String(text) if text.len() > MAX_TEXT => Some("it has an id or a code of more than 255 bytes"),
        Value::Array(items) => items.iter().find_map(storage_fault),
        Value::Object(members) => members.values().find_map(storage_fault),
        _ => None,
    }
}

/// An id that the sender writes as a string or as a 64-bit integer.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub(super) struct Id(pub String);

impl<'de> serde::Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Id;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an id: a string or an integer of 64 bits")
            }
            fn visit_u64<E>(self, id: u64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }
            fn visit_i64<E>(self, id: i64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }
            fn visit_str<E: serde::de::Error>(self, id: &str) -> Result<Id, E> {
                if id.is_empty() { Err(E::invalid_length(0, &self)) } else { Ok(Id(id.to_owned())) }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Reads the members of `T`; others are skipped at any depth in constant memory. The error is a reason for an operator, which
/// is also sent in an event and therefore quotes nothing of the body.
pub(super) fn read_members<'b, T: serde::Deserialize<'b>>(body: &'b [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| {
        let message = error.to_string();
        // serde_json quotes the unexpected value before ", expected".
        let unquoted = message.rfind(", expected ").map_or(message.as_str(), |comma| &message[comma + 2..]);
        format!("it cannot be read: {unquoted}")
    })
}
