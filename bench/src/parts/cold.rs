//! Cold starts, compared with those of a minimal function; memory of a warm sandbox; size of the deployment package.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use testing::emulator::event;
use testing::emulator::{Function, Sandbox};
use tokio::process::Command;

use crate::product::{Events, Product, allocate};
use crate::report::{Measured, Target};
use crate::sample::median;
use crate::stage::Stage;
use crate::workload::Workload;
use xtask::process::{self, Step};
use xtask::python::Venv;
use xtask::workspace::remove;

/// Requests to the sandbox whose memory is measured.
const WARM_REQUESTS: usize = 1_000;
/// Far more than the minimal function needs for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

pub async fn measure(stage: &Stage<'_>) -> Result<Measured> {
    let [product, bare] = stage.build(["allocate", "bare"]).await?;
    let database = stage.seeded_database("cold").await?;
    let step = Step::begin("cold starts");
    let events = Events::new()?;
    let function = events.function(&product, database.app_url(database.port));
    let starts = ColdStarts::measure(&function, &events, &bare, if stage.quick { 5 } else { 20 }).await?;
    let sandbox = Product::start(&function, &events, 1).await?;
    sandbox.send(Workload::Spread, WARM_REQUESTS).await?;
    // On Linux only.
    let peak_memory_kib = sandbox.peak_memory_kib().ok();
    sandbox.end().await?;
    let zipped_bytes = zipped_bytes(stage.venv, &product, &stage.dir).await?;
    step.done();

    let (poll, bare_poll, times_poll) = starts.medians(|s| s.first_poll_ms);
    let (answer, bare_answer, times_answer) = starts.medians(|s| s.first_answer_ms);
    let mut targets = vec![
        Target::at_most(
            "cold start to first poll (with the connection) over a bare one's",
            times_poll,
            "×",
            1.5,
        ),
        Target::at_most(
            "zip (cargo build --release, stripped; deflated by Python's zipfile)",
            zipped_bytes as f64 / 1e6,
            "MB",
            6.0,
        ),
    ];
    targets.extend(
        peak_memory_kib
            .map(|kib| Target::at_most("peak memory of a sandbox", kib as f64 / 1024.0, "MB", 40.0)),
    );
    Ok(Measured {
        table: format!(
            "exec to first poll: {poll:.1} ms, bare function {bare_poll:.1} ms; to first answer: {answer:.1} ms, bare \
             {bare_answer:.1} ms ({times_answer:.2} ×)\n"
        ),
        json: json!({"starts": starts, "peakMemoryKib": peak_memory_kib, "zippedBytes": zipped_bytes}),
        targets,
    })
}

#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct Start {
    /// From exec to the first poll for an event: Lambda's init phase.
    first_poll_ms: f64,
    /// From exec to the first answer.
    first_answer_ms: f64,
}

/// One entry per round.
#[derive(Clone, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct ColdStarts {
    /// `allocate`: its init phase opens the database connection, its first answer is an allocation.
    product: Vec<Start>,
    /// The minimal function.
    bare: Vec<Start>,
}

impl ColdStarts {
    /// Starts the two functions alternately, `rounds` times each.
    async fn measure(function: &Function, events: &Events, bare: &Path, rounds: usize) -> Result<Self> {
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
    fn medians(&self, which: impl Fn(&Start) -> f64) -> (f64, f64, f64) {
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
async fn zipped_bytes(venv: &Venv, binary: &Path, dir: &Path) -> Result<u64> {
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
