//! What every part of the bench stands on: the tools, a scratch folder, release binaries, and databases of its own on the
//! bench's server.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::before;
use super::database::{Database, Server};
use xtask::process::{self, Group, Step};
use xtask::python::Venv;
use xtask::workspace::{Workspace, remove};

pub struct Stage<'a> {
    pub workspace: &'a Workspace,
    pub venv: &'a Venv,
    /// Whether to measure for a short time only; such figures are not to be quoted.
    pub quick: bool,
    /// A scratch folder, removed at the end of the run.
    pub dir: PathBuf,
    server: &'a Server,
}

impl<'a> Stage<'a> {
    /// Makes the scratch folder anew.
    pub fn new(workspace: &'a Workspace, venv: &'a Venv, quick: bool, server: &'a Server) -> Result<Self> {
        let dir = workspace.local("bench");
        remove(&dir)?;
        std::fs::create_dir_all(&dir)?;
        Ok(Self { workspace, venv, quick, dir, server })
    }

    /// A new migrated database of this name, without rows. It ends with the run.
    pub async fn database(&self, name: &str) -> Result<Database> {
        let step = Step::begin(format!("making the database {name}"));
        let database = self.server.database(name).await?;
        step.done();
        Ok(database)
    }

    /// A database of bench/sql/seed.sql, see there.
    pub async fn seeded_database(&self, name: &str) -> Result<Database> {
        let database = self.database(name).await?;
        database.run(include_str!("../sql/seed.sql")).await?;
        database.run("vacuum analyze").await?;
        Ok(database)
    }

    /// The same as the version before made it. The roles must be there: another database comes first.
    pub async fn seeded_before(&self, name: &str) -> Result<Database> {
        let step = Step::begin(format!("making the database {name}"));
        let database = self.server.empty_database(name).await?;
        before::migrate(self.workspace.root(), &database).await?;
        database.run(include_str!("../sql/seed.sql")).await?;
        database.run("vacuum analyze").await?;
        step.done();
        Ok(database)
    }

    /// CPU seconds of all of the server's processes so far, on Linux.
    pub async fn cpu_secs(&self) -> Result<f64> {
        self.server.cpu_secs().await
    }

    /// Release binaries of these packages of the workspace.
    pub async fn build<const N: usize>(&self, packages: [&str; N]) -> Result<[PathBuf; N]> {
        let step = Step::begin("building the release binaries (minutes the first time)");
        let mut cargo = process::cargo();
        cargo.current_dir(self.workspace.root()).args(["build", "--release", "--quiet"]);
        for package in packages {
            cargo.args(["-p", package]);
        }
        if !Group::spawn(&mut cargo)?.wait().await?.success() {
            bail!("the release build failed (see above)");
        }
        step.done();
        let target = std::env::var_os("CARGO_TARGET_DIR")
            .map_or_else(|| self.workspace.root().join("target"), PathBuf::from);
        Ok(packages.map(|package| target.join("release").join(package)))
    }
}
