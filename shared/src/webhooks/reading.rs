//! What a webhook's body says, as far as the work needs it. Touches nothing.
//!
//! Promises: only the members in use are required; no digit of a 64-bit id is lost; why a body cannot be read is told
//! without quoting it, since what stands there may be somebody's name.

use serde_json::{Value, json};
use uuid::Uuid;

/// Characters of an id or a code that a sender may use.
pub(super) const MAX_TEXT: usize = 255;
/// Characters of a fault that are kept.
const MAX_FAULT: usize = 500;

/// What was understood of a body.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The event's type, as the sender calls it.
    pub topic: String,
    /// What it asks for.
    pub meaning: Meaning,
}

/// What a delivery asks for.
#[derive(Clone, Debug, PartialEq)]
pub enum Meaning {
    /// Something to do: `{"do":…}`, as `holdfast.take_effect` takes it.
    Command(Value),
    /// Nothing that concerns us.
    Nothing,
    /// It can never be processed: why, for a person.
    Unreadable(String),
    /// The same, and the invoice that it names: so it is known whose it is.
    UnreadableOf(String, Uuid),
}

impl Meaning {
    /// Puts `command` or `fault` into an argument of `holdfast.receive` or `holdfast.retry_exception`. A command with U+0000
    /// in it, which no text column takes, or with an overlong text is none.
    pub(super) fn write_into(&self, argument: &mut Value) {
        match self {
            Self::Nothing => {}
            Self::Unreadable(why) => argument["fault"] = json!(printable(why)),
            Self::UnreadableOf(why, invoice) => {
                argument["fault"] = json!(printable(why));
                argument["command"] = json!({"invoiceId": invoice});
            }
            Self::Command(command) => match unfit(command) {
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

/// What a person reads of a fault: nothing that a text column does not take, and no novel.
fn printable(why: &str) -> String {
    why.chars().filter(|c| !c.is_control()).take(MAX_FAULT).collect()
}

pub(super) fn is_text(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_TEXT && !text.contains('\0')
}

/// The first text of a command that cannot be stored. Commands are made by our readers and so are not deep.
fn unfit(command: &Value) -> Option<&'static str> {
    match command {
        Value::String(text) if text.contains('\0') => Some("it has U+0000 in a text that is needed"),
        Value::String(text) if text.len() > MAX_TEXT => Some("it has an id or a code of more than 255 bytes"),
        Value::Array(items) => items.iter().find_map(unfit),
        Value::Object(members) => members.values().find_map(unfit),
        _ => None,
    }
}

/// An id as its sender writes it, a string or an integer of 64 bits; no digit is lost.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Id(pub String);

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

/// Reads the members in use. Whatever else a body holds is skipped unread, at any depth, in constant memory.
///
/// # Errors
/// Why it cannot be read, for a person: no JSON, a member in use missing or of another type. It quotes nothing of the body:
/// what stands there may be somebody's name, and the reason travels in an event.
pub fn parse<'b, T: serde::Deserialize<'b>>(body: &'b [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| {
        let told = error.to_string();
        let ours = told.rfind(", expected ").map_or(told.as_str(), |quoted| &told[quoted + 2..]);
        format!("it cannot be read: {ours}")
    })
}
