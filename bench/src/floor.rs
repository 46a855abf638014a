//! The floor: pgbench sends the same statement as the function, over the simple protocol. No function can be faster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

use super::database::Database;
use super::sample::Sample;
use super::workload::Workload;
use xtask::process;
use xtask::python::Venv;
use xtask::workspace::remove;

/// Added to pgbench's run time for connecting, which is part of it.
const CONNECT_TIME: Duration = Duration::from_millis(750);
/// More threads of pgbench would take CPU time from the server that they measure.
const MAX_THREADS: usize = 2;

pub struct Floor {
    program: PathBuf,
    /// Holds pgbench's scripts and logs.
    dir: PathBuf,
}

impl Floor {
    /// Writes the scripts into `dir`.
    pub fn new(venv: &Venv, dir: PathBuf) -> Result<Self> {
        let program = venv.postgres_programs()?.join("pgbench");
        for workload in Workload::ALL {
            std::fs::write(script(&dir, workload), workload.pgbench_script())?;
        }
        Ok(Self { program, dir })
    }

    /// Runs pgbench with `clients` new connections through `port`. During the warm-up their sessions compile and plan the
    /// function's statements, which a sandbox's session has done before.
    pub async fn measure(
        &self,
        database: &Database,
        port: u16,
        clients: usize,
        workload: Workload,
        (warm_up, counted): (Duration, Duration),
    ) -> Result<Sample> {
        let log = self.dir.join("log");
        let seconds = (warm_up + counted + CONNECT_TIME).as_secs_f64().ceil();
        let mut command = Command::new(&self.program);
        command
            .args(["-n", "-M", "simple", "-h", "127.0.0.1", "-U", "holdfast_app"])
            .args(["-p", &port.to_string()])
            .args(["-c", &clients.to_string(), "-j", &clients.min(MAX_THREADS).to_string()])
            .args(["-T", &seconds.to_string(), "-l", "--log-prefix"])
            .arg(&log)
            .arg("-f")
            .arg(script(&self.dir, workload))
            .arg(&database.name)
            .env("PGPASSWORD", &database.app_password)
            .env("PGSSLMODE", "disable")
            .env("PGGSSENCMODE", "disable");
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

fn script(dir: &Path, workload: Workload) -> PathBuf {
    dir.join(format!("{workload:?}.sql"))
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
