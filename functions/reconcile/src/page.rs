//! One page of a 3PL's report: `{"items":[{"sku","onHand","asOf"}],"next"}`. Touches nothing.
//!
//! Promises: what is wrong with one line loses no other line, and every such line is told with its reason.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// Some exporters write it before the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
const CODE_MAX_CHARS: usize = 200;
/// More than any warehouse holds of a SKU; sums stay far from the limits of 64 bits.
const COUNT_MAX: f64 = 1e12;
/// Clocks differ: a count that is ahead of ours by no more was made now.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(300);

/// What was read of a page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// The lines that can be used, in their order.
    pub lines: Vec<Line>,
    /// The others.
    pub invalid: Vec<Invalid>,
    /// The cursor of the next page; `None`: this is the last one.
    pub next: Option<String>,
}

/// A SKU as it was counted.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Our code.
    pub code: String,
    /// Units on hand, 0 or more.
    pub count: i64,
    /// The moment of the count, not in the future.
    pub as_of: Timestamp,
}

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Its code, or the number of the line.
    pub code: String,
    /// Completes the sentence "the line cannot be used: …".
    pub reason: String,
}

#[derive(Deserialize)]
struct Document {
    items: Vec<Value>,
    #[serde(default)]
    next: Value,
}

impl Page {
    /// Reads a page. `max_age`: older counts cannot be used. The error says why nothing of it can be used.
    pub fn read(body: &[u8], now: Timestamp, max_age: Duration) -> Result<Self, String> {
        let text = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
        let document: Document =
            serde_json::from_slice(text).map_err(|error| format!("not a page: {error}"))?;
        let next = match document.next {
            Value::Null => None,
            Value::String(text) => Some(text).filter(|text| !text.is_empty()),
            Value::Number(number) => Some(number.to_string()),
            _ => return Err("not a page: next is neither a text nor null".into()),
        };
        let mut page = Self { next, ..Self::default() };
        for (index, item) in document.items.iter().enumerate() {
            match line(item, now, max_age) {
                Ok(line) => page.lines.push(line),
                Err(reason) => {
                    let code = item["sku"].as_str().map_or_else(|| format!("(line {})", index + 1), shown);
                    page.invalid.push(Invalid { code, reason });
                }
            }
        }
        Ok(page)
    }

    /// All lines, those that cannot be used too.
    pub fn size(&self) -> usize {
        self.lines.len() + self.invalid.len()
    }
}

/// What PostgreSQL can store and a person can read of a code.
fn shown(code: &str) -> String {
    code.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).take(CODE_MAX_CHARS).collect()
}

fn line(item: &Value, now: Timestamp, max_age: Duration) -> Result<Line, String> {
    let code = item["sku"].as_str().ok_or("sku is not a text")?;
    if code.is_empty() || code.chars().count() > CODE_MAX_CHARS || code.chars().any(char::is_control) {
        return Err(format!("sku is not 1 to {CODE_MAX_CHARS} characters without control characters"));
    }
    let count = item["onHand"].as_f64().ok_or("onHand is not a number")?;
    if count < 0.0 {
        return Err("onHand is below 0".into());
    }
    if count.fract() != 0.0 || count > COUNT_MAX {
        return Err("onHand is not a whole number of units".into());
    }
    let as_of = item["asOf"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let as_of = as_of.ok_or("asOf is not a time (RFC 3339)")?;
    let ahead = as_of.duration_since(now);
    if Duration::try_from(ahead).is_ok_and(|ahead| ahead > CLOCK_TOLERANCE) {
        return Err("asOf is in the future".into());
    }
    if Duration::try_from(-ahead).is_ok_and(|age| age > max_age) {
        return Err(format!("asOf is more than {} hours ago", max_age.as_secs() / 3600));
    }
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 10^12")]
    Ok(Line { code: code.to_owned(), count: count as i64, as_of: as_of.min(now) })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use serde_json::json;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn now() -> Timestamp {
        "2026-06-01T02:00:00Z".parse().unwrap()
    }

    fn read(document: &Value) -> Result<Page, String> {
        Page::read(document.to_string().as_bytes(), now(), DAY)
    }

    fn item(sku: &str, on_hand: &Value, as_of: &str) -> Value {
        json!({"sku": sku, "onHand": on_hand, "asOf": as_of})
    }

    const AN_HOUR_AGO: &str = "2026-06-01T01:00:00Z";

    #[test]
    fn a_page_is_read_with_or_without_a_byte_order_mark() {
        let document = json!({"items": [item("A", &json!(6), AN_HOUR_AGO), item("B", &json!(0.0), AN_HOUR_AGO)],
            "next": "x", "more": 1});
        let page = read(&document).unwrap();
        let line = |code: &str, count| Line { code: code.into(), count, as_of: AN_HOUR_AGO.parse().unwrap() };
        assert_eq!(page.lines, [line("A", 6), line("B", 0)]);
        assert_eq!((page.next.as_deref(), page.size()), (Some("x"), 2));
        let marked = [BYTE_ORDER_MARK, document.to_string().as_bytes()].concat();
        assert_eq!(Page::read(&marked, now(), DAY).unwrap(), page);
    }

    #[test]
    fn the_end_of_a_report_is_told_in_several_ways() {
        for end in
            [json!({"items": []}), json!({"items": [], "next": null}), json!({"items": [], "next": ""})]
        {
            assert_eq!(read(&end).unwrap(), Page::default());
        }
        assert_eq!(read(&json!({"items": [], "next": 17})).unwrap().next.as_deref(), Some("17"));
    }

    #[test]
    fn what_is_no_page_is_an_error() {
        for body in
            ["", "<html>", "[]", "{}", "{\"items\":{}}", "{\"items\":[],\"next\":{}}", "{\"items\":[1]"]
        {
            assert!(Page::read(body.as_bytes(), now(), DAY).is_err(), "{body}");
        }
    }

    #[test]
    fn a_line_that_cannot_be_used_loses_no_other() {
        let page = read(&json!({"items": [
            item("NEGATIVE", &json!(-1), AN_HOUR_AGO),
            item("FRACTION", &json!(1.5), AN_HOUR_AGO),
            item("HUGE", &json!(1e300), AN_HOUR_AGO),
            item("TEXT", &json!("6"), AN_HOUR_AGO),
            item("AHEAD", &json!(6), "2026-06-01T02:06:00Z"),
            item("OLD", &json!(6), "2026-05-30T02:00:00Z"),
            item("WHEN", &json!(6), "yesterday"),
            item("", &json!(6), AN_HOUR_AGO),
            item("A\u{0}B", &json!(6), AN_HOUR_AGO),
            {"sku": 7, "onHand": 6, "asOf": AN_HOUR_AGO},
            "nothing",
            null,
            item("GOOD", &json!(6), "2026-06-01T02:04:00Z"),
        ]}))
        .unwrap();
        assert_eq!(page.lines, [Line { code: "GOOD".into(), count: 6, as_of: now() }]);
        let told: Vec<_> =
            page.invalid.iter().map(|line| (line.code.as_str(), line.reason.as_str())).collect();
        assert_eq!(
            told,
            [
                ("NEGATIVE", "onHand is below 0"),
                ("FRACTION", "onHand is not a whole number of units"),
                ("HUGE", "onHand is not a whole number of units"),
                ("TEXT", "onHand is not a number"),
                ("AHEAD", "asOf is in the future"),
                ("OLD", "asOf is more than 24 hours ago"),
                ("WHEN", "asOf is not a time (RFC 3339)"),
                ("", "sku is not 1 to 200 characters without control characters"),
                ("A\u{fffd}B", "sku is not 1 to 200 characters without control characters"),
                ("(line 10)", "sku is not a text"),
                ("(line 11)", "sku is not a text"),
                ("(line 12)", "sku is not a text"),
            ]
        );
    }
}
