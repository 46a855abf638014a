//! `holdfast …`: what an operator runs against any database. Contains the migrations, so it needs no checkout.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use holdfast::database::owner_options;
use holdfast::secrets::Keys;
use holdfast::{admin, migrate};

/// Sets up a Holdfast database: migrates it and administers its tenants.
///
/// `admin` prints its results to standard output as JSON, one object per line. Errors go to standard error: one line if the
/// operation failed (exit status 1), a few for wrong arguments (exit status 2).
#[derive(Parser)]
#[command(name = "holdfast", version, after_help = AFTER_HELP)]
struct Cli {
    /// The database, as its owner: postgres://user:password@host/database.
    #[arg(
        long,
        env = "DATABASE_URL",
        hide_env_values = true,
        global = true,
        value_name = "URL",
        help_heading = "Database"
    )]
    database_url: Option<String>,
    /// The keys with which the functions seal stored secrets: <id>:<base64 of 32 bytes>, the one that seals first.
    #[arg(
        long,
        env = "SECRETS_KEYS",
        hide_env_values = true,
        global = true,
        value_name = "KEYS",
        help_heading = "Database"
    )]
    secrets_keys: Option<String>,
    #[command(subcommand)]
    command: Command,
}

const AFTER_HELP: &str = "\
From an empty database to the first API key:

  export DATABASE_URL=postgres://owner:…@host/holdfast
  HOLDFAST_APP_PASSWORD=… HOLDFAST_WORKER_PASSWORD=… holdfast migrate
  holdfast admin tenant create --name 'Birch & Sons'
  holdfast admin user create --tenant TENANT_ID --name 'Ana Lima' --email ana@birch.example
  holdfast admin api-key issue --tenant TENANT_ID --user USER_ID --scopes orders:write,orders:read

The create commands print the id that the next command needs.";

#[derive(Subcommand)]
enum Command {
    /// Bring the database to the state that this release needs. Safe to repeat.
    ///
    /// Needs PostgreSQL 15 or newer; the owner must be a superuser or have CREATEROLE.
    Migrate(migrate::Args),
    /// Create and list tenants, users, API keys, shops and 3PL accounts; manage secrets and limits; import CSV files.
    #[command(subcommand)]
    Admin(admin::Command),
}

/// The exit status that clap uses too.
const WRONG_ARGUMENTS: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let Cli { database_url, secrets_keys, command } = Cli::parse();
    let Some(url) = database_url.filter(|url| !url.is_empty()) else {
        eprintln!(
            "error: no database: set DATABASE_URL or give --database-url postgres://user:password@host/database"
        );
        return ExitCode::from(WRONG_ARGUMENTS);
    };
    if let Err(error) = owner_options(&url) {
        eprintln!("error: {error}");
        return ExitCode::from(WRONG_ARGUMENTS);
    }
    let done = match command {
        Command::Migrate(args) => migrate::run(&url, args).await,
        Command::Admin(command) => match Keys::read(secrets_keys.as_deref()) {
            Ok(keys) => admin::run(&url, &keys, command).await,
            Err(error) => Err(error),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", holdfast::one_line(&error));
            ExitCode::FAILURE
        }
    }
}
