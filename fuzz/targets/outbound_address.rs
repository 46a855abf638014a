//! The fuzz target `outbound_address`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::outbound_address(bytes));
