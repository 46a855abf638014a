//! The fuzz target `shopify_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::shopify_body(bytes));
