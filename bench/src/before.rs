//! The database as an earlier version of the project made it, read from the repository's history.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::database::Database;
use xtask::process;

/// The version that this one is compared with: the last one with CHECKs for each column and rules in one query.
pub const REVISION: &str = "bc34338";

/// Applies that version's migrations to an empty database. Fails without the history, as in an exported copy.
pub async fn migrate(root: &Path, database: &Database) -> Result<()> {
    let listed = git(root, &["ls-tree", "-r", "--name-only", REVISION, "migrations"]).await?;
    let mut files: Vec<&str> = listed.lines().filter(|file| file.ends_with(".sql")).collect();
    files.sort_unstable();
    // The roles are the server's, and there already; functions come after the numbered files.
    let (functions, others): (Vec<&str>, Vec<&str>) =
        files.into_iter().partition(|file| file.starts_with("migrations/functions/"));
    let numbered: Vec<&str> =
        others.into_iter().filter(|file| !file.starts_with("migrations/roles/")).collect();
    ensure!(!numbered.is_empty() && !functions.is_empty(), "no migrations in {REVISION}");
    for file in numbered.into_iter().chain(functions) {
        let sql = git(root, &["show", &format!("{REVISION}:{file}")]).await?;
        database.run(&sql).await.with_context(|| format!("{file} of {REVISION}"))?;
    }
    Ok(())
}

async fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.current_dir(root).args(arguments);
    let output = process::output(&mut command).await.context("git")?;
    ensure!(
        output.status.success(),
        "the version before ({REVISION}) is read from the repository's history, and git says: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}
