//! A pgbouncer in transaction mode in front of the tests' server. All functions share two server connections, so a test
//! fails if a function relies on anything that outlives a transaction.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use reqwest::Url;
use tokio::process::Command;

use xtask::ports::any_free;
use xtask::process::{self, Group};
use xtask::workspace::{Workspace, remove, write_private};

/// Server connections for each role and database.
const POOL_SIZE: u32 = 2;
/// More than the tests open at once.
const MAX_CLIENTS: u32 = 1_000;
/// Idle server connections are closed after this many seconds, before they use up the server's limit: each test has a
/// database, and so a pool, of its own.
const SERVER_IDLE_SECONDS: u32 = 5;
/// Password of both roles in tests, as in `testing/src/database.rs`.
const ROLE_PASSWORD: &str = "holdfast-test";
/// Debian installs it in a folder that is not on an ordinary user's PATH.
const PROGRAMS: [&str; 2] = ["pgbouncer", "/usr/sbin/pgbouncer"];
const START_WITHIN: Duration = Duration::from_secs(10);
const START_CHECK_EVERY: Duration = Duration::from_millis(50);
const LOG_LINES: usize = 6;
const POSTGRES_PORT: u16 = 5432;

pub struct Pooler {
    _group: Group,
    folder: PathBuf,
    /// `host:port`.
    pub address: String,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in .local/ and does no harm.
        let _ = remove(&self.folder);
    }
}

impl Pooler {
    /// Starts pgbouncer in front of the server of `database_url`; `None` if it is not installed.
    pub async fn start(workspace: &Workspace, database_url: &str) -> Result<Option<Self>> {
        let Some(program) = installed().await else { return Ok(None) };
        let server = Url::parse(database_url).context("DATABASE_URL is no address")?;
        let host = server.host_str().context("DATABASE_URL names no host")?;
        let port = any_free()?;
        let folder = workspace.local(&format!("test-pooler-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let users = folder.join("users");
        write_private(
            &users,
            &["holdfast_app", "holdfast_worker"].map(|r| format!("\"{r}\" \"{ROLE_PASSWORD}\"\n")).concat(),
        )?;
        let settings = folder.join("pgbouncer.ini");
        write_private(
            &settings,
            &format!(
                "[databases]\n* = host={host} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
                 unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n\
                 default_pool_size = {POOL_SIZE}\nmax_client_conn = {MAX_CLIENTS}\n\
                 server_idle_timeout = {SERVER_IDLE_SECONDS}\nlogfile = {}\n",
                server.port().unwrap_or(POSTGRES_PORT),
                users.display(),
                folder.join("log").display(),
            ),
        )?;
        // Like PostgreSQL it refuses to run as root, so root runs it in a user namespace.
        let mut command = match nix::unistd::geteuid().is_root() {
            true => Command::new("unshare"),
            false => Command::new(program),
        };
        if nix::unistd::geteuid().is_root() {
            command.arg("-U").arg(program);
        }
        let group = Group::spawn(command.arg("-q").arg(&settings))?;
        let address = format!("127.0.0.1:{port}");
        let listening = async {
            while tokio::net::TcpStream::connect(&address).await.is_err() {
                tokio::time::sleep(START_CHECK_EVERY).await;
            }
        };
        if tokio::time::timeout(START_WITHIN, listening).await.is_err() {
            bail!(
                "pgbouncer does not start; its log ends with\n{}",
                process::tail(&folder.join("log"), LOG_LINES)
            );
        }
        Ok(Some(Self { _group: group, folder, address }))
    }
}

async fn installed() -> Option<&'static str> {
    for program in PROGRAMS {
        if process::output(Command::new(program).arg("--version")).await.is_ok_and(|o| o.status.success()) {
            return Some(program);
        }
    }
    None
}
