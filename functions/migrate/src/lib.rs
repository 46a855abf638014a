//! Brings the database to this release's state from inside the cloud: carries the migrations, and is invoked by a deploy before the
//! new functions get requests.
//!
//! Promises what `holdfast::migrate` promises: it can be repeated, and run beside itself and beside requests. An invocation whose
//! time is up leaves whole migrations only; the next one goes on.
//! Relies on a direct connection as the owner: its settings do not survive a pooler in transaction mode.

use holdfast::migrate::{MigrateError, RolePasswords, last_applied, last_carried};
use serde::{Deserialize, Serialize};
use shared::runtime::config::ConfigError;
use shared::runtime::secret::{Secret, SecretError};
use sqlx::{Connection, PgConnection};

/// The environment, read once at cold start.
#[derive(Clone, Debug)]
pub struct Config {
    /// The secret `OWNER_DATABASE_URL`.
    pub owner: Secret,
    /// The secrets `APP_DATABASE_URL` and `WORKER_DATABASE_URL`, for their passwords.
    pub roles: Option<[Secret; 2]>,
}

impl Config {
    /// Reads the variables named above. The error names the one that is missing or wrong.
    pub fn from_env() -> Result<Self, ConfigError> {
        let [app, worker] = ["APP_DATABASE_URL", "WORKER_DATABASE_URL"].map(Secret::optional_from_env);
        Ok(Self {
            owner: Secret::from_env("OWNER_DATABASE_URL")?,
            roles: app?.zip(worker?).map(|(a, w)| [a, w]),
        })
    }
}

/// The event; `{}` migrates.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Request {
    /// Only tells what would be done.
    pub dry_run: bool,
    /// Gives the roles the passwords that their secrets hold: at the first deploy, and after a secret was written by hand.
    pub set_passwords: bool,
}

/// What was done. A failure is an error of the invocation, so that a deploy stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Number of the last migration before; 0 for an empty database.
    pub from: i64,
    /// Number of the last migration afterwards; with `dryRun` that of this release.
    pub to: i64,
    /// Steps that stood back for requests and were tried again.
    pub retries: u32,
    /// Whether the database was migrated.
    pub migrated: bool,
    /// What the server takes: the deploy compares it with what the functions may open.
    pub max_connections: i64,
}

/// Why the database was not migrated.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A secret cannot be had.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A role's secret cannot be used.
    #[error("the secret of a role cannot be used: {0}")]
    Password(String),
    /// As `holdfast migrate` says it.
    #[error("{0}")]
    Migrate(String),
}

impl From<MigrateError> for Failure {
    fn from(error: MigrateError) -> Self {
        Self::Migrate(holdfast::one_line(&error.into()))
    }
}

/// One invocation.
pub async fn handle(config: &Config, request: Request) -> Result<Summary, Failure> {
    let owner = config.owner.current().await?;
    let (from, max_connections) = inspect(&owner).await?;
    if request.dry_run {
        return Ok(Summary { from, to: last_carried(), retries: 0, migrated: false, max_connections });
    }
    let passwords = if request.set_passwords { Some(passwords(config).await?) } else { None };
    let done = holdfast::migrate::migrate(&owner, passwords).await?;
    let summary =
        Summary { from: done.from, to: done.to, retries: done.retries, migrated: true, max_connections };
    tracing::info!(?summary, "migrated");
    Ok(summary)
}

/// The last migration there is, and how many connections the server takes from others than superusers.
async fn inspect(owner: &str) -> Result<(i64, i64), Failure> {
    const CONNECTIONS: &str = "select current_setting('max_connections')::bigint
        - current_setting('superuser_reserved_connections')::bigint";
    let options = holdfast::database::owner_options(owner).map_err(MigrateError::from)?;
    let mut connection = PgConnection::connect_with(&options).await.map_err(MigrateError::Connect)?;
    let from = last_applied(&mut connection).await?;
    let most =
        sqlx::query_scalar(CONNECTIONS).fetch_one(&mut connection).await.map_err(MigrateError::Connect)?;
    let _ = connection.close().await;
    Ok((from, most))
}

async fn passwords(config: &Config) -> Result<RolePasswords, Failure> {
    let Some([app, worker]) = &config.roles else {
        let why = "APP_DATABASE_URL and WORKER_DATABASE_URL are not set";
        return Err(Failure::Password(why.into()));
    };
    let of = |address: &str| {
        let read = postgres_url::password(address);
        read.map_err(|error| Failure::Password(error.to_string()))
    };
    Ok(RolePasswords { app: Some(of(&app.current().await?)?), worker: Some(of(&worker.current().await?)?) })
}
