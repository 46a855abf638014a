//! The checks themselves, and the summary of what they found.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use xtask::process::{self, Group};
use xtask::python::Venv;
use xtask::workspace::Workspace;

/// What ran, and what did not.
#[derive(Default)]
pub struct Report {
    ran: Vec<Ran>,
    left_out: Vec<(String, String)>,
}

struct Ran {
    what: &'static str,
    passed: u64,
    failed: u64,
    took: Duration,
}

impl Report {
    /// Notes what could not or should not run, and why.
    pub fn left_out(&mut self, what: &str, why: &str) {
        println!("– left out: {what}: {why}");
        self.left_out.push((what.into(), why.into()));
    }

    /// Checks that failed.
    pub fn failed(&self) -> u64 {
        self.ran.iter().map(|ran| ran.failed).sum()
    }

    /// Prints the table; its last line is `N passed, N failed`, tests and other checks together.
    pub fn print(&self) {
        println!("\n{:<44} {:>8} {:>8} {:>9}", "check", "passed", "failed", "seconds");
        for ran in &self.ran {
            let seconds = ran.took.as_secs_f32();
            println!("{:<44} {:>8} {:>8} {seconds:>9.1}", ran.what, ran.passed, ran.failed);
        }
        for (what, why) in &self.left_out {
            println!("left out: {what}: {}", why.lines().next().unwrap_or_default());
        }
        let passed: u64 = self.ran.iter().map(|ran| ran.passed).sum();
        println!("\n{passed} passed, {} failed", self.failed());
    }

    async fn one(&mut self, what: &'static str, command: &mut Command) -> Result<()> {
        println!("\n── {what}");
        let begun = Instant::now();
        let passed = Group::spawn(command)?.wait().await?.success();
        self.ran.push(Ran {
            what,
            passed: u64::from(passed),
            failed: u64::from(!passed),
            took: begun.elapsed(),
        });
        Ok(())
    }
}

/// rustfmt.
///
/// # Errors
/// When cargo cannot be started.
pub async fn format(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let mut cargo = process::cargo();
    report
        .one("cargo fmt --check", cargo.args(["fmt", "--all", "--check"]).current_dir(workspace.root()))
        .await
}

/// clippy, where a warning is a failure.
///
/// # Errors
/// When cargo cannot be started.
pub async fn lint(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let mut cargo = process::cargo();
    cargo.args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]);
    report.one("cargo clippy -D warnings", cargo.current_dir(workspace.root())).await
}

/// Which Rust tests run, and against what.
pub struct Tests<'r> {
    /// Name in the report.
    pub what: &'static str,
    /// `--workspace`, or `-p` and a crate's name for each.
    pub packages: Vec<String>,
    /// Parts of names; none: every test.
    pub filter: &'r [String],
    /// A superuser's address.
    pub database_url: &'r str,
    /// `host:port` of a pooler before that server.
    pub pooler: Option<&'r str>,
    /// A Python with the packages of requirements-test.txt.
    pub python: Option<PathBuf>,
}

/// Runs them.
///
/// # Errors
/// When cargo cannot be started.
pub async fn tests(workspace: &Workspace, tests: Tests<'_>, report: &mut Report) -> Result<()> {
    println!("\n── {}", tests.what);
    let begun = Instant::now();
    let mut cargo = process::cargo();
    cargo.arg("test").args(&tests.packages).args(["--no-fail-fast", "--"]).args(tests.filter);
    cargo.current_dir(workspace.root()).env("DATABASE_URL", tests.database_url).stdout(Stdio::piped());
    cargo.env("HOLDFAST_TEST_POOLER", tests.pooler.unwrap_or_default());
    if let Some(python) = &tests.python {
        cargo.env("HOLDFAST_TEST_PYTHON", python);
    }
    let mut group = Group::spawn(&mut cargo)?;
    let mut lines = BufReader::new(group.stdout().context("cargo's output is piped")?).lines();
    let mut counted = Counted::default();
    while let Some(line) = lines.next_line().await? {
        counted.add(&line);
        println!("{line}");
    }
    let succeeded = group.wait().await?.success();
    if !succeeded && counted.failed == 0 {
        // It did not compile, or a test took its whole process with it.
        counted.failed = 1;
    }
    report.ran.push(Ran {
        what: tests.what,
        passed: counted.passed,
        failed: counted.failed,
        took: begun.elapsed(),
    });
    if counted.ignored > 0 {
        report.left_out(&format!("{} tests", counted.ignored), "they are marked #[ignore]");
    }
    Ok(())
}

/// What the test programs say at their ends.
#[derive(Default, Debug, PartialEq)]
struct Counted {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counted {
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else {
            return;
        };
        for part in result.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(Ok(count)), Some(what)) = (words.next().map(str::parse::<u64>), words.next()) else {
                continue;
            };
            match what {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }
}

/// cfn-lint on the SAM template.
///
/// # Errors
/// When it cannot be started.
pub async fn template(workspace: &Workspace, venv: &Venv, report: &mut Report) -> Result<()> {
    let template = workspace.root().join("template.yaml");
    if !template.is_file() {
        report.left_out("cfn-lint", "there is no template.yaml");
        return Ok(());
    }
    report.one("cfn-lint template.yaml", Command::new(venv.program("cfn-lint")).arg(template)).await
}

/// cargo-deny, where it is installed.
///
/// # Errors
/// When it cannot be started.
pub async fn dependencies(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let mut probe = process::cargo();
    if !process::output(probe.args(["deny", "--version"])).await?.status.success() {
        report.left_out("cargo deny check", "cargo-deny is not installed (cargo install cargo-deny)");
        return Ok(());
    }
    let mut cargo = process::cargo();
    // Not advisories: they need the internet.
    cargo.args(["deny", "check", "bans", "licenses", "sources"]).current_dir(workspace.root());
    report.one("cargo deny check bans licenses sources", &mut cargo).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_programs_are_summed() {
        let mut counted = Counted::default();
        counted.add(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.42s",
        );
        counted.add("test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s");
        counted.add("test a_result ... ok");
        assert_eq!(counted, Counted { passed: 14, failed: 1, ignored: 1 });
    }
}
