//! The fuzz target `signatures`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::signatures(bytes));
