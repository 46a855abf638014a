//! Tests in which several functions write to the same data at the same time, in `tests/it`. What a single function promises
//! is tested in its own crate.
