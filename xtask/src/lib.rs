//! What the commands share with integration tests: Lambda's side of a function.

pub mod emulator;
