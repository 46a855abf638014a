//! Cold starts, compared with those of a minimal function, and the size of the deployment package.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use testing::emulator::event;
use testing::emulator::{Function, Sandbox};
use tokio::process::Command;

use super::product::{Events, allocate};
use super::sample::median;
use super::workload::Workload;
use xtask::process;
use xtask::python::Venv;
use xtask::workspace::remove;

/// Far more than the minimal function needs for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// From exec to the first poll for an event: Lambda's init phase.
    pub first_poll_ms: f64,
    /// From exec to the first answer.
    pub first_answer_ms: f64,
}

/// One entry per round.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ColdStarts {
    /// `allocate`: its init phase opens the database connection, its first answer is an allocation.
    pub product: Vec<Start>,
    /// The minimal function.
    pub bare: Vec<Start>,
}

impl ColdStarts {
    /// Starts the two functions alternately, `rounds` times each.
    pub async fn measure(function: &Function, events: &Events, bare: &Path, rounds: usize) -> Result<Self> {
        let bare = Function::new("bare", bare);
        let mut starts = Self { product: Vec::new(), bare: Vec::new() };
        for _ in 0..rounds {
            let sandbox = Sandbox::start(function).await?;
            let polled = sandbox.ready().await?;
            allocate(&sandbox, events, Workload::Spread).await?;
            starts.product.push(Start::of(polled, sandbox.age()));
            sandbox.kill().await?;

            let sandbox = Sandbox::start(&bare).await?;
            let polled = sandbox.ready().await?;
            let event = event::http("POST", "/", &[], b"{}").to_string();
            sandbox.invoke(event, TIMEOUT).await?;
            starts.bare.push(Start::of(polled, sandbox.age()));
            sandbox.kill().await?;
        }
        Ok(starts)
    }

    /// The medians of product, of bare, and of the ratio of the two in each round.
    pub fn medians(&self, which: impl Fn(&Start) -> f64) -> (f64, f64, f64) {
        let ratios = self.product.iter().zip(&self.bare).map(|(p, b)| which(p) / which(b));
        (median(self.product.iter().map(&which)), median(self.bare.iter().map(&which)), median(ratios))
    }
}

impl Start {
    fn of(first_poll: Duration, first_answer: Duration) -> Self {
        Self {
            first_poll_ms: first_poll.as_secs_f64() * 1e3,
            first_answer_ms: first_answer.as_secs_f64() * 1e3,
        }
    }
}

/// Size of the deployment package: the binary as `bootstrap` in a zip file, made by Python's zipfile.
pub async fn zipped_bytes(venv: &Venv, binary: &Path, dir: &Path) -> Result<u64> {
    let bootstrap = dir.join("bootstrap");
    let zip = dir.join("bootstrap.zip");
    std::fs::copy(binary, &bootstrap).with_context(|| format!("cannot copy {}", binary.display()))?;
    let mut command = Command::new(venv.program("python"));
    command.args(["-m", "zipfile", "-c"]).arg(&zip).arg(&bootstrap);
    process::succeed("cannot pack the binary", &mut command).await?;
    let bytes = std::fs::metadata(&zip)?.len();
    remove(&zip)?;
    remove(&bootstrap)?;
    Ok(bytes)
}
