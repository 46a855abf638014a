//! The fuzz target `stripe_body`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::stripe_body(bytes));
