//! An embedded PostgreSQL, from the wheel in `.local/venv`, listening on loopback only.
//!
//! Copes with what a hard-killed run leaves: a server that still runs is stopped, a stale `postmaster.pid` removed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::process;
use crate::python::Venv;
use crate::workspace::{remove, write_private};

/// Of the wheel in requirements.txt; a data folder of another major version cannot be opened.
const MAJOR: &str = "18";
/// Orphans of a killed server hold its shared memory until they notice, within seconds.
const ORPHANS_END_WITHIN: Duration = Duration::from_secs(15);

/// One data folder and the programs to run it.
pub struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    log: PathBuf,
    /// PostgreSQL refuses to run as root: in a user namespace of its own it sees itself as nobody.
    as_root: bool,
}

/// How a server checks who connects, and how careful it is with what it is given.
pub enum Purpose<'a> {
    /// Passwords (that of the superuser `postgres` is given), everything as in production.
    Development(&'a str),
    /// No passwords and no fsync: gone after the run.
    Test,
}

impl Cluster {
    /// The cluster in `data`; its log stands beside it as `<data>.log`.
    ///
    /// # Errors
    /// When this machine cannot run PostgreSQL as this user, with what to do about it.
    pub async fn at(venv: &Venv, data: PathBuf) -> Result<Self> {
        let as_root = nix::unistd::geteuid().is_root();
        if as_root
            && !process::output(Command::new("unshare").args(["-U", "true"]))
                .await
                .is_ok_and(|o| o.status.success())
        {
            bail!(
                "PostgreSQL refuses to run as root, and `unshare -U` (a user namespace, which would do) fails here: run \
                 this as an ordinary user, or allow user namespaces (Debian: sysctl kernel.unprivileged_userns_clone=1; \
                 in a container: without the seccomp profile that forbids them)"
            );
        }
        Ok(Self { programs: venv.postgres_programs()?, log: data.with_extension("log"), data, as_root })
    }

    /// Whether the data folder has to be made first. Its state is said in one sentence when it can be neither used
    /// nor made.
    ///
    /// # Errors
    /// When something other than a data folder of this PostgreSQL stands there.
    pub fn is_new(data: &Path) -> Result<bool> {
        if std::fs::read_dir(data).map_or(true, |mut entries| entries.next().is_none()) && !data.is_file() {
            return Ok(true);
        }
        let problem = match std::fs::read_to_string(data.join("PG_VERSION")) {
            Ok(version) if version.trim() == MAJOR => return Ok(false),
            Ok(version) => format!("is of PostgreSQL {:?}, not {MAJOR}", version.trim()),
            Err(_) => "is no PostgreSQL data folder (its PG_VERSION cannot be read)".to_owned(),
        };
        bail!("{} {problem}: `cargo xtask dev --fresh` starts over with an empty database", data.display())
    }

    /// Makes the data folder, whole or not at all.
    ///
    /// # Errors
    /// initdb's last words.
    pub async fn init(&self, purpose: &Purpose<'_>) -> Result<()> {
        let part = self.data.with_extension("part");
        remove(&part)?;
        let mut command = self.program("initdb");
        // One collation on every machine; the log in English.
        command.args([
            "-U",
            "postgres",
            "-E",
            "UTF8",
            "--locale-provider=builtin",
            "--builtin-locale=C.UTF-8",
        ]);
        command.args(["--locale=C", "-D"]).arg(&part);
        let password_file = self.data.with_extension("password");
        match purpose {
            Purpose::Development(password) => {
                write_private(&password_file, password)?;
                command.args(["-A", "scram-sha-256", "--pwfile"]).arg(&password_file);
            }
            Purpose::Test => {
                command.args(["-A", "trust", "--no-sync"]);
            }
        }
        let made = process::succeed("initdb failed", &mut command).await;
        remove(&password_file)?;
        made?;
        remove(&self.data)?;
        std::fs::rename(&part, &self.data).with_context(|| format!("cannot make {}", self.data.display()))
    }

    /// Starts the server on 127.0.0.1; returns once it takes connections.
    ///
    /// # Errors
    /// The server's last words.
    pub async fn start(&self, port: u16, purpose: &Purpose<'_>) -> Result<()> {
        let settings = match purpose {
            Purpose::Development(_) => "-c max_connections=200",
            Purpose::Test => "-c max_connections=300 -c fsync=off -c full_page_writes=off",
        };
        let options =
            format!("-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories='' {settings}");
        let begun = Instant::now();
        loop {
            self.stop_leftover().await?;
            remove(&self.log)?;
            let mut command = self.pg_ctl();
            command.arg("-l").arg(&self.log).args(["-w", "-t", "120", "-o", &options, "start"]);
            if process::output(&mut command).await?.status.success() {
                return Ok(());
            }
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            if !said.contains("pre-existing shared memory block") || begun.elapsed() > ORPHANS_END_WITHIN {
                bail!(
                    "PostgreSQL does not start on {} ({}; more in {}): if its files are damaged, `cargo xtask dev --fresh` \
                     starts over with an empty database",
                    self.data.display(),
                    reason(&said),
                    self.log.display()
                );
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Ends all sessions and stops the server; nothing to do where none runs.
    ///
    /// # Errors
    /// When it does not stop in half a minute.
    pub async fn stop(&self) -> Result<()> {
        if self.server_pid().await.is_none() {
            return Ok(());
        }
        let mut command = self.pg_ctl();
        command.args(["-m", "fast", "-w", "-t", "30", "stop"]);
        if process::output(&mut command).await?.status.success() {
            return Ok(());
        }
        let mut command = self.pg_ctl();
        command.args(["-m", "immediate", "-w", "-t", "30", "stop"]);
        process::succeed("PostgreSQL does not stop", &mut command).await.map(|_| ())
    }

    /// The server's process id, where one runs on this data folder.
    pub async fn server_pid(&self) -> Option<i32> {
        let file = std::fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        let pid = file.lines().next()?.trim().parse().ok()?;
        // The id may have been given to another program since.
        let command = process::command_line(pid).await?;
        (command.contains("postgres") && command.contains(&*self.data.to_string_lossy())).then_some(pid)
    }

    async fn stop_leftover(&self) -> Result<()> {
        self.stop().await?;
        remove(&self.data.join("postmaster.pid"))
    }

    fn pg_ctl(&self) -> Command {
        let mut command = self.program("pg_ctl");
        command.arg("-D").arg(&self.data);
        command
    }

    fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let mut command = match self.as_root {
            true => Command::new("unshare"),
            false => Command::new(&path),
        };
        if self.as_root {
            command.arg("-U").arg(&path);
        }
        command.env("LC_ALL", "C");
        command
    }
}

/// What a server that did not start says about it, on one line.
fn reason(log: &str) -> String {
    let fatal =
        log.lines().find_map(|line| line.split_once("FATAL: ").or_else(|| line.split_once("PANIC: ")));
    match fatal {
        Some((_, reason)) => reason.trim().to_owned(),
        None => log.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_the_fatal_line_or_else_all_that_was_said() {
        let log = "2026-11-30 UTC [7] LOG:  starting\n2026-11-30 UTC [7] FATAL:  lock file is in the way\nHINT: x\n";
        assert_eq!(reason(log), "lock file is in the way");
        assert_eq!(reason("postgres: no\n\tsuch file\n"), "postgres: no such file");
    }

    #[test]
    fn a_folder_that_is_no_data_folder_is_refused_with_what_to_do() {
        let dir = std::env::temp_dir().join(format!("holdfast-{}", uuid::Uuid::new_v4()));
        assert!(Cluster::is_new(&dir).unwrap());
        std::fs::create_dir(&dir).unwrap();
        assert!(Cluster::is_new(&dir).unwrap());
        std::fs::write(dir.join("base"), "").unwrap();
        let refused = Cluster::is_new(&dir).unwrap_err().to_string();
        assert!(refused.contains("PG_VERSION") && refused.contains("--fresh"), "{refused}");
        std::fs::write(dir.join("PG_VERSION"), "15\n").unwrap();
        assert!(Cluster::is_new(&dir).unwrap_err().to_string().contains("of PostgreSQL \"15\""));
        std::fs::write(dir.join("PG_VERSION"), format!("{MAJOR}\n")).unwrap();
        assert!(!Cluster::is_new(&dir).unwrap());
        std::fs::remove_dir_all(dir).unwrap();
    }
}
