//! `cargo xtask bench`: starts the bench, a separate program. Its load generator shares the CPU with what it measures, so
//! it is built with optimization; the other commands are not, because that build takes minutes.

use std::os::unix::process::CommandExt;

use xtask::process;

/// Replaces this process by `cargo run --bin bench`; returns only if cargo cannot be started.
pub fn exec(args: &[String]) -> anyhow::Error {
    let mut cargo = process::cargo().into_std();
    cargo.args([
        "run",
        "--bin",
        "bench",
        "--manifest-path",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"),
    ]);
    for setting in ["opt-level=2", "debug-assertions=false"] {
        for package in ["bench", "testing", "xtask"] {
            cargo.args(["--config", &format!("profile.dev.package.{package}.{setting}")]);
        }
    }
    println!("… building the bench's load generator, optimized (minutes the first time)");
    let error = cargo.arg("--").args(args).exec();
    anyhow::Error::new(error).context("cannot start cargo")
}
