//! Reads the members of a webhook's body.
//!
//! Promises: only members that are used are required, others are skipped at any depth in constant memory; an object is read
//! from an object and from nothing else. The reason why a body cannot be read says what is wrong and where, by the names of
//! members that are read; it quotes nothing of the body, which may hold personal data.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::error::Category;
use serde_path_to_error::{Path, Segment};

/// Reads the members of `T`. The error is a reason for an operator, which is also sent in an event.
pub(super) fn read_members<'b, T: Deserialize<'b>>(body: &'b [u8]) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read = serde_path_to_error::deserialize(Objects(&mut json));
    let read = read.map_err(|error| reason(&place(error.path()), error.inner()))?;
    json.end().map_err(|error| reason("", &error))?;
    Ok(read)
}

/// A place in the body in the sender's terms: `lines[0].qty`; empty for the body itself. A name that cannot be read is left out.
fn place(path: &Path) -> String {
    let mut place = String::new();
    for segment in path {
        match segment {
            Segment::Seq { index } => place.push_str(&format!("[{index}]")),
            Segment::Map { key: name } | Segment::Enum { variant: name } => place = member(&place, name),
            Segment::Unknown => {}
        }
    }
    place
}

fn member(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") }
}

/// What serde says of a place, in our own words. Of serde's message only what it expected and our own names are taken: it
/// quotes the value that it found. Within members that are not read nothing but the syntax is looked at, so a place that is
/// named is one that is read.
fn reason(place: &str, error: &serde_json::Error) -> String {
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    let subject = if place.is_empty() { "the body" } else { place };
    match error.classify() {
        Category::Data => {}
        Category::Eof => return "the body is not JSON: it ends too early".into(),
        _ => {
            return match message {
                "number out of range" => format!("{subject} is too large a number"),
                "invalid unicode code point"
                | "lone leading surrogate in hex escape"
                | "unexpected end of hex escape" => format!("{subject} has text that is not Unicode"),
                _ => "the body is not JSON".into(),
            };
        }
    }
    let named = |what: &str| message.strip_prefix(what)?.strip_suffix('`').map(|name| member(place, name));
    if let Some(member) = named("missing field `") {
        return format!("{member} is missing");
    }
    if let Some(member) = named("duplicate field `") {
        return format!("{member} is there more than once");
    }
    match message.rsplit_once(", expected ").map(|(_, expected)| expected) {
        Some("i64") if message.starts_with("invalid value: integer") => {
            format!("{subject} is too large a number")
        }
        Some("i64") => format!("{subject} is not a whole number"),
        Some("a string") => format!("{subject} is not a text"),
        Some("a boolean") => format!("{subject} is not true or false"),
        Some("a sequence") => format!("{subject} is not a list"),
        Some(expected) if expected.starts_with("struct ") => format!("{subject} is not an object"),
        Some(expected) => format!("{subject} is not {expected}"),
        None => format!("{subject} cannot be read"),
    }
}

/// Passes everything on, but asks for a map where a struct is read: a derived reader would take a list of its members' values,
/// too. What is read by `deserialize_any` or as an enum is given as it is.
struct Objects<T>(T);

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Objects<D> {
    type Error = D::Error;
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _members: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Objects(visitor))
    }
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Objects(visitor))
    }
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_seq(Objects(visitor))
    }
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_option(Objects(visitor))
    }
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_newtype_struct(name, Objects(visitor))
    }
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }
    /// Skips without looking at numbers and texts.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_ignored_any(visitor)
    }
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.0.deserialize_any(visitor)
    }
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct identifier
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Objects<V> {
    type Value = V::Value;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
    fn visit_none<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }
    fn visit_unit<E: de::Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }
    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Objects(inner))
    }
    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Objects(inner))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Objects(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, object: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Objects(object))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Objects<A> {
    type Error = A::Error;
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Objects(seed))
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Objects<A> {
    type Error = A::Error;
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(seed)
    }
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Objects(seed))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Objects<S> {
    type Value = S::Value;
    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Objects(inner))
    }
}
