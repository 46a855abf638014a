//! The fuzz target `retry_after`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::retry_after(bytes));
