//! A PostgreSQL server from the wheel in `.local/venv`, which listens on loopback only.
//!
//! After a run that was killed, its server is stopped and its stale `postmaster.pid` removed before the next start.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::process;
use crate::python::Venv;
use crate::workspace::{remove, write_private};

/// Major version of the wheel in requirements.txt; a data folder of another one cannot be opened.
const MAJOR: &str = "18";
/// Child processes of a killed server hold its shared memory until they notice, which takes seconds.
const ORPHANS_END_WITHIN: Duration = Duration::from_secs(15);
const START_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// pg_ctl's limits in seconds: a start may have to replay the write-ahead log of a killed server.
const START_SECONDS: &str = "120";
const STOP_SECONDS: &str = "30";
const REASON_CHARS: usize = 300;

/// One data folder and the programs to run it.
pub struct Cluster {
    programs: PathBuf,
    data: PathBuf,
    log: PathBuf,
    /// PostgreSQL refuses to run as root, so root runs it in a user namespace, where it appears as `nobody`.
    as_root: bool,
}

/// Decides about authentication and durability.
pub enum Purpose<'a> {
    /// As in production, with this password for the superuser `postgres`.
    Development(&'a str),
    /// No passwords and no fsync: the data are removed after the run.
    Test,
}

impl Cluster {
    /// The cluster in `data`, with its log in `<data>.log`. Fails when this user cannot run PostgreSQL here, and says what
    /// to do about it.
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

    /// Whether the data folder has yet to be made. Fails when something else than a data folder of this major version is
    /// there.
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

    /// Makes the data folder, completely or not at all.
    pub async fn init(&self, purpose: &Purpose<'_>) -> Result<()> {
        let part = self.data.with_extension("part");
        remove(&part)?;
        let mut command = self.program("initdb");
        // The same collation and an English log on every machine.
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

    /// Starts the server on 127.0.0.1 and waits until it accepts connections.
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
            command.arg("-l").arg(&self.log).args(["-w", "-t", START_SECONDS, "-o", &options, "start"]);
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
            tokio::time::sleep(START_RETRY_PAUSE).await;
        }
    }

    /// Ends all sessions and stops the server, if one runs.
    pub async fn stop(&self) -> Result<()> {
        if self.server_pid().await.is_none() {
            return Ok(());
        }
        let mut command = self.pg_ctl();
        command.args(["-m", "fast", "-w", "-t", STOP_SECONDS, "stop"]);
        if process::output(&mut command).await?.status.success() {
            return Ok(());
        }
        self.crash().await
    }

    /// Ends the server as a crash of its machine would, without a checkpoint.
    pub async fn crash(&self) -> Result<()> {
        let mut command = self.pg_ctl();
        command.args(["-m", "immediate", "-w", "-t", STOP_SECONDS, "stop"]);
        process::succeed("PostgreSQL does not stop", &mut command).await.map(|_| ())
    }

    /// The process id of the server that runs on this data folder.
    pub async fn server_pid(&self) -> Option<i32> {
        let file = std::fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        let pid = file.lines().next()?.trim().parse().ok()?;
        // The process id may belong to another program by now.
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

/// Why the server did not start, on one line, from its log.
fn reason(log: &str) -> String {
    let fatal =
        log.lines().find_map(|line| line.split_once("FATAL: ").or_else(|| line.split_once("PANIC: ")));
    match fatal {
        Some((_, reason)) => reason.trim().to_owned(),
        None => log.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(REASON_CHARS).collect(),
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
