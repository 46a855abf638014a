//! `cargo xtask …`: what a developer runs from the project's root. One module per command; this file only dispatches.

mod bench;
mod chaos;
mod compat;
mod deploy;
mod dev;
mod package;
mod partner;
mod reconcile;
mod scenario;
mod send;
mod test;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand};
use holdfast::secrets::Keys;
use xtask::dev_env::DevEnv;
use xtask::workspace::Workspace;

/// Runs, checks and measures Holdfast on this machine.
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
    /// Measure what the product costs beside its bounds; print ratios, write .local/bench.json.
    #[command(disable_help_flag = true)]
    Bench {
        /// Passed to the bench; `--help` lists its options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Break the real binaries, the network and the database at random; then check the invariants.
    #[command(disable_help_flag = true)]
    Chaos {
        /// Passed to the chaos; `--help` lists its options.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build every function as it is deployed, each with its own features, and check it.
    Package(package::Args),
    /// Deploy what is packaged: look first, migrate, then shift the requests.
    Deploy(deploy::Args),
    /// Run the release before on this release's SQL, as a canary and a rollback do.
    Compat(compat::Args),
    /// Create a tenant with stock and orders in the running stack; print it as JSON.
    Scenario(scenario::Args),
    /// The same as `holdfast admin`, for the database of DATABASE_URL or, if it is not set, of the running stack.
    #[command(subcommand)]
    Admin(holdfast::admin::Command),
    /// Reconcile with what 3PLs count, in the running stack; shows the progress.
    Reconcile(reconcile::Args),
    /// Sign a webhook payload as Stripe, Shopify or a 3PL would, and post it to the running stack.
    #[command(subcommand)]
    Send(send::Command),
    /// The same as `holdfast migrate`, for the database of DATABASE_URL.
    Migrate(holdfast::migrate::Args),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Dev(args) => dev::run(args).await.map(|()| ExitCode::SUCCESS),
        Command::Test(args) => test::run(args).await,
        Command::Bench { args } => Err(bench::exec(&args)),
        Command::Chaos { args } => Err(chaos::exec(&args)),
        Command::Package(args) => package::run(args).await.map(|()| ExitCode::SUCCESS),
        Command::Deploy(args) => deploy::run(args).await.map(|()| ExitCode::SUCCESS),
        Command::Compat(args) => compat::run(args).await.map(|()| ExitCode::SUCCESS),
        Command::Scenario(args) => scenario::run(args).await.map(|()| ExitCode::SUCCESS),
        Command::Admin(command) => admin(command).await.map(|()| ExitCode::SUCCESS),
        Command::Reconcile(args) => reconcile::run(args).await.map(|()| ExitCode::SUCCESS),
        Command::Send(command) => send::run(command).await.map(|()| ExitCode::SUCCESS),
        Command::Migrate(args) => migrate(args).await.map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {}", holdfast::one_line(&error));
        ExitCode::FAILURE
    })
}

fn database_url() -> Option<String> {
    std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty())
}

async fn admin(command: holdfast::admin::Command) -> Result<()> {
    let (url, keys) = match database_url() {
        Some(url) => (url, std::env::var("SECRETS_KEYS").ok()),
        None => {
            let stack = DevEnv::read(&Workspace::open()?).context("DATABASE_URL is not set")?;
            (stack.get("DATABASE_URL")?.to_owned(), Some(stack.get("SECRETS_KEYS")?.to_owned()))
        }
    };
    holdfast::admin::run(&url, &Keys::read(keys.as_deref())?, command).await
}

async fn migrate(args: holdfast::migrate::Args) -> Result<()> {
    let url = database_url().context(
        "DATABASE_URL is not set: it names the database and its owner, postgres://user:password@host/database",
    )?;
    holdfast::migrate::run(&url, args).await
}
