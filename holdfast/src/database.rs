//! The connection of the database's owner.

use std::str::FromStr;

use anyhow::{Context, Result};
use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};

/// Why an address cannot be used. The text never holds the address itself, since that may hold a password.
#[derive(Debug, thiserror::Error)]
#[error("the database's address must be postgres://user:password@host/database; this one {0}")]
pub struct WrongUrl(String);

/// Refuses what is no `postgres://` URL.
pub fn check_url(url: &str) -> Result<(), WrongUrl> {
    let scheme = url.trim().split_once("://").map_or("", |(scheme, _)| scheme);
    if !["postgres", "postgresql"].iter().any(|name| scheme.eq_ignore_ascii_case(name)) {
        return Err(WrongUrl("does not begin with postgres://".into()));
    }
    match PgConnectOptions::from_str(url) {
        Ok(_) => Ok(()),
        Err(sqlx::Error::Configuration(why)) => Err(WrongUrl(format!("cannot be read: {why}"))),
        Err(error) => Err(WrongUrl(format!("cannot be read: {error}"))),
    }
}

/// Connects as the owner.
pub async fn connect(owner_url: &str) -> Result<PgConnection> {
    check_url(owner_url)?;
    PgConnection::connect(owner_url).await.context("cannot connect to the database")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_postgres_url_is_taken_and_no_url_is_shown() {
        for url in ["postgres://a:secret@h/db", "postgresql://h", "POSTGRES://a@h:5432/db?sslmode=require"] {
            assert!(check_url(url).is_ok(), "{url}");
        }
        for (url, why) in [
            ("mysql://a:secret@h/db", "does not begin with postgres://"),
            ("host=h password=secret", "does not begin with postgres://"),
            ("a:secret@h/db", "does not begin with postgres://"),
            ("postgres://a:secret@h:port/db", "cannot be read: invalid port number"),
            ("postgres://a:secret@h/db?sslmode=perhaps", "cannot be read: "),
        ] {
            let told = check_url(url).expect_err(url).to_string();
            assert!(told.contains(why) && !told.contains("secret"), "{told}");
        }
    }
}
