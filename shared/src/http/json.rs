//! Strict JSON, its canonical form and the request fingerprint.
//!
//! Promises: [`parse`] accepts exactly one JSON value with unique member names, no lone surrogate, no U+0000, and only
//! integers within ±(2^53-1); `6`, `6.0` and `6e0` are the same value. What it refuses is never hashed or stored.
//! Relies on: serde_json's feature `float_roundtrip` (without it 9007199254740991.0 is read as a neighbouring integer) and
//! its recursion limit of 128.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// 2^53-1, the largest integer that every JSON parser reads exactly (RFC 8259 section 6).
pub(crate) const MAX_SAFE_INTEGER: i64 = (1 << 53) - 1;

/// One mistake in a request, as it is answered in `errors`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BodyError {
    /// A JSON Pointer (RFC 6901), empty for the whole body; of a query, the parameter's name.
    pub path: String,
    /// What is wrong there, for people.
    pub message: String,
}

/// Reads one strict JSON value, or returns the first mistake.
pub fn parse(bytes: &[u8]) -> Result<Value, BodyError> {
    let place = Rc::new(RefCell::new(Vec::new()));
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = Strict { place: Rc::clone(&place) }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value));
    value.map_err(|error| {
        let path = if error.is_data() { pointer(&place.borrow()) } else { String::new() };
        BodyError { path, message: error.to_string() }
    })
}

/// The RFC 8785 (JCS) form of a value that [`parse`] returned.
pub fn canonical(value: &Value) -> Vec<u8> {
    serde_json_canonicalizer::to_vec(value).expect("strings and safe integers always have a canonical form")
}

/// SHA-256 over method, path, base version (empty if there is none) and canonical body, each preceded by its length, so that
/// different requests never give the same bytes.
pub fn fingerprint(method: &str, path: &str, base_version: &str, body: &Value) -> [u8; 32] {
    let canonical = canonical(body);
    let mut hash = Sha256::new();
    for part in [method.as_bytes(), path.as_bytes(), base_version.as_bytes(), &canonical] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn pointer(place: &[String]) -> String {
    place.iter().map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1"))).collect()
}

/// Builds a [`Value`] and checks it; `place` is the current position, which after an error is that of the mistake.
struct Strict {
    place: Rc<RefCell<Vec<String>>>,
}

impl Strict {
    fn inside(&self) -> Self {
        Self { place: Rc::clone(&self.place) }
    }

    fn check_text<E: serde::de::Error>(text: &str) -> Result<(), E> {
        if text.contains('\0') { Err(E::custom("U+0000 is not allowed in names or values")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        Self::check_text(value)?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        if value.unsigned_abs() > MAX_SAFE_INTEGER.unsigned_abs() {
            return Err(E::custom("integers beyond ±(2^53-1) are not allowed"));
        }
        Ok(Value::from(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        if value.fract() != 0.0 {
            return Err(E::custom("fractions are not allowed"));
        }
        if value.abs() > MAX_SAFE_INTEGER as f64 {
            return Err(E::custom("integers beyond ±(2^53-1) are not allowed"));
        }
        #[expect(clippy::cast_possible_truncation, reason = "integral and within ±(2^53-1), so exact")]
        let integer = value as i64;
        Ok(Value::from(integer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        loop {
            self.place.borrow_mut().push(items.len().to_string());
            match seq.next_element_seed(self.inside())? {
                Some(item) => items.push(item),
                None => break,
            }
            self.place.borrow_mut().pop();
        }
        self.place.borrow_mut().pop();
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            self.place.borrow_mut().push(name.clone());
            Self::check_text(&name)?;
            if members.contains_key(&name) {
                return Err(A::Error::custom("this member appears twice"));
            }
            let value = map.next_value_seed(self.inside())?;
            members.insert(name, value);
            self.place.borrow_mut().pop();
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn all_notations_of_an_integer_are_one_value() {
        for text in ["6", "6.0", "6e0", "0.6e1", "600e-2"] {
            assert_eq!(parse(text.as_bytes()), Ok(json!(6)), "{text}");
        }
        assert_eq!(parse(b"-0.0"), Ok(json!(0)));
        assert_eq!(parse(b"9007199254740991.0"), Ok(json!(9007199254740991_i64)));
    }

    #[test]
    fn what_two_parsers_could_read_differently_is_refused_with_its_place() {
        for (text, path) in [
            (r#"{"a":[1,{"b":2,"b":2}]}"#, "/a/1/b"),
            (r#"{"a":1,"\u0061":1}"#, "/a"),
            (r#"{"q":1.5}"#, "/q"),
            (r#"{"q":9007199254740992}"#, "/q"),
            (r#"{"q":-9007199254740992}"#, "/q"),
            (r#"{"q":18446744073709551615}"#, "/q"),
            (r#"{"q":1e300}"#, "/q"),
            (r#"{"x/y":{"~":"\u0000"}}"#, "/x~1y/~0"),
            (r#"{"\u0000":1}"#, "/\0"),
            (r#"[0,1,"a\u0000"]"#, "/2"),
        ] {
            assert_eq!(parse(text.as_bytes()).expect_err(text).path, path, "{text}");
        }
        for text in
            ["", " ", "1 2", "{}x", r#""\ud800""#, r#""\ude00\ud83d""#, "1e999", "[1,]", "\u{feff}{}", "nul"]
        {
            assert_eq!(parse(text.as_bytes()).expect_err(text).path, "", "{text}");
        }
        assert!(parse(b"\"\xff\"").is_err());
        assert!(parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn the_fingerprint_of_a_request_never_changes() {
        // A library that starts to keep the order of members or the notation of numbers would change recorded hashes.
        let body = parse(
            br#"{"qty": 6.0, "skuId": "55555555-5555-5555-5555-000000000001", "note": "\u20ac\u00e9"}"#,
        );
        let hash = fingerprint("POST", "/orders/1/allocate", "", &body.expect("valid"));
        assert_eq!(hex::encode(hash), "9b34660c7127ecbfa1d9067d787a2aeab8768639ac1550e3e6f4119d67790435");
        let other = parse(
            "{\"note\":\"€é\",\"skuId\":\"55555555-5555-5555-5555-000000000001\",\"qty\":6}".as_bytes(),
        );
        assert_eq!(fingerprint("POST", "/orders/1/allocate", "", &other.expect("valid")), hash);
        assert_ne!(
            fingerprint("POST", "/orders/1/allocate", "7", &json!({})),
            fingerprint("POST", "/orders/1/allocate7", "", &json!({}))
        );
    }
}
