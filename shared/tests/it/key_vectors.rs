//! `Idempotency-Key` against the HTTP working group's structured-field vectors and the examples of the draft.

use serde_json::Value;
use shared::idempotency::key::parse;

use crate::case_json;

/// The header value as API Gateway passes it on: lines joined with a comma.
fn joined(row: &Value) -> String {
    let lines: Vec<&str> = row["raw"].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect();
    lines.join(", ")
}

#[test]
fn structured_field_strings_are_read_as_the_working_group_reads_them() {
    for file in ["structured-fields/string.json", "structured-fields/string-generated.json"] {
        let Some(rows) = case_json(file) else { return };
        for row in rows.as_array().unwrap() {
            let value = joined(row);
            if !value.trim_start().starts_with('"') {
                // Bare values are our extension of the draft, as Stripe accepts them.
                continue;
            }
            let expected = row["expected"][0].as_str();
            let key = parse(&value);
            match expected {
                // Our own limits: not empty, and at most 255 characters.
                Some(text) if text.is_empty() || text.chars().count() > 255 => assert!(key.is_err(), "{row}"),
                // The vectors do not tell whether a String of spaces is a key.
                Some(text) if text.trim().is_empty() => {}
                Some(text) => assert_eq!(key.as_deref(), Ok(text), "{row}"),
                None => assert!(key.is_err(), "{row}"),
            }
        }
    }
}

#[test]
fn the_drafts_examples_are_keys_with_and_without_quotes() {
    let Some(examples) = case_json("idempotency/examples.json") else {
        return;
    };
    for example in examples["header_examples"].as_array().unwrap() {
        let key = example["key"].as_str().unwrap();
        assert_eq!(parse(example["raw"].as_str().unwrap()).as_deref(), Ok(key));
        assert_eq!(parse(key).as_deref(), Ok(key));
    }
}
