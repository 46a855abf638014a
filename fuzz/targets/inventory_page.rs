//! The fuzz target `inventory_page`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fuzz::inventory_page(bytes));
