//! Typed reading of a JSON object. Collects all mistakes, not only the first, each with its JSON Pointer.

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::http::json::BodyError;

pub(crate) const QTY_RANGE: std::ops::RangeInclusive<i64> = 1..=1_000_000;

const UUID_LEN: usize = 36;

/// In minor units.
pub(crate) const MONEY_RANGE: std::ops::RangeInclusive<i64> = 0..=10_000_000_000;

/// Accepts the body `{}` and nothing else.
pub fn read_empty(body: &Value) -> Result<(), Vec<BodyError>> {
    let mut errors = Vec::new();
    if let Some(fields) = Fields::open(body, "", &mut errors) {
        fields.finish(&mut errors);
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// The members of one object. Those that were not read before [`Fields::finish`] are unknown members.
pub(crate) struct Fields<'v> {
    path: String,
    members: &'v Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'v> Fields<'v> {
    /// Opens an object at `path` (a JSON Pointer). If it is not an object, notes a mistake.
    pub fn open(value: &'v Value, path: impl Into<String>, errors: &mut Vec<BodyError>) -> Option<Self> {
        let path = path.into();
        match value {
            Value::Object(members) => Some(Self { path, members, known: Vec::new() }),
            _ => {
                errors.push(BodyError { path, message: "must be an object".into() });
                None
            }
        }
    }

    /// Whether the member exists, be it null. Does not count as reading it.
    pub fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    fn pointer(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    pub fn wrong(&self, name: &str, message: impl Into<String>, errors: &mut Vec<BodyError>) {
        errors.push(BodyError { path: self.pointer(name), message: message.into() });
    }

    /// An optional member; null is a value.
    pub fn optional(&mut self, name: &'static str) -> Option<&'v Value> {
        self.known.push(name);
        self.members.get(name)
    }

    /// Notes a mistake if the member is missing.
    pub fn required(&mut self, name: &'static str, errors: &mut Vec<BodyError>) -> Option<&'v Value> {
        let found = self.optional(name);
        if found.is_none() {
            self.wrong(name, "is required", errors);
        }
        found
    }

    pub fn uuid(&mut self, name: &'static str, errors: &mut Vec<BodyError>) -> Option<Uuid> {
        let found = self.required(name, errors)?;
        let id = found.as_str().and_then(uuid);
        if id.is_none() {
            self.wrong(name, "must be a UUID", errors);
        }
        id
    }

    pub fn integer(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<i64>,
        errors: &mut Vec<BodyError>,
    ) -> Option<i64> {
        let found = self.required(name, errors)?;
        let number = found.as_i64().filter(|n| range.contains(n));
        if number.is_none() {
            self.wrong(name, format!("must be an integer from {} to {}", range.start(), range.end()), errors);
        }
        number
    }

    pub fn array(
        &mut self,
        name: &'static str,
        len: std::ops::RangeInclusive<usize>,
        errors: &mut Vec<BodyError>,
    ) -> Option<&'v Vec<Value>> {
        let found = self.required(name, errors)?;
        let items = found.as_array().filter(|items| len.contains(&items.len()));
        if items.is_none() {
            self.wrong(name, format!("must be an array of {} to {} items", len.start(), len.end()), errors);
        }
        items
    }

    /// An integer that may be absent; null is a mistake.
    pub fn optional_integer(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<i64>,
        errors: &mut Vec<BodyError>,
    ) -> Option<i64> {
        if self.optional(name).is_some() { self.integer(name, range, errors) } else { None }
    }

    /// A text that may be absent (`None`) or null (`Some(Null)`).
    pub fn nullable_text(
        &mut self,
        name: &'static str,
        max_chars: usize,
        errors: &mut Vec<BodyError>,
    ) -> Option<&'v Value> {
        let found = self.optional(name)?;
        let fits = found.is_null() || found.as_str().is_some_and(|text| text.chars().count() <= max_chars);
        if !fits {
            self.wrong(name, format!("must be a string of at most {max_chars} characters, or null"), errors);
        }
        fits.then_some(found)
    }

    /// A date `YYYY-MM-DD` that may be absent (`None`) or null (`Some(Null)`).
    pub fn nullable_date(&mut self, name: &'static str, errors: &mut Vec<BodyError>) -> Option<&'v Value> {
        let found = self.optional(name)?;
        let fits = found.is_null() || found.as_str().is_some_and(is_date);
        if !fits {
            self.wrong(name, "must be a date, YYYY-MM-DD, or null", errors);
        }
        fits.then_some(found)
    }

    /// A boolean that may be absent; null is a mistake.
    pub fn optional_bool(&mut self, name: &'static str, errors: &mut Vec<BodyError>) -> Option<bool> {
        let found = self.optional(name)?;
        if !found.is_boolean() {
            self.wrong(name, "must be true or false", errors);
        }
        found.as_bool()
    }

    /// A required text that is not blank.
    pub fn text(
        &mut self,
        name: &'static str,
        max_chars: usize,
        errors: &mut Vec<BodyError>,
    ) -> Option<&'v str> {
        let found = self.required(name, errors)?;
        let text = found.as_str().filter(|text| !text.trim().is_empty() && text.chars().count() <= max_chars);
        if text.is_none() {
            self.wrong(name, format!("must be a string of 1 to {max_chars} characters"), errors);
        }
        text
    }

    /// Notes a save that names no field: it would only make a new version.
    pub fn needs_a_change(&self, written: &Map<String, Value>, errors: &mut Vec<BodyError>) {
        let unknown = self.members.keys().any(|name| !self.known.contains(&name.as_str()));
        if written.is_empty() && errors.is_empty() && !unknown {
            errors.push(BodyError { path: self.path.clone(), message: "must name a field to save".into() });
        }
    }

    /// Notes every member that was not read as a mistake.
    pub fn finish(self, errors: &mut Vec<BodyError>) {
        for name in self.members.keys().filter(|name| !self.known.contains(&name.as_str())) {
            let path = format!("{}/{}", self.path, name.replace('~', "~0").replace('/', "~1"));
            errors.push(BodyError { path, message: "is not a member of this request".into() });
        }
    }
}

/// A calendar day `YYYY-MM-DD`, years 0001 … 9999.
fn is_date(text: &str) -> bool {
    let digits = |range: std::ops::Range<usize>| {
        text.get(range).is_some_and(|d| d.bytes().all(|b| b.is_ascii_digit()))
    };
    text.len() == 10
        && digits(0..4)
        && digits(5..7)
        && digits(8..10)
        && text.parse::<jiff::civil::Date>().is_ok_and(|date| date.year() >= 1)
}

/// A UUID with hyphens, in either case. Other forms that the `uuid` crate accepts have other lengths.
pub(crate) fn uuid(text: &str) -> Option<Uuid> {
    if text.len() == UUID_LEN { Uuid::try_parse(text).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_days_that_exist() {
        for text in ["2026-02-28", "2028-02-29", "0001-01-01", "9999-12-31"] {
            assert!(is_date(text), "{text}");
        }
        for text in [
            "2026-02-29",
            "2026-2-28",
            "0000-01-01",
            "2026-13-01",
            "20260228",
            "2026-02-28T00",
            "2026/02/28",
            "",
            "x",
        ] {
            assert!(!is_date(text), "{text}");
        }
    }

    #[test]
    fn ids_are_hyphenated_uuids_in_either_case() {
        assert_eq!(
            uuid("AAAAAAAA-AAAA-4AAA-8AAA-AAAAAAAAAAAA"),
            uuid("aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa")
        );
        assert!(uuid("AAAAAAAA-AAAA-4AAA-8AAA-AAAAAAAAAAAA").is_some());
        for text in [
            "",
            "aaaaaaaaaaaa4aaa8aaaaaaaaaaaaaaa",
            "{aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa}",
            "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaag",
        ] {
            assert_eq!(uuid(text), None, "{text}");
        }
    }
}
