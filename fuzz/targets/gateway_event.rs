//! The fuzz target `gateway_event`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::gateway_event(bytes));
