//! The bench's own PostgreSQL, with a new data folder and settings as in production (fsync, synchronous_commit, passwords);
//! removed at the end.

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

pub struct Server {
    cluster: Cluster,
    data: PathBuf,
}

impl Server {
    /// Stops the server, if it runs, and removes its files.
    pub async fn end(self) -> Result<()> {
        self.cluster.stop().await?;
        remove(&self.data.with_extension("part"))?;
        remove(&self.data.with_extension("log"))?;
        remove(&self.data)
    }
}

pub struct Database {
    /// On 127.0.0.1.
    pub port: u16,
    /// Of `holdfast_app`.
    pub app_password: String,
    owner_url: String,
}

impl Database {
    /// Makes and seeds the database. The server is stored in `server` before it is started, so that the caller ends it
    /// whatever happens next.
    pub async fn make(workspace: &Workspace, venv: &Venv, server: &mut Option<Server>) -> Result<Self> {
        let step = Step::begin("making a database for the bench");
        let data = workspace.local("postgres-bench");
        // The server of a run that was killed.
        let leftover = Server { cluster: Cluster::at(venv, data.clone()).await?, data: data.clone() };
        leftover.end().await?;
        let cluster = Cluster::at(venv, data.clone()).await?;
        let server = server.insert(Server { cluster, data });
        let password = random_hex();
        let purpose = Purpose::Development(&password);
        server.cluster.init(&purpose).await?;
        let port = any_free()?;
        server.cluster.start(port, &purpose).await?;

        let app_password = random_hex();
        let owner_url = format!("postgres://postgres:{password}@127.0.0.1:{port}/postgres?sslmode=disable");
        let passwords = RolePasswords { app: Some(app_password.clone()), worker: None };
        migrate(&owner_url, Some(passwords)).await?;
        let database = Self { port, app_password, owner_url };
        let mut owner = database.owner().await?;
        sqlx::raw_sql(include_str!("../sql/seed.sql"))
            .execute(&mut owner)
            .await
            .context("bench/sql/seed.sql")?;
        sqlx::raw_sql("vacuum analyze").execute(&mut owner).await?;
        owner.close().await?;
        step.done();
        Ok(database)
    }

    /// The URL for `holdfast_app` at `port`, the server's or a proxy's.
    pub fn app_url(&self, port: u16) -> String {
        // No TLS, because the proxy must read the messages.
        format!("postgres://holdfast_app:{}@127.0.0.1:{port}/postgres?sslmode=disable", self.app_password)
    }

    /// Writes dirty pages to disk, so that a measurement does not pay for those of the one before.
    pub async fn checkpoint(&self) -> Result<()> {
        let mut owner = self.owner().await?;
        sqlx::raw_sql("checkpoint").execute(&mut owner).await?;
        Ok(owner.close().await?)
    }

    /// Fails if any request was refused or left unfinished, or a position or line differs from its ledger.
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
