//! Canonical JSON against the published vectors of RFC 8785, and what strict JSON refuses.

use serde_json::Value;
use shared::http::json::{canonical, parse};
use testing::{case, case_dir};

use crate::case_json;

fn canonical_text(value: &Value) -> String {
    String::from_utf8(canonical(value)).unwrap()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

#[test]
fn documents_of_the_reference_implementation_are_equal_byte_for_byte() {
    for name in ["arrays", "french", "structures", "unicode", "values", "weird"] {
        let (Some(input), Some(output)) = (
            case(&format!("jcs/testdata/input/{name}.json")),
            case(&format!("jcs/testdata/output/{name}.json")),
        ) else {
            return;
        };
        let value: Value = serde_json::from_slice(&input).unwrap();
        assert_eq!(canonical(&value), output, "{name}");
        let hex = String::from_utf8(case(&format!("jcs/testdata/outhex/{name}.txt")).unwrap()).unwrap();
        assert_eq!(canonical(&value), unhex(&hex), "{name}");
        // A canonical document stays the same; so does one that strict JSON accepts.
        assert_eq!(canonical(&serde_json::from_slice(&output).unwrap()), output, "{name}");
        if let Ok(strict) = parse(&input) {
            assert_eq!(canonical(&strict), output, "{name}");
        }
    }
}

#[test]
fn examples_of_the_rfc_are_equal_byte_for_byte() {
    for name in ["rfc_example", "rfc_sorting"] {
        let (Some(input), Some(expected)) = (
            case(&format!("jcs/rfc8785-text/{name}.input.json")),
            case(&format!("jcs/rfc8785-text/{name}.expected.json")),
        ) else {
            return;
        };
        let value: Value = serde_json::from_slice(&input).unwrap();
        let expected = String::from_utf8(expected).unwrap();
        assert_eq!(canonical_text(&value), expected.trim_end_matches('\n'), "{name}");
    }
}

#[test]
fn numbers_print_as_ecmascript_prints_them() {
    let number = |bits: u64| serde_json::Number::from_f64(f64::from_bits(bits)).map(Value::Number);
    if let Some(rows) = case_json("jcs/rfc8785-appendix-b-numbers.json") {
        for row in rows.as_array().unwrap() {
            let value = number(u64::from_str_radix(row["ieee754_hex"].as_str().unwrap(), 16).unwrap());
            assert_eq!(value.map(|v| canonical_text(&v)).as_deref(), row["expected"].as_str(), "{row}");
        }
    }
    if let Some(rows) = case("jcs/es6-numbers-1000.csv") {
        let text = String::from_utf8(rows).unwrap();
        assert_eq!(text.lines().count(), 1_000);
        for row in text.lines() {
            let (hex, expected) = row.split_once(',').unwrap();
            let value = number(u64::from_str_radix(hex, 16).unwrap()).unwrap();
            assert_eq!(canonical_text(&value), expected, "{hex}");
        }
    }
    if let Some(rows) = case_json("jcs/number-regressions.json") {
        for row in rows.as_array().unwrap() {
            // JCS treats every JSON number as a double.
            let double: f64 = row["input"].as_str().unwrap().parse().unwrap();
            let value = Value::Number(serde_json::Number::from_f64(double).unwrap());
            assert_eq!(canonical_text(&value), row["expected"].as_str().unwrap(), "{row}");
        }
    }
}

#[test]
fn member_names_sort_by_utf16_code_units() {
    let Some(rows) = case_json("jcs/utf16-key-order.json") else {
        return;
    };
    for row in rows.as_array().unwrap() {
        let value = parse(row["input"].as_str().unwrap().as_bytes()).unwrap();
        assert_eq!(canonical_text(&value), row["expected"].as_str().unwrap(), "{}", row["name"]);
    }
}

#[test]
fn what_has_no_canonical_form_is_refused() {
    if let Some(rows) = case_json("jcs/must-reject.json") {
        for row in rows.as_array().unwrap() {
            assert!(parse(&unhex(row["input_hex"].as_str().unwrap())).is_err(), "{}", row["name"]);
        }
    }
    // Two integers beyond 2^53 could have one hash, so they are refused in every notation.
    for text in [
        "9007199254740993",
        "-9007199254740993",
        "9007199254740992",
        "9007199254740992.0",
        "0.9007199254740993e16",
        "1e22",
        "1e308",
    ] {
        assert!(parse(text.as_bytes()).is_err(), "{text}");
    }
    for (text, value) in
        [("9007199254740991", 9_007_199_254_740_991_i64), ("-9007199254740991.0e0", -9_007_199_254_740_991)]
    {
        assert_eq!(parse(text.as_bytes()).unwrap(), Value::from(value));
    }
}

#[test]
fn depth_is_bounded_and_width_is_not() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    assert!(parse(deep(100).as_bytes()).is_ok());
    for levels in [200, 10_000, 500_000] {
        assert!(parse(deep(levels).as_bytes()).is_err());
        assert!(parse(r#"{"a":"#.repeat(levels).as_bytes()).is_err());
    }
    let wide = format!("[{}1]", "1,".repeat(400_000));
    assert_eq!(parse(wide.as_bytes()).unwrap().as_array().unwrap().len(), 400_001);
    let names: Vec<String> = (0..60_000).map(|n| format!("\"n{n}\":{n}")).collect();
    assert_eq!(
        parse(format!("{{{}}}", names.join(",")).as_bytes()).unwrap().as_object().unwrap().len(),
        60_000
    );
}

/// JSONTestSuite ("Parsing JSON is a minefield"): `n_` must be refused, `y_` accepted unless our contract is stricter.
#[test]
fn the_json_test_suite_passes() {
    let Some(folder) = case_dir("json-hostile/test_parsing") else { return };
    let mut stricter = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let file = entry.unwrap().path();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let parsed = parse(&std::fs::read(&file).unwrap());
        if name.starts_with("n_") {
            assert!(parsed.is_err(), "{name}");
        } else if name.starts_with("y_") && parsed.is_err() {
            stricter.push(name);
        }
    }
    stricter.sort();
    assert_eq!(stricter, STRICTER.map(|name| format!("y_{name}.json")));
}

/// Valid JSON that the contract refuses: fractions, integers beyond ±(2^53−1), duplicate names, NUL.
const STRICTER: [&str; 14] = [
    "number",
    "number_double_close_to_zero",
    "number_real_capital_e",
    "number_real_capital_e_neg_exp",
    "number_real_exponent",
    "number_real_fraction_exponent",
    "number_real_neg_exp",
    "number_simple_real",
    "object_duplicated_key",
    "object_duplicated_key_and_value",
    "object_escaped_null_in_key",
    "object_extreme_numbers",
    "string_null_escape",
    "structure_lonely_negative_real",
];
