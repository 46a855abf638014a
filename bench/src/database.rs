//! The bench's own PostgreSQL, with a new data folder and settings as in production (fsync, synchronous_commit, passwords);
//! removed at the end. Each part makes its databases on it.

use std::path::PathBuf;

use anyhow::{Context, Result};
use holdfast::migrate::{RolePasswords, migrate};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use holdfast::secrets::random_hex;
use xtask::ports::any_free;
use xtask::postgres::{Cluster, Purpose};
use xtask::python::Venv;
use xtask::workspace::{Workspace, remove};

pub struct Server {
    cluster: Cluster,
    data: PathBuf,
    port: u16,
    owner_password: String,
    app_password: String,
    worker_password: String,
}

impl Server {
    /// Prepares a server without a data folder; removes what a killed run left.
    pub async fn new(workspace: &Workspace, venv: &Venv) -> Result<Self> {
        let data = workspace.local("postgres-bench");
        let server = Self {
            cluster: Cluster::at(venv, data.clone()).await?,
            data,
            port: any_free()?,
            owner_password: random_hex(),
            app_password: random_hex(),
            worker_password: random_hex(),
        };
        server.clear().await?;
        Ok(server)
    }

    pub async fn start(&self) -> Result<()> {
        let purpose = Purpose::Development(&self.owner_password);
        self.cluster.init(&purpose).await?;
        self.cluster.start(self.port, &purpose).await
    }

    /// Stops the server, if it runs, and removes its files.
    pub async fn end(self) -> Result<()> {
        self.clear().await
    }

    async fn clear(&self) -> Result<()> {
        self.cluster.stop().await?;
        remove(&self.data.with_extension("part"))?;
        remove(&self.data.with_extension("log"))?;
        remove(&self.data)
    }

    /// Makes and migrates a database of this name.
    pub async fn database(&self, name: &str) -> Result<Database> {
        let database = self.empty_database(name).await?;
        let passwords = RolePasswords {
            app: Some(self.app_password.clone()),
            worker: Some(self.worker_password.clone()),
        };
        migrate(&database.owner_url(), Some(passwords)).await?;
        Ok(database)
    }

    /// Makes a database of this name, and the roles that log in to it.
    pub async fn empty_database(&self, name: &str) -> Result<Database> {
        let database = Database {
            port: self.port,
            name: name.to_owned(),
            owner_password: self.owner_password.clone(),
            app_password: self.app_password.clone(),
            worker_password: self.worker_password.clone(),
        };
        let postgres = Database { name: "postgres".into(), ..database.clone() };
        postgres.run(&format!(r#"create database "{name}""#)).await?;
        Ok(database)
    }
}

impl Server {
    /// CPU seconds of all its processes so far; of those that ended, as soon as the server has seen it. On Linux.
    pub async fn cpu_secs(&self) -> Result<f64> {
        let server = self.cluster.server_pid().await.context("the server does not run")?;
        let mut sum = 0;
        for entry in std::fs::read_dir("/proc")? {
            let Ok(stat) = std::fs::read_to_string(entry?.path().join("stat")) else { continue };
            // Behind the name, which may hold spaces: state, parent, …; utime, stime, cutime and cstime are the 12th to 15th.
            let Some((head, fields)) = stat.rsplit_once(')') else { continue };
            let fields: Vec<&str> = fields.split_whitespace().collect();
            let is_server = head.split(' ').next() == Some(&server.to_string());
            if is_server || fields.get(1) == Some(&&*server.to_string()) {
                let times = fields.iter().skip(11).take(if is_server { 4 } else { 2 });
                sum += times.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
            }
        }
        Ok(sum as f64 / TICKS_PER_SEC)
    }
}

/// Of the times in /proc on Linux, whatever its kernel's own clock.
const TICKS_PER_SEC: f64 = 100.0;

#[derive(Clone)]
pub struct Database {
    /// On 127.0.0.1.
    pub port: u16,
    pub name: String,
    /// Of `holdfast_app`.
    pub app_password: String,
    worker_password: String,
    owner_password: String,
}

impl Database {
    /// The URL for `holdfast_app` at `port`, the server's or a proxy's.
    pub fn app_url(&self, port: u16) -> String {
        self.url("holdfast_app", &self.app_password, port)
    }

    /// The URL for `holdfast_worker` at `port`, the server's or a proxy's.
    pub fn worker_url(&self, port: u16) -> String {
        self.url("holdfast_worker", &self.worker_password, port)
    }

    pub async fn owner(&self) -> Result<PgConnection> {
        Ok(PgConnection::connect(&self.owner_url()).await?)
    }

    /// Runs statements as the owner.
    pub async fn run(&self, sql: &str) -> Result<()> {
        let mut owner = self.owner().await?;
        let ran = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut owner).await;
        ran.with_context(|| format!("in the database {}", self.name))?;
        Ok(owner.close().await?)
    }

    fn owner_url(&self) -> String {
        self.url("postgres", &self.owner_password, self.port)
    }

    fn url(&self, user: &str, password: &str, port: u16) -> String {
        // No TLS, because the proxy must read the messages.
        format!("postgres://{user}:{password}@127.0.0.1:{port}/{}?sslmode=disable", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_its_own_url() {
        let database = Database {
            port: 1,
            name: "it".into(),
            owner_password: "o".into(),
            app_password: "a".into(),
            worker_password: "w".into(),
        };
        assert_eq!(database.app_url(2), "postgres://holdfast_app:a@127.0.0.1:2/it?sslmode=disable");
        assert_eq!(database.worker_url(2), "postgres://holdfast_worker:w@127.0.0.1:2/it?sslmode=disable");
        assert_eq!(database.owner_url(), "postgres://postgres:o@127.0.0.1:1/it?sslmode=disable");
    }
}
