//! The fuzz target `threepl_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::threepl_body(bytes));
