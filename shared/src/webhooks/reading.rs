//! The common part of reading webhook bodies: what a body means, and the values that all senders write.
//!
//! Promises: 64-bit ids keep all digits; what is read as a [`Text`] or an [`Id`] can be stored; a fault does not quote the
//! body, which may hold personal data.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

/// Bytes of a sender's id or code that can be stored.
pub(super) const MAX_TEXT: usize = 255;
const MAX_FAULT_CHARS: usize = 500;
/// Units of one line of a webhook; senders write 0 for a line that was removed.
const LINE_QTY_RANGE: std::ops::RangeInclusive<i64> = 0..=1_000_000;

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

/// Why a text of the command cannot be stored; most are refused where they are read. Recursion is safe: our own readers build
/// commands, so they are not deep.
fn storage_fault(command: &Value) -> Option<&'static str> {
    match command {
        Value::String(text) if text.contains('\0') => Some("a text that is needed holds U+0000"),
        Value::String(text) if text.len() > MAX_TEXT => Some("an id that is needed is longer than 255 bytes"),
        Value::Array(items) => items.iter().find_map(storage_fault),
        Value::Object(members) => members.values().find_map(storage_fault),
        _ => None,
    }
}

/// Refuses a quantity that no line has; `place` names it in the sender's terms.
pub(super) fn check_qty(qty: i64, place: impl FnOnce() -> String) -> Result<(), String> {
    if LINE_QTY_RANGE.contains(&qty) {
        Ok(())
    } else {
        Err(format!("{} is not between 0 and 1,000,000", place()))
    }
}

/// As [`check_qty`], where a line may also take units back.
pub(super) fn check_signed_qty(qty: i64, place: impl FnOnce() -> String) -> Result<(), String> {
    if LINE_QTY_RANGE.contains(&qty) || LINE_QTY_RANGE.contains(&qty.saturating_neg()) {
        Ok(())
    } else {
        Err(format!("{} is not between -1,000,000 and 1,000,000", place()))
    }
}

/// An id that the sender writes as a text or as a 64-bit integer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Id(pub String);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;
        impl Visitor<'_> for IdVisitor {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id: a whole number, or a text of 1 to 255 bytes without U+0000")
            }
            fn visit_u64<E>(self, id: u64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }
            fn visit_i64<E>(self, id: i64) -> Result<Id, E> {
                Ok(Id(id.to_string()))
            }
            fn visit_str<E: de::Error>(self, id: &str) -> Result<Id, E> {
                let id = is_storable(id).then(|| Id(id.to_owned()));
                id.ok_or_else(|| E::invalid_value(Unexpected::Other("text"), &self))
            }
        }
        deserializer.deserialize_any(IdVisitor)
    }
}

/// A text that can be stored; it may be empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Text(pub String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl Visitor<'_> for TextVisitor {
    type Value = Text;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text of at most 255 bytes without U+0000")
    }
    fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
        let stored = (text.is_empty() || is_storable(text)).then(|| Text(text.to_owned()));
        stored.ok_or_else(|| E::invalid_value(Unexpected::Other("text"), &self))
    }
}

/// A text for people: what of it can be stored, cut at 255 bytes; nothing where it is no text. It never makes a body unreadable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remark(pub Option<String>);

impl<'de> Deserialize<'de> for Remark {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RemarkVisitor;
        impl<'de> Visitor<'de> for RemarkVisitor {
            type Value = Remark;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }
            fn visit_str<E>(self, text: &str) -> Result<Remark, E> {
                let mut kept: String = text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect();
                while kept.len() > MAX_TEXT {
                    kept.pop();
                }
                Ok(Remark(Some(kept).filter(|kept| !kept.trim().is_empty())))
            }
            fn visit_bool<E>(self, _: bool) -> Result<Remark, E> {
                Ok(Remark(None))
            }
            fn visit_i64<E>(self, _: i64) -> Result<Remark, E> {
                Ok(Remark(None))
            }
            fn visit_u64<E>(self, _: u64) -> Result<Remark, E> {
                Ok(Remark(None))
            }
            fn visit_f64<E>(self, _: f64) -> Result<Remark, E> {
                Ok(Remark(None))
            }
            fn visit_unit<E>(self) -> Result<Remark, E> {
                Ok(Remark(None))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Remark, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Remark(None))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Remark, A::Error> {
                while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Remark(None))
            }
        }
        deserializer.deserialize_any(RemarkVisitor)
    }
}

/// The id of another object, which the sender writes alone or, expanded, as that object.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reference(pub Text);

impl<'de> Deserialize<'de> for Reference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Expanded {
            id: Text,
        }
        struct ReferenceVisitor;
        impl<'de> Visitor<'de> for ReferenceVisitor {
            type Value = Reference;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id or an object that has one")
            }
            fn visit_str<E: de::Error>(self, id: &str) -> Result<Reference, E> {
                TextVisitor.visit_str(id).map(Reference)
            }
            fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<Reference, A::Error> {
                Expanded::deserialize(MapAccessDeserializer::new(object)).map(|object| Reference(object.id))
            }
        }
        deserializer.deserialize_any(ReferenceVisitor)
    }
}
