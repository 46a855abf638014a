//! Secrets as an operator gives them, and for how long the one before counts.

use std::io::Read;

use anyhow::{Context, Result};
use clap::Args;

/// Longest overlap of two secrets.
const OVERLAP_HOURS_MAX: i64 = 30 * 24;

/// How long two secrets count.
#[derive(Args)]
pub struct Overlap {
    /// Hours in which the secret before counts, too; 0 ends it at once.
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(i64).range(0..=OVERLAP_HOURS_MAX))]
    pub overlap_hours: i64,
}

/// A secret as it was given: `-` stands for standard input, since other users of a machine see a program's arguments.
pub fn given(secret: &str) -> Result<String> {
    if secret != "-" {
        return Ok(secret.to_owned());
    }
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text).context("cannot read the secret from standard input")?;
    Ok(text.trim().to_owned())
}
