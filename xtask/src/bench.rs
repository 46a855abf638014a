//! `cargo xtask bench`: the bench is a program of its own, since its load generator shares the machine with what it measures
//! and so must be quick. Nothing else here need be, and to optimize it takes minutes that nobody should wait for before
//! `dev` or `test` begin.

use std::os::unix::process::CommandExt;

use xtask::process;

/// Builds the bench, optimized, over the same dependencies, and goes on as that program. Returns only where it cannot be
/// started.
pub fn become_the_bench(args: &[String]) -> anyhow::Error {
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
