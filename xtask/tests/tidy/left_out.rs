//! A test that leaves itself out says so by `testing::left_out`, so that it is counted and not taken for passed.

use crate::rust::Source;
use crate::{NOTHING, files};

/// Texts by which a test would leave itself out on its own.
fn uncounted(path: &str, text: &str) -> Vec<String> {
    let its_own = |literal: &String| literal.starts_with("left out") || literal == "HOLDFAST_TEST_PYTHON";
    let literals = Source::whole(text).literals.into_iter().filter(its_own);
    literals.map(|literal| format!("{path}: {literal:?}, where testing::left_out counts")).collect()
}

#[test]
fn whoever_leaves_itself_out_is_counted() {
    let tests = files().into_iter().filter(|(path, _)| path.ends_with(".rs") && path.contains("/tests/"));
    let found: Vec<_> = tests
        // Those of `left_out` itself, and this file, hold the texts.
        .filter(|(path, _)| !path.ends_with("/left_out.rs"))
        .flat_map(|(path, text)| uncounted(&path, &text))
        .collect();
    assert_eq!(found, NOTHING);
}

#[test]
fn a_test_that_only_prints_it_is_found() {
    let by_print = r#"fn t() { println!("left out: no server"); }"#;
    let by_variable = r#"fn t() { let Ok(p) = std::env::var("HOLDFAST_TEST_PYTHON") else { return }; }"#;
    assert_eq!(uncounted("t.rs", by_print).len(), 1);
    assert_eq!(uncounted("t.rs", by_variable).len(), 1);
    assert_eq!(uncounted("t.rs", r#"fn t() { testing::left_out("no server"); }"#), NOTHING);
}
