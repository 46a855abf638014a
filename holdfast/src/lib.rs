//! The code of the operator's program `holdfast`: migrates a database and sets up tenants. `cargo xtask` and the test
//! harness use it too.

pub mod admin;
pub mod database;
pub mod master_data;
pub mod migrate;
pub mod secrets;

use std::error::Error;

use sqlx::error::DatabaseError;

/// An error and its causes on one line, without causes that the text before them already contains.
pub fn one_line(error: &anyhow::Error) -> String {
    error.chain().map(own_words).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        before if before.contains(&cause) => text,
        _ => format!("{text}: {cause}"),
    })
}

/// What an error says itself; its causes come after it. Of an error of the database only the server's message: sqlx adds a
/// number of a line of the server's own source, which an operator would look for in a file of theirs.
fn own_words(error: &(dyn Error + 'static)) -> String {
    if let Some(sqlx::Error::Database(refused)) = error.downcast_ref() {
        return refused.message().to_owned();
    }
    if let Some(refused) = error.downcast_ref::<Box<dyn DatabaseError>>() {
        return refused.message().to_owned();
    }
    match error.downcast_ref() {
        Some(sqlx::migrate::MigrateError::Execute(_)) => "the migrations cannot be applied".to_owned(),
        Some(sqlx::migrate::MigrateError::ExecuteMigration(_, number)) => {
            format!("migration {number} cannot be applied")
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use anyhow::{Context, anyhow};

    #[test]
    fn a_cause_appears_once() {
        let error = anyhow!("no route").context("cannot connect: no route").context("migrating");
        assert_eq!(super::one_line(&error), "migrating: cannot connect: no route");
        let error = Err::<(), _>(anyhow!("disk full")).context("cannot write").unwrap_err();
        assert_eq!(super::one_line(&error), "cannot write: disk full");
    }
}
