//! `cargo xtask migrate`.

use anyhow::{Context, Result};
use shared::migrate::{RolePasswords, migrate};

/// Migrates the database of `DATABASE_URL`; sets the roles' passwords where `HOLDFAST_APP_PASSWORD` and
/// `HOLDFAST_WORKER_PASSWORD` give them.
///
/// # Errors
/// A missing variable, or the step that failed.
pub async fn run() -> Result<()> {
    let url = std::env::var("DATABASE_URL")
        .context("DATABASE_URL is not set: it names the database and its owner, postgres://user:password@host/database")?;
    let given = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let passwords =
        RolePasswords { app: given("HOLDFAST_APP_PASSWORD"), worker: given("HOLDFAST_WORKER_PASSWORD") };
    let set: Vec<&str> = [("holdfast_app", &passwords.app), ("holdfast_worker", &passwords.worker)]
        .into_iter()
        .filter_map(|(role, password)| password.as_ref().map(|_| role))
        .collect();
    migrate(&url, Some(passwords.clone())).await?;
    match set.as_slice() {
        [] => println!("migrated; the roles' passwords stay as they are"),
        roles => println!("migrated; set the password of {}", roles.join(" and ")),
    }
    Ok(())
}
