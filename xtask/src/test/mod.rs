//! `cargo xtask test`: every check, from a fresh clone with only Rust and Python 3.

mod pooler;
mod steps;

use std::path::PathBuf;
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

/// What is checked.
#[derive(clap::Args)]
pub struct Args {
    /// Run only the Rust tests whose names contain one of these.
    filter: Vec<String>,
}

/// Runs the checks, prints a summary and, as the last line, `N passed, N failed`.
///
/// # Errors
/// When the checks cannot be run at all: what is missing, and what to do.
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
        return Ok(ExitCode::from(130));
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
    // The running stack's settings may stand in this shell's environment; its data are not for tests.
    let of_the_stack = DevEnv::read(workspace).ok();
    let of_the_stack = of_the_stack.as_ref().and_then(|env| env.get("DATABASE_URL").ok());
    let database_url = match std::env::var("DATABASE_URL") {
        Ok(url) if !url.is_empty() && of_the_stack != Some(url.as_str()) => url,
        _ => throw_away_database(workspace, running).await?,
    };
    let python = test_tools.as_ref().map(|venv| venv.program("python"));
    let filter = &args.filter;
    let database_url = database_url.as_str();
    let direct = Tests {
        what: "cargo test",
        packages: vec!["--workspace".into()],
        filter,
        database_url,
        pooler: None,
        python: python.clone(),
    };
    steps::tests(workspace, direct, &mut report).await?;
    match Pooler::before(workspace, database_url).await? {
        Some(pooler) => {
            // With `--workspace` again, so that nothing is compiled anew; only the functions' test programs.
            let mut packages = vec!["--workspace".into()];
            for program in workspace.function_tests()? {
                packages.extend(["--test".into(), program]);
            }
            let pooler = Some(pooler.address.as_str());
            let pooled =
                Tests { what: "cargo test behind pgbouncer", packages, filter, database_url, pooler, python };
            steps::tests(workspace, pooled, &mut report).await?;
        }
        None => report.left_out("the functions' tests behind a pooler", "pgbouncer is not installed"),
    }
    if everything {
        if let Some(venv) = &test_tools {
            steps::template(workspace, venv, &mut report).await?;
        }
        steps::dependencies(workspace, &mut report).await?;
    }
    Ok(report)
}

/// A PostgreSQL for this run only; `running` is told at once, so that it is stopped whatever happens next.
async fn throw_away_database(
    workspace: &Workspace,
    running: &mut Option<(Cluster, PathBuf)>,
) -> Result<String> {
    let venv = Venv::tools(workspace).await?;
    remove_leftovers(workspace, &venv).await?;
    let data = workspace.local(&format!("{PREFIX}{}", std::process::id()));
    let (cluster, _) = running.insert((Cluster::at(&venv, data.clone()).await?, data));
    let step = Step::begin("making a database for the tests");
    cluster.init(&Purpose::Test).await?;
    let port = any_free()?;
    cluster.start(port, &Purpose::Test).await?;
    step.done();
    Ok(format!("postgres://postgres@127.0.0.1:{port}/postgres"))
}

/// Of the data folders' names; the process id of their run follows.
const PREFIX: &str = "test-postgres-";

/// Stops and removes what killed runs left.
async fn remove_leftovers(workspace: &Workspace, venv: &Venv) -> Result<()> {
    let local = workspace.local("");
    for entry in std::fs::read_dir(&local).with_context(|| format!("cannot read {}", local.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(rest) = name.strip_prefix(PREFIX) else {
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

fn remove_cluster(data: &std::path::Path) -> Result<()> {
    remove(&data.with_extension("part"))?;
    remove(&data.with_extension("log"))?;
    remove(data)
}
