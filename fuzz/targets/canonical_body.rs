//! The fuzz target `canonical_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::canonical_body(bytes));
