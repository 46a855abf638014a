//! One database per test, cloned from a template database that is migrated once per version of the migrations.

use std::str::FromStr;

use sha2::{Digest, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection};
use tokio::sync::OnceCell;

use holdfast::migrate::{RolePasswords, all_files, migrate};
use shared::db::connection::Db;
use shared::idempotency::endpoint::Endpoint;
use shared::runtime::config::{DatabaseConfig, Pooler};

/// Password of both roles in tests; pgbouncer's user list (`xtask/src/test/pooler.rs`) holds it too.
const ROLE_PASSWORD: &str = "holdfast-test";
/// Advisory lock on the server, held while the template is made. An arbitrary number.
const TEMPLATE_LOCK: i64 = 7305;

/// A migrated database, which is dropped with this value.
pub struct TestDb {
    name: String,
    /// URL for the superuser.
    pub owner_url: String,
    /// URL for the HTTP functions' role.
    pub app_url: String,
    /// URL for the role of relay and reaper.
    pub worker_url: String,
}

fn server_url() -> String {
    std::env::var("DATABASE_URL").expect("DATABASE_URL is not set: run the tests through `cargo xtask test`")
}

fn with_database(url: &str, database: &str, role: Option<&str>) -> String {
    let mut url = reqwest::Url::parse(url).unwrap();
    url.set_path(database);
    if let Some(role) = role {
        url.set_username(role).unwrap();
        url.set_password(Some(ROLE_PASSWORD)).unwrap();
    }
    url.into()
}

/// `HOLDFAST_TEST_POOLER` is the `host:port` of a pooler in transaction mode: `cargo xtask test` runs the functions' tests
/// a second time behind it.
fn through_pooler(url: &str) -> DatabaseConfig {
    let direct = DatabaseConfig::direct(url.to_owned());
    match std::env::var("HOLDFAST_TEST_POOLER") {
        Ok(address) if !address.is_empty() => {
            let (host, port) = address.split_once(':').expect("HOLDFAST_TEST_POOLER is host:port");
            let mut url = reqwest::Url::parse(url).unwrap();
            url.set_host(Some(host)).unwrap();
            url.set_port(Some(port.parse().unwrap())).unwrap();
            DatabaseConfig { url: url.as_str().into(), pooler: Pooler::Transaction, ..direct }
        }
        _ => direct,
    }
}

async fn connect(url: &str) -> PgConnection {
    let options = PgConnectOptions::from_str(url).unwrap().disable_statement_logging();
    options.connect().await.unwrap_or_else(|error| panic!("no connection to the test server: {error}"))
}

async fn run(connection: &mut PgConnection, sql: String) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap();
}

/// The name of the template, which is made by the first test program that needs it; others wait for the lock.
async fn template() -> &'static str {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    TEMPLATE
        .get_or_init(|| async {
            let name = format!("holdfast_template_{}", migrations_hash());
            let mut server = connect(&server_url()).await;
            run(&mut server, format!("select pg_advisory_lock({TEMPLATE_LOCK})")).await;
            let ready: bool = sqlx::query_scalar(
                "select exists (select from pg_database where datname = $1 and datistemplate)",
            )
            .bind(&name)
            .fetch_one(&mut server)
            .await
            .unwrap();
            if !ready {
                run(&mut server, format!("drop database if exists {name}")).await;
                run(&mut server, format!("create database {name}")).await;
                let passwords =
                    RolePasswords { app: Some(ROLE_PASSWORD.into()), worker: Some(ROLE_PASSWORD.into()) };
                migrate(&with_database(&server_url(), &name, None), Some(passwords)).await.unwrap();
                run(&mut server, format!("alter database {name} is_template true")).await;
            }
            server.close().await.unwrap();
            name
        })
        .await
}

fn migrations_hash() -> String {
    let mut hash = Sha256::new();
    for (path, sql) in all_files() {
        hash.update(path);
        hash.update(sql);
    }
    hex::encode(&hash.finalize()[..6])
}

impl TestDb {
    /// Clones the template.
    pub async fn create() -> Self {
        let template = template().await;
        let name = format!("holdfast_test_{}", uuid::Uuid::new_v4().simple());
        let mut server = connect(&server_url()).await;
        run(&mut server, format!("create database {name} template {template}")).await;
        server.close().await.unwrap();
        let url = |role| with_database(&server_url(), &name, role);
        Self {
            owner_url: url(None),
            app_url: url(Some("holdfast_app")),
            worker_url: url(Some("holdfast_worker")),
            name,
        }
    }

    /// `holdfast_test_` and a random suffix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A connection as the superuser, directly to the server.
    pub async fn owner(&self) -> PgConnection {
        connect(&self.owner_url).await
    }

    /// A connection in the HTTP functions' role, directly to the server.
    pub async fn app(&self) -> PgConnection {
        connect(&self.app_url).await
    }

    /// The configuration of an HTTP function: directly to the server, or through the pooler under test.
    pub fn app_config(&self) -> DatabaseConfig {
        through_pooler(&self.app_url)
    }

    /// The environment of an HTTP function's binary, which then accepts [`super::token`].
    pub fn endpoint_env(&self) -> Vec<(&'static str, String)> {
        let database = self.app_config();
        let pooler = if database.pooler == Pooler::Transaction { "transaction" } else { "none" };
        vec![
            ("APP_DATABASE_URL", database.url.given().unwrap().into()),
            ("DATABASE_POOLER", pooler.into()),
            ("JWT_SECRET", super::JWT_SECRET.into()),
            ("JWT_ISSUER", super::ISSUER.into()),
            ("JWT_AUDIENCE", super::AUDIENCE.into()),
            ("JWT_TENANT_CLAIM", super::TENANT_CLAIM.into()),
            ("JWT_SCOPE_CLAIM", super::SCOPE_CLAIM.into()),
            ("SECRETS_KEYS", super::SECRETS_KEYS.into()),
        ]
    }

    /// Whether functions connect through a pooler in transaction mode.
    pub fn is_pooled(&self) -> bool {
        self.app_config().pooler == Pooler::Transaction
    }

    /// What one sandbox of an HTTP function holds: its own connection and caches.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint::new(&super::auth_config(), &self.app_config()).unwrap()
    }

    /// The connection of a relay or reaper.
    pub fn worker(&self) -> Db {
        Db::new(&through_pooler(&self.worker_url)).unwrap()
    }

    /// Queries one value as the owner.
    pub async fn scalar<T>(&self, sql: &'static str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        sqlx::query_scalar(sql).fetch_one(&mut self.owner().await).await.unwrap()
    }

    /// Queries one text as the owner.
    pub async fn text(&self, sql: impl Into<String>) -> String {
        sqlx::query_scalar(AssertSqlSafe(sql.into())).fetch_one(&mut self.owner().await).await.unwrap()
    }

    /// Runs statements as the owner.
    pub async fn execute(&self, sql: impl Into<String>) {
        run(&mut self.owner().await, sql.into()).await;
    }

    /// Asserts the invariants that always hold: positions and order lines agree with their ledgers, nothing is oversold,
    /// and the event sequence of every aggregate is 1, 2, 3 … without gaps or duplicates.
    pub async fn assert_consistent(&self) {
        let differing: i64 = self
            .scalar(
                "select (select count(*) from position_audit) + (select count(*) from order_line_audit)
                   + (select count(*) from exposed_line_audit)",
            )
            .await;
        assert_eq!(differing, 0, "positions or lines that differ from their ledgers");
        let oversold: i64 =
            self.scalar("select count(*) from sku_position where allocated > on_hand + on_order").await;
        assert_eq!(oversold, 0, "oversold positions");
        let gaps: i64 = self
            .scalar(
                "select count(*) from (select count(distinct sequence) as n, max(sequence) as last, min(sequence) as first,
                     count(distinct event_id) as events
                   from outbox group by tenant_id, aggregate_type, aggregate_id) s where first <> 1 or last <> n or events <> n",
            )
            .await;
        assert_eq!(gaps, 0, "aggregates whose sequence has a gap");
    }
}

impl TestDb {
    /// Ends the sessions of all functions, and asserts that no deadlock was found: a session reports its own when it ends.
    pub async fn assert_no_deadlock(&self) {
        let sessions =
            "from pg_stat_activity where datname = current_database() and usename like 'holdfast\\_%'";
        self.execute(format!("select pg_terminate_backend(pid) {sessions}")).await;
        self.until(&format!("not exists (select {sessions})")).await;
        let deadlocks = "select deadlocks from pg_stat_database where datname = current_database()";
        assert_eq!(self.scalar::<i64>(deadlocks).await, 0, "deadlocks");
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let (url, name) = (server_url(), self.name.clone());
        // In a runtime of its own: a drop inside the test's runtime must not block that.
        let dropper = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut server = connect(&url).await;
                let sql = format!("drop database if exists {name} with (force)");
                // Fails if the test has stopped the server; the whole server is removed after the run.
                let _ = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut server).await;
            });
        });
        let _ = dropper.join();
    }
}
