//! `cargo xtask chaos`: starts the chaos, a separate program: the other commands do not wait for its compilation.

use std::os::unix::process::CommandExt;

use xtask::process;

/// Replaces this process by `cargo run --bin chaos`; returns only if cargo cannot be started.
pub fn exec(args: &[String]) -> anyhow::Error {
    let mut cargo = process::cargo().into_std();
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
    let error = cargo.args(["run", "--bin", "chaos", "--manifest-path", manifest, "--"]).args(args).exec();
    anyhow::Error::new(error).context("cannot start cargo")
}
