//! The fuzz target `envelope`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::envelope(bytes));
