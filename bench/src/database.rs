//! The bench's own PostgreSQL: a fresh data folder, everything as in production (fsync, synchronous_commit, passwords),
//! seeded set-wise, removed at the end.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use holdfast::migrate::{RolePasswords, migrate};
use sqlx::{Connection, PgConnection};

use holdfast::secrets::random_hex;
use xtask::ports::any_free;
use xtask::postgres::{Cluster, Purpose};
use xtask::process::Step;
use xtask::python::Venv;
use xtask::workspace::{Workspace, remove};

/// A cluster that runs, and its data folder.
pub struct Running {
    cluster: Cluster,
    data: PathBuf,
}

impl Running {
    /// Stops it and removes all of it.
    ///
    /// # Errors
    /// When it does not stop or cannot be removed.
    pub async fn end(self) -> Result<()> {
        self.cluster.stop().await?;
        remove(&self.data.with_extension("part"))?;
        remove(&self.data.with_extension("log"))?;
        remove(&self.data)
    }
}

/// How to reach the seeded database.
pub struct Database {
    /// On 127.0.0.1.
    pub port: u16,
    /// The endpoint role's.
    pub app_password: String,
    owner_url: String,
}

impl Database {
    /// Makes and seeds it; `running` is told at once, so that it is stopped whatever happens next.
    ///
    /// # Errors
    /// The step that failed.
    pub async fn make(workspace: &Workspace, venv: &Venv, running: &mut Option<Running>) -> Result<Self> {
        let step = Step::begin("making a database for the bench");
        let data = workspace.local("postgres-bench");
        // What a killed run left.
        let leftover = Running { cluster: Cluster::at(venv, data.clone()).await?, data: data.clone() };
        leftover.end().await?;
        let cluster = Cluster::at(venv, data.clone()).await?;
        let running = running.insert(Running { cluster, data });
        let password = random_hex();
        let purpose = Purpose::Development(&password);
        running.cluster.init(&purpose).await?;
        let port = any_free()?;
        running.cluster.start(port, &purpose).await?;

        let app_password = random_hex();
        let owner_url = format!("postgres://postgres:{password}@127.0.0.1:{port}/postgres?sslmode=disable");
        let passwords = RolePasswords { app: Some(app_password.clone()), worker: None };
        migrate(&owner_url, Some(passwords)).await?;
        let database = Self { port, app_password, owner_url };
        let mut owner = database.owner().await?;
        sqlx::raw_sql(include_str!("../sql/seed.sql"))
            .execute(&mut owner)
            .await
            .context("bench-sql/seed.sql")?;
        sqlx::raw_sql("vacuum analyze").execute(&mut owner).await?;
        owner.close().await?;
        step.done();
        Ok(database)
    }

    /// The endpoint role's address through `port`: the server's own, or a proxy's before it.
    pub fn app_url(&self, port: u16) -> String {
        // sslmode: loopback, and the proxy reads along.
        format!("postgres://holdfast_app:{}@127.0.0.1:{port}/postgres?sslmode=disable", self.app_password)
    }

    /// Writes out what earlier measurements left dirty, so that none pays for another.
    ///
    /// # Errors
    /// The statement's.
    pub async fn checkpoint(&self) -> Result<()> {
        let mut owner = self.owner().await?;
        sqlx::raw_sql("checkpoint").execute(&mut owner).await?;
        Ok(owner.close().await?)
    }

    /// Holds what was measured to what is in the tables: nothing was refused, every position fits its ledger.
    ///
    /// # Errors
    /// What does not fit.
    pub async fn check(&self) -> Result<()> {
        let mut owner = self.owner().await?;
        let (refused, unfinished, wrong): (i64, i64, i64) = sqlx::query_as(
            "select (select count(*) from idempotency_key where response_status <> 200),
                    (select count(*) from bench.textbook_key where state <> 'done'),
                    (select count(*) from position_audit) + (select count(*) from order_line_audit)",
        )
        .fetch_one(&mut owner)
        .await?;
        owner.close().await?;
        ensure!(
            refused == 0 && wrong == 0 && unfinished == 0,
            "the figures are void: {refused} requests were refused, {unfinished} keys of the textbook are unfinished, \
             {wrong} positions or lines differ from their ledgers"
        );
        Ok(())
    }

    async fn owner(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.owner_url).await?)
    }
}
