//! Statements sent by pgbench, straight to the database.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::database::Database;
use super::sample::Sample;
use super::workload::TENANT;
use xtask::process;
use xtask::python::Venv;
use xtask::workspace::remove;

/// Added to pgbench's run time for connecting, which is part of it.
const CONNECT_TIME: Duration = Duration::from_millis(750);
/// More threads of pgbench would take CPU time from the server that they measure.
const MAX_THREADS: usize = 2;

pub struct Pgbench {
    program: PathBuf,
    /// Holds pgbench's scripts and logs.
    dir: PathBuf,
}

/// A script, and how it is run.
pub struct Run<'a> {
    pub script: &'a str,
    /// The server's port, or a proxy's before it.
    pub port: u16,
    pub clients: usize,
    /// Whether its one statement is planned once in each session; else it is sent as text, as the functions do.
    pub prepared: bool,
    /// Whether a commit waits until it is on disk, as in production; without, the CPU decides.
    pub durable: bool,
}

impl Pgbench {
    pub fn new(venv: &Venv, dir: PathBuf) -> Result<Self> {
        Ok(Self { program: venv.postgres_programs()?.join("pgbench"), dir })
    }

    /// Runs with new connections, and counts what ended in the last part of the time: during the warm-up the sessions compile
    /// and plan, which a sandbox's session has done before.
    pub async fn measure(
        &self,
        database: &Database,
        run: &Run<'_>,
        (warm_up, counted): (Duration, Duration),
    ) -> Result<Sample> {
        let seconds = (warm_up + counted + CONNECT_TIME).as_secs_f64().ceil();
        let mut command = self.command(database, run)?;
        command.args(["-T", &seconds.to_string(), "-l", "--log-prefix"]).arg(self.dir.join("log"));
        process::succeed("pgbench failed", &mut command).await?;
        let calls = self.take_logs()?;
        // All clients are busy until the end, so the last part of the run is counted.
        let ends = calls.iter().map(|call| call.ended_us);
        let until = ends.clone().max().context("pgbench made no call")?;
        let from = until - u64::try_from(counted.as_micros())?;
        ensure!(
            ends.min().is_some_and(|first| first < from),
            "pgbench was busy for less than the measurement"
        );
        let latencies_us = calls
            .iter()
            .filter(|call| (from..until).contains(&call.ended_us))
            .map(|call| call.latency_us)
            .collect();
        Ok(Sample::of(latencies_us, counted))
    }

    /// Runs the script `count` times in each client.
    pub async fn repeat(&self, database: &Database, run: &Run<'_>, count: usize) -> Result<()> {
        let mut command = self.command(database, run)?;
        command.args(["-t", &count.to_string()]);
        process::succeed("pgbench failed", &mut command).await?;
        Ok(())
    }

    fn command(&self, database: &Database, run: &Run<'_>) -> Result<Command> {
        let script = self.dir.join("script.sql");
        std::fs::write(&script, run.script)?;
        let mut command = Command::new(&self.program);
        command
            .args([
                "-n",
                "-M",
                if run.prepared { "prepared" } else { "simple" },
                "-h",
                "127.0.0.1",
                "-U",
                "holdfast_app",
            ])
            .args(["-p", &run.port.to_string()])
            .args(["-c", &run.clients.to_string(), "-j", &run.clients.min(MAX_THREADS).to_string()])
            .arg("-f")
            .arg(script)
            .arg(&database.name)
            .env("PGPASSWORD", &database.app_password)
            .env("PGSSLMODE", "disable")
            .env("PGGSSENCMODE", "disable")
            // The floor sets no tenant.
            .env(
                "PGOPTIONS",
                format!(
                    "-c app.tenant_id={TENANT} -c synchronous_commit={}",
                    if run.durable { "on" } else { "off" }
                ),
            );
        Ok(command)
    }

    /// Reads and removes the logs of the last run, one file per thread.
    fn take_logs(&self) -> Result<Vec<LoggedCall>> {
        let mut calls = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log.")) {
                for line in std::fs::read_to_string(&path)?.lines() {
                    calls.push(LoggedCall::read(line).with_context(|| format!("pgbench logged {line:?}"))?);
                }
                remove(&path)?;
            }
        }
        Ok(calls)
    }
}

/// Of a line of pgbench's log: `client transaction latency_us script epoch_secs epoch_us`.
struct LoggedCall {
    ended_us: u64,
    latency_us: u64,
}

impl LoggedCall {
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split(' ').map(str::parse::<u64>);
        let latency_us = fields.nth(2)?.ok()?;
        let secs = fields.nth(1)?.ok()?;
        let micros = fields.next()?.ok()?;
        Some(Self { ended_us: secs * 1_000_000 + micros, latency_us })
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    #[test]
    fn a_logged_call_is_read() {
        let call = LoggedCall::read("3 17 1234 0 1700000000 250").unwrap();
        assert_eq!((call.latency_us, call.ended_us), (1234, 1_700_000_000_000_250));
        assert!(LoggedCall::read("3 17 failed 0 1700000000 250").is_none());
    }
}
