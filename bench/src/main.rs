//! `cargo xtask bench`: what an idempotent allocation costs, and whatever else must not become slower, as ratios within
//! one run. Each part stands by itself: `--only NAME` runs one.

mod before;
mod database;
mod link;
mod parts;
mod pgbench;
mod product;
mod report;
mod sample;
mod stage;
mod textbook;
mod wire;
mod workload;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};

use xtask::process::Stop;
use xtask::python::Venv;
use xtask::workspace::{Workspace, remove, try_lock};

use database::Server;
use parts::Part;
use report::Figures;
use stage::Stage;

/// The exit status of a shell command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Measure what the product costs beside its bounds; print ratios, write .local/bench.json.
#[derive(clap::Parser)]
#[command(name = "cargo xtask bench")]
pub struct Args {
    /// Measure for about a minute (after the build): few clients, short rounds.
    #[arg(long)]
    quick: bool,
    /// Run this part only (may be given several times) [default: all].
    #[arg(long, value_name = "NAME")]
    only: Vec<Part>,
}

/// A missed target is not a failure, since figures depend on the machine.
///
/// One thread serves all sandboxes and connections: all cores are busy, so threads that wake each other would slow down
/// what is measured.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    bench(Args::parse()).await.unwrap_or_else(|error| {
        eprintln!("error: {}", holdfast::one_line(&error));
        ExitCode::FAILURE
    })
}

async fn bench(args: Args) -> Result<ExitCode> {
    let workspace = Workspace::open()?;
    let Some(_lock) = try_lock(&workspace.local("bench.lock"))? else {
        bail!("another bench is running: two at once would measure each other");
    };
    let mut stop = Stop::listen()?;
    let mut server = None;
    let outcome = tokio::select! {
        outcome = measure(&workspace, &args, &mut server) => outcome.map(Some),
        () = stop.requested() => Ok(None),
    };
    if let Some(server) = server {
        server.end().await?;
    }
    remove(&workspace.local("bench"))?;
    let Some(figures) = outcome? else {
        eprintln!("interrupted");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let path = workspace.local("bench.json");
    std::fs::write(&path, serde_json::to_string_pretty(&figures.json())?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}\nwritten to .local/bench.json", figures.table());
    Ok(ExitCode::SUCCESS)
}

/// Stores the server in `server` before it is started, so that the caller ends it whatever happens next.
async fn measure(workspace: &Workspace, args: &Args, server: &mut Option<Server>) -> Result<Figures> {
    let venv = Venv::tools(workspace).await?;
    let server = server.insert(Server::new(workspace, &venv).await?);
    server.start().await?;
    let stage = Stage::new(workspace, &venv, args.quick, server)?;
    let mut figures = Figures {
        quick: args.quick,
        cores: std::thread::available_parallelism()?.get(),
        load_average: load_average(),
        parts: Vec::new(),
    };
    for part in Part::value_variants() {
        if args.only.is_empty() || args.only.contains(part) {
            let name = part.to_possible_value().context("a part without a name")?.get_name().to_owned();
            figures.parts.push((name, part.measure(&stage).await?));
        }
    }
    Ok(figures)
}

/// Of the last minute; on Linux only.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}
