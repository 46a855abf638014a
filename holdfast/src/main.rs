//! `holdfast …`: what an operator runs against any database. Carries the migrations inside itself and needs no checkout.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use holdfast::{admin, migrate};

/// Sets up and migrates a Holdfast database.
///
/// Answers are JSON on standard output, one object a line; errors are one line on standard error.
#[derive(Parser)]
#[command(name = "holdfast", version, after_help = AFTER_HELP)]
struct Cli {
    /// The database and its owner: postgres://user:password@host/database.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true, global = true, value_name = "URL")]
    database_url: Option<String>,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
A new database, from nothing to the first API key:

  export DATABASE_URL=postgres://owner:…@host/holdfast
  HOLDFAST_APP_PASSWORD=… HOLDFAST_WORKER_PASSWORD=… holdfast migrate
  holdfast admin tenant create --name 'Birch & Sons'
  holdfast admin user create --tenant ID --name 'Ana Lima' --email ana@birch.example
  holdfast admin api-key issue --tenant ID --user ID --scopes orders:write,orders:read";

#[derive(Subcommand)]
enum Command {
    /// Bring the database to this release's state: roles, numbered migrations, functions. Safe to repeat.
    Migrate(migrate::Args),
    /// Set up tenants, users, API keys, shops and 3PL accounts; import CSV files.
    #[command(subcommand)]
    Admin(admin::Command),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { database_url, command } = Cli::parse();
    let Some(url) = database_url.filter(|url| !url.is_empty()) else {
        eprintln!(
            "error: no database: set DATABASE_URL or give --database-url postgres://user:password@host/database"
        );
        return ExitCode::from(2);
    };
    let done = match command {
        Command::Migrate(args) => migrate::run(&url, args).await,
        Command::Admin(command) => admin::run(&url, command).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", holdfast::one_line(&error));
            ExitCode::FAILURE
        }
    }
}
