//! `cargo xtask test`: every check, from a fresh clone with only Rust and Python 3.
//!
//! What cannot run on this machine is left out and reported. The tests get a PostgreSQL of their own, which is removed at
//! the end, or the server of `DATABASE_URL`. They run twice: directly, and behind pgbouncer where it is installed.

mod browser;
mod pooler;
mod steps;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};

use xtask::dev_env::DevEnv;
use xtask::ports::any_free;
use xtask::postgres::{Cluster, Purpose};
use xtask::process::{Step, Stop, is_running};
use xtask::python::Venv;
use xtask::workspace::{Workspace, remove};

use pooler::Pooler;
use steps::{Report, Tests};

/// The exit status of a shell command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// Begins the name of a test server's data folder; the process id of its run follows.
const DATA_PREFIX: &str = "test-postgres-";

#[derive(clap::Args)]
pub struct Args {
    /// Run only the Rust tests whose names contain one of these; `browser` alone runs the browser tests.
    filter: Vec<String>,
}

/// Runs the checks, prints a summary and, as the last line, `N passed, N failed`.
pub async fn run(args: Args) -> Result<ExitCode> {
    let workspace = Workspace::open()?;
    let mut stop = Stop::listen()?;
    let mut cluster = None;
    let outcome = tokio::select! {
        outcome = check(&workspace, &args, &mut cluster) => outcome.map(Some),
        () = stop.requested() => Ok(None),
    };
    if let Some((cluster, data)) = cluster {
        cluster.stop().await?;
        remove_cluster(&data)?;
    }
    let Some(report) = outcome? else {
        eprintln!("interrupted");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    report.print();
    Ok(if report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn check(
    workspace: &Workspace,
    args: &Args,
    running: &mut Option<(Cluster, PathBuf)>,
) -> Result<Report> {
    let mut report = Report::default();
    let everything = args.filter.is_empty();
    if args.filter == [browser::NAME] {
        browser::run(workspace, &mut report).await?;
        return Ok(report);
    }
    if everything {
        steps::format(workspace, &mut report).await?;
        steps::lint(workspace, &mut report).await?;
    } else {
        report.left_out("everything but the Rust tests", "a filter was given");
    }
    let test_tools = match Venv::test_tools(workspace).await {
        Ok(venv) => Some(venv),
        Err(error) => {
            report.left_out("what needs Python packages (cfn-lint)", &format!("{error:#}"));
            None
        }
    };
    let database_url = match configured_database(workspace) {
        Some(url) => url,
        None => start_database(workspace, running).await?,
    };
    let python = test_tools.as_ref().map(|venv| venv.program("python"));
    run_tests(workspace, &args.filter, &database_url, python, &mut report).await?;
    if everything {
        steps::chaos(workspace, &mut report).await?;
        if let Some(venv) = &test_tools {
            steps::template(workspace, venv, &mut report).await?;
        }
        steps::dependencies(workspace, &mut report).await?;
    }
    if everything {
        browser::run(workspace, &mut report).await?;
    }
    Ok(report)
}

/// The server of `DATABASE_URL`, unless it is that of the running stack: whose settings this shell may have loaded, and
/// whose data are not for tests.
fn configured_database(workspace: &Workspace) -> Option<String> {
    let url = std::env::var("DATABASE_URL").ok().filter(|url| !url.is_empty())?;
    let stack = DevEnv::read(workspace).ok();
    let of_stack = stack.as_ref().and_then(|env| env.get("DATABASE_URL").ok());
    (of_stack != Some(url.as_str())).then_some(url)
}

/// All tests directly, then those that talk to the database behind a pooler.
async fn run_tests(
    workspace: &Workspace,
    filter: &[String],
    database_url: &str,
    python: Option<PathBuf>,
    report: &mut Report,
) -> Result<()> {
    let direct = Tests {
        what: "cargo test",
        targets: vec!["--workspace".into()],
        filter,
        database_url,
        pooler: None,
        python: python.clone(),
    };
    steps::tests(workspace, direct, report).await?;
    let Some(pooler) = Pooler::start(workspace, database_url).await? else {
        report.left_out("the tests behind a pooler", "pgbouncer is not installed");
        return Ok(());
    };
    // `--workspace` again: with other packages selected, cargo would compile them with other features.
    let mut targets = vec!["--workspace".into()];
    for name in workspace.database_tests()? {
        targets.extend(["--test".into(), name]);
    }
    let pooler = Some(pooler.address.as_str());
    let pooled = Tests { what: "cargo test behind pgbouncer", targets, filter, database_url, pooler, python };
    steps::tests(workspace, pooled, report).await
}

/// Starts a PostgreSQL for this run. It is stored in `running` before it is started, so that the caller stops it whatever
/// happens next.
async fn start_database(workspace: &Workspace, running: &mut Option<(Cluster, PathBuf)>) -> Result<String> {
    let venv = Venv::tools(workspace).await?;
    remove_leftovers(workspace, &venv).await?;
    let data = workspace.local(&format!("{DATA_PREFIX}{}", std::process::id()));
    let (cluster, _) = running.insert((Cluster::at(&venv, data.clone()).await?, data));
    let step = Step::begin("making a database for the tests");
    cluster.init(&Purpose::Test).await?;
    let port = any_free()?;
    cluster.start(port, &Purpose::Test).await?;
    step.done();
    Ok(format!("postgres://postgres@127.0.0.1:{port}/postgres"))
}

/// Stops and removes the servers of runs that were killed.
async fn remove_leftovers(workspace: &Workspace, venv: &Venv) -> Result<()> {
    let local = workspace.local("");
    for entry in std::fs::read_dir(&local).with_context(|| format!("cannot read {}", local.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(DATA_PREFIX) else {
            continue;
        };
        let run = rest.split('.').next().and_then(|pid| pid.parse().ok());
        if run.is_some_and(is_running) {
            continue;
        }
        if path.is_dir() {
            Cluster::at(venv, path.clone()).await?.stop().await?;
        }
        remove(&path)?;
    }
    Ok(())
}

fn remove_cluster(data: &Path) -> Result<()> {
    remove(&data.with_extension("part"))?;
    remove(&data.with_extension("log"))?;
    remove(data)
}
