//! `cargo xtask compat`: the release before on this release's SQL, as it runs during a canary and after a rollback.
//!
//! Checks the older commit out beside this one, migrates its tests' database with this release's migrations, and runs the old
//! tests of the functions and of their stories on it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use sqlx::{Connection, PgConnection};
use tokio::process::Command;

use xtask::ports::any_free;
use xtask::postgres::{Cluster, Purpose};
use xtask::process::{self, Group, Step};
use xtask::python::Venv;
use xtask::workspace::{Workspace, remove};

/// How the tests name the database that each of them clones (`testing/src/database.rs`).
const TEMPLATES: &str =
    "select datname from pg_database where datistemplate and datname like 'holdfast_template_%'";

#[derive(clap::Args)]
pub struct Args {
    /// The older commit or tag [default: the one before the newest numbered migration].
    #[arg(long, value_name = "COMMIT")]
    before: Option<String>,
    /// Run only the old tests whose names contain one of these.
    filter: Vec<String>,
}

/// Runs the old tests; fails if one of them does.
pub async fn run(args: Args) -> Result<()> {
    let workspace = Workspace::open()?;
    let commit = match args.before {
        Some(commit) => git(&workspace, &["rev-parse", "--verify", &format!("{commit}^{{commit}}")]).await?,
        None => before_newest_migration(&workspace).await?,
    };
    let old = check_out(&workspace, &commit).await?;
    let venv = Venv::tools(&workspace).await?;
    let data = workspace.local(&format!("test-postgres-{}", std::process::id()));
    let cluster = Cluster::at(&venv, data.clone()).await?;
    let outcome = on_server(&cluster, &workspace, &old, &args.filter).await;
    cluster.stop().await?;
    for path in [data.with_extension("part"), data.with_extension("log"), data] {
        remove(&path)?;
    }
    git(&workspace, &["worktree", "remove", "--force", &old.to_string_lossy()]).await?;
    outcome
}

async fn git(workspace: &Workspace, args: &[&str]) -> Result<String> {
    let mut git = Command::new("git");
    git.args(args).current_dir(workspace.root());
    let said = process::succeed(&format!("git {} failed", args[0]), &mut git).await?;
    Ok(said.trim().to_owned())
}

/// The parent of the commit that added the newest of `migrations/<number>_<words>.sql`.
async fn before_newest_migration(workspace: &Workspace) -> Result<String> {
    let mut files: Vec<String> = std::fs::read_dir(workspace.root().join("migrations"))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".sql"))
        .collect();
    files.sort_unstable();
    let newest = format!("migrations/{}", files.last().context("there is no migration")?);
    let added = git(workspace, &["log", "-1", "--diff-filter=A", "--format=%H", "--", &newest]).await?;
    if added.is_empty() {
        bail!("{newest} is not committed yet");
    }
    git(workspace, &["rev-parse", "--verify", &format!("{added}^")]).await
}

async fn check_out(workspace: &Workspace, commit: &str) -> Result<PathBuf> {
    let old = workspace.local("previous");
    // A run that was killed has left one.
    let _ = git(workspace, &["worktree", "remove", "--force", &old.to_string_lossy()]).await;
    remove(&old)?;
    git(workspace, &["worktree", "add", "--detach", &old.to_string_lossy(), commit]).await?;
    println!("✓ the older code is {}", git(workspace, &["log", "-1", "--format=%h %s", commit]).await?);
    Ok(old)
}

async fn on_server(cluster: &Cluster, workspace: &Workspace, old: &Path, filter: &[String]) -> Result<()> {
    cluster.init(&Purpose::Test).await?;
    let port = any_free()?;
    cluster.start(port, &Purpose::Test).await?;
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let target = workspace.local("previous-target");
    let cargo = |args: &[&str]| {
        let mut cargo = process::cargo();
        cargo
            .arg("test")
            .args(args)
            .current_dir(old)
            .env("DATABASE_URL", &url)
            .env("CARGO_TARGET_DIR", &target);
        cargo
    };
    // All packages, since with some selected cargo would compile them with other features.
    let mut tests = workspace.beside(old.to_owned()).database_tests()?;
    // The tests of migrating: an older release refuses to migrate a newer database.
    tests.remove("migrate");
    let tests: Vec<&str> = tests.iter().flat_map(|name| ["--test", name]).collect();
    // Any test with a database makes the template, with the old migrations.
    let first = [&["--workspace", "--quiet"], tests.as_slice(), &["--", "give_back"]].concat();
    if !Group::spawn(&mut cargo(&first))?.wait().await?.success() {
        bail!("the older code's tests do not run (see above)");
    }
    migrate_templates(port).await?;
    let mut args =
        [&["--workspace", "--no-fail-fast"], tests.as_slice(), &["--", "--skip", "migrations::"]].concat();
    args.extend(filter.iter().map(String::as_str));
    if Group::spawn(&mut cargo(&args))?.wait().await?.success() {
        println!("✓ the older functions pass their tests on this release's SQL");
        Ok(())
    } else {
        bail!(
            "the older functions fail on this release's SQL (see above): it would break a canary and a rollback"
        )
    }
}

async fn migrate_templates(port: u16) -> Result<()> {
    let step = Step::begin("migrating the older code's database with this release's migrations");
    let url = |database: &str| format!("postgres://postgres@127.0.0.1:{port}/{database}");
    let mut server = PgConnection::connect(&url("postgres")).await?;
    let names: Vec<String> = sqlx::query_scalar(TEMPLATES).fetch_all(&mut server).await?;
    if names.is_empty() {
        bail!("the older code's tests made no template database");
    }
    for name in names {
        let migrated = holdfast::migrate::migrate(&url(&name), None).await?;
        if migrated.from == migrated.to {
            println!("! both releases have the same numbered migrations; only the functions differ");
        }
    }
    server.close().await?;
    step.done();
    Ok(())
}
