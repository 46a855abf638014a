//! A pgbouncer in transaction mode before the tests' server, where this machine has one: with two server connections for
//! all sandboxes, whatever outlives a transaction shows.

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
/// Password of both roles in tests; see `testing`.
const ROLE_PASSWORD: &str = "holdfast-test";
/// Debian keeps it where an ordinary user's PATH does not look.
const PROGRAMS: [&str; 2] = ["pgbouncer", "/usr/sbin/pgbouncer"];
/// Longest wait until it listens.
const START_WITHIN: Duration = Duration::from_secs(10);

/// A running pgbouncer; ends when dropped.
pub struct Pooler {
    _group: Group,
    folder: PathBuf,
    /// `host:port`.
    pub address: String,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // What stays behind lies in .local/ and is overwritten by the next run.
        let _ = remove(&self.folder);
    }
}

impl Pooler {
    /// Starts one before the server of `database_url`; none where pgbouncer is not installed.
    ///
    /// # Errors
    /// When it is installed and does not start.
    pub async fn before(workspace: &Workspace, database_url: &str) -> Result<Option<Self>> {
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
                 default_pool_size = {POOL_SIZE}\nmax_client_conn = 1000\nserver_idle_timeout = 5\nlogfile = {}\n",
                server.port().unwrap_or(5432),
                users.display(),
                folder.join("log").display(),
            ),
        )?;
        let mut command = Command::new("unshare");
        // Like PostgreSQL it refuses to run as root; in a user namespace of its own it sees itself as nobody.
        match nix::unistd::geteuid().is_root() {
            true => command.arg("-U").arg(program),
            false => {
                command = Command::new(program);
                &mut command
            }
        };
        command.arg("-q").arg(&settings);
        let group = Group::spawn(&mut command)?;
        let address = format!("127.0.0.1:{port}");
        let listening = async {
            while tokio::net::TcpStream::connect(&address).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if tokio::time::timeout(START_WITHIN, listening).await.is_err() {
            bail!("pgbouncer does not start; it says\n{}", process::tail(&folder.join("log"), 6));
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
