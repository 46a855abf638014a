//! The bench's load generator shares the machine with what it measures, so it must be quick. Nothing else in this program
//! need be, and to optimize it takes minutes that nobody should wait for before `dev` or `test` begin.

use std::os::unix::process::CommandExt;

use crate::process;

/// Builds this program again, optimized, over the same dependencies, and goes on as that one with the same arguments.
/// Returns only where that cannot be started.
pub fn run_again() -> anyhow::Error {
    let mut cargo = process::cargo().into_std();
    cargo.args([
        "run",
        "--bin",
        "xtask",
        "--manifest-path",
        concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"),
    ]);
    for setting in ["opt-level=2", "debug-assertions=false"] {
        cargo.args(["--config", &format!("profile.dev.package.xtask.{setting}")]);
    }
    println!("… building the bench's load generator, optimized (minutes the first time)");
    let error = cargo.arg("--").args(std::env::args_os().skip(1)).exec();
    anyhow::Error::new(error).context("cannot start cargo")
}
