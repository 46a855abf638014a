//! The connection of the database's owner.

use anyhow::{Context, Result};
use postgres_url::{Overrides, WrongAddress, options, why_refused};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};

/// Reads the owner's address: a `postgres://` URL, or a secret as RDS writes it; `DATABASE_HOST`, `DATABASE_PORT`,
/// `DATABASE_NAME` and `DATABASE_CA` hold instead of what it says.
pub fn owner_options(address: &str) -> Result<PgConnectOptions, WrongAddress> {
    let set = |name| std::env::var(name).ok().filter(|text: &String| !text.trim().is_empty());
    let port = set("DATABASE_PORT").and_then(|text| text.trim().parse().ok());
    let ca = set("DATABASE_CA");
    options(address, &Overrides { host: set("DATABASE_HOST"), port, database: set("DATABASE_NAME"), ca })
}

/// Connects as the owner.
pub async fn connect(owner_url: &str) -> Result<PgConnection> {
    let options = owner_options(owner_url)?;
    PgConnection::connect_with(&options).await.map_err(explained).context("cannot connect to the database")
}

/// The error with what to do about it, where that is known.
pub(crate) fn explained(error: sqlx::Error) -> sqlx::Error {
    match why_refused(&error) {
        Some(why) => sqlx::Error::Configuration(why.into()),
        None => error,
    }
}
