//! The fuzz target `idempotency_key`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::idempotency_key(bytes));
