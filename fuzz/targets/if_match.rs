//! The fuzz target `if_match`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::if_match(bytes));
