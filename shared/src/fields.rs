//! Typed reading of a strict JSON object that tells every mistake at once, not only the first.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::json::BodyError;

/// Units in one request line: 1 … 1,000,000.
pub const QTY_RANGE: std::ops::RangeInclusive<i64> = 1..=1_000_000;

/// The members of one object; what was not asked for by [`Fields::finish`] is an unknown member.
pub struct Fields<'v> {
    path: String,
    members: &'v Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'v> Fields<'v> {
    /// Opens an object at `path` (a JSON Pointer). Anything else is noted in `errors` and gives `None`.
    pub fn open(value: &'v Value, path: impl Into<String>, errors: &mut Vec<BodyError>) -> Option<Self> {
        let path = path.into();
        match value {
            Value::Object(members) => Some(Self {
                path,
                members,
                known: Vec::new(),
            }),
            _ => {
                errors.push(BodyError {
                    path,
                    message: "must be an object".into(),
                });
                None
            }
        }
    }

    /// Whether the member is there, null included. Asking does not make it known.
    pub fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    /// The pointer of a member.
    pub fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// Notes a mistake at a member.
    pub fn wrong(&self, name: &str, message: impl Into<String>, errors: &mut Vec<BodyError>) {
        errors.push(BodyError {
            path: self.at(name),
            message: message.into(),
        });
    }

    /// The member if it is there; null is a value.
    pub fn optional(&mut self, name: &'static str) -> Option<&'v Value> {
        self.known.push(name);
        self.members.get(name)
    }

    /// The member; noted as missing if it is not there.
    pub fn required(&mut self, name: &'static str, errors: &mut Vec<BodyError>) -> Option<&'v Value> {
        let found = self.optional(name);
        if found.is_none() {
            self.wrong(name, "is required", errors);
        }
        found
    }

    /// A required UUID in either case.
    pub fn uuid(&mut self, name: &'static str, errors: &mut Vec<BodyError>) -> Option<Uuid> {
        let found = self.required(name, errors)?;
        let id = found.as_str().and_then(uuid);
        if id.is_none() {
            self.wrong(name, "must be a UUID", errors);
        }
        id
    }

    /// A required integer within `range`.
    pub fn integer(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<i64>,
        errors: &mut Vec<BodyError>,
    ) -> Option<i64> {
        let found = self.required(name, errors)?;
        let number = found.as_i64().filter(|n| range.contains(n));
        if number.is_none() {
            self.wrong(
                name,
                format!("must be an integer from {} to {}", range.start(), range.end()),
                errors,
            );
        }
        number
    }

    /// A required array of `len` items.
    pub fn array(
        &mut self,
        name: &'static str,
        len: std::ops::RangeInclusive<usize>,
        errors: &mut Vec<BodyError>,
    ) -> Option<&'v Vec<Value>> {
        let found = self.required(name, errors)?;
        let items = found.as_array().filter(|items| len.contains(&items.len()));
        if items.is_none() {
            self.wrong(
                name,
                format!("must be an array of {} to {} items", len.start(), len.end()),
                errors,
            );
        }
        items
    }

    /// Notes every member that nobody asked for.
    pub fn finish(self, errors: &mut Vec<BodyError>) {
        for name in self
            .members
            .keys()
            .filter(|name| !self.known.contains(&name.as_str()))
        {
            let path = format!("{}/{}", self.path, name.replace('~', "~0").replace('/', "~1"));
            errors.push(BodyError {
                path,
                message: "is not a member of this request".into(),
            });
        }
    }
}

/// A UUID in its hyphenated form, either case; not the braced, URN or bare spellings that the `uuid` crate also takes.
pub fn uuid(text: &str) -> Option<Uuid> {
    if text.len() == 36 {
        Uuid::try_parse(text).ok()
    } else {
        None
    }
}
