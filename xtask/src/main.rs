//! `cargo xtask …`: what a developer or operator runs from the project's root. One module per command; this file only
//! dispatches.

mod admin;
mod bench;
mod dev;
mod dev_env;
mod master_data;
mod migrate;
mod optimized;
mod partner;
mod postgres;
mod process;
mod python;
mod scenario;
mod secrets;
mod send;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The commands of Holdfast.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Set up what is missing and run the whole stack on this machine, until Ctrl-C or SIGTERM.
    Dev(dev::Args),
    /// Set up what is missing and run every check.
    Test(test::Args),
    /// Measure allocate against what it stands on and against the textbook; print ratios, write `.local/bench.json`.
    Bench(bench::Args),
    /// Create a tenant with stock and orders in the running stack; print it as JSON.
    Scenario(scenario::Args),
    /// Tenants, users, API keys, shops and 3PL accounts; CSV import.
    #[command(subcommand)]
    Admin(admin::Command),
    /// Sign a payload as Stripe, Shopify or a 3PL would, and post it to the running stack.
    #[command(subcommand)]
    Send(send::Command),
    /// Migrate the database of `DATABASE_URL`: roles, numbered migrations, functions.
    Migrate,
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Dev(args) => dev::run(args).await.map(|()| ExitCode::SUCCESS),
        Command::Test(args) => test::run(args).await,
        Command::Bench(_) if cfg!(debug_assertions) => Err(optimized::run_again()),
        Command::Bench(args) => bench::run(args).await,
        Command::Scenario(args) => scenario::run(args).await.map(|()| ExitCode::SUCCESS),
        Command::Admin(command) => admin::run(command).await.map(|()| ExitCode::SUCCESS),
        Command::Send(command) => send::run(command).await.map(|()| ExitCode::SUCCESS),
        Command::Migrate => migrate::run().await.map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {}", told(&error));
        ExitCode::FAILURE
    })
}

/// An error and its causes on one line; a cause that the words before it already hold is not said again.
fn told(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.as_str() {
        "" => cause,
        before if before.contains(&cause) => said,
        _ => format!("{said}: {cause}"),
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use anyhow::{Context, anyhow};

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("no route").context("cannot connect: no route").context("migrating");
        assert_eq!(super::told(&error), "migrating: cannot connect: no route");
        let error = Err::<(), _>(anyhow!("disk full")).context("cannot write").unwrap_err();
        assert_eq!(super::told(&error), "cannot write: disk full");
    }
}
