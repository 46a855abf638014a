//! The checks, and the summary of their results.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use xtask::process::{self, Group};
use xtask::python::Venv;
use xtask::workspace::{Workspace, remove};

/// A minute in all.
const CHAOS_SECONDS: &str = "30";
const CHAOS_SEEDS: [&str; 2] = ["1", "2"];

#[derive(Default)]
pub struct Report {
    ran: Vec<Ran>,
    /// What did not run, and why.
    left_out: Vec<(String, String)>,
}

struct Ran {
    what: &'static str,
    passed: u64,
    failed: u64,
    left_out: u64,
    took: Duration,
}

impl Report {
    pub fn left_out(&mut self, what: &str, why: &str) {
        println!("– left out: {what}: {why}");
        self.left_out.push((what.into(), why.into()));
    }

    pub fn failed(&self) -> u64 {
        self.ran.iter().map(|ran| ran.failed).sum()
    }

    pub fn print(&self) {
        print!("{}", self.text());
    }

    /// A table, what was left out, and as the last line `N passed, N failed` and perhaps `, N skipped`: tests and other
    /// checks together.
    fn text(&self) -> String {
        let row = |cells: [&str; 5]| {
            let [what, passed, failed, left_out, seconds] = cells;
            format!("{what:<44} {passed:>8} {failed:>8} {left_out:>9} {seconds:>9}\n")
        };
        let mut text = String::from("\n") + &row(["check", "passed", "failed", "left out", "seconds"]);
        for ran in &self.ran {
            let [passed, failed, left_out] = [ran.passed, ran.failed, ran.left_out].map(|n| n.to_string());
            let seconds = format!("{:.1}", ran.took.as_secs_f32());
            text += &row([ran.what, &passed, &failed, &left_out, &seconds]);
        }
        for (what, why) in &self.left_out {
            text += &format!("left out: {what}: {}\n", why.lines().next().unwrap_or_default());
        }
        let sum = |count: fn(&Ran) -> u64| self.ran.iter().map(count).sum::<u64>();
        let skipped = match sum(|ran| ran.left_out) {
            0 => String::new(),
            left_out => format!(", {left_out} skipped"),
        };
        text + &format!("\n{} passed, {} failed{skipped}\n", sum(|ran| ran.passed), self.failed())
    }

    /// Runs a command that passes or fails as a whole.
    async fn one(&mut self, what: &'static str, command: &mut Command) -> Result<()> {
        println!("\n── {what}");
        let begun = Instant::now();
        let passed = Group::spawn(command)?.wait().await?.success();
        self.ran.push(Ran {
            what,
            passed: u64::from(passed),
            failed: u64::from(!passed),
            left_out: 0,
            took: begun.elapsed(),
        });
        Ok(())
    }
}

pub async fn format(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let mut cargo = process::cargo();
    report
        .one("cargo fmt --check", cargo.args(["fmt", "--all", "--check"]).current_dir(workspace.root()))
        .await
}

pub async fn lint(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let mut cargo = process::cargo();
    cargo.args(["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"]);
    report.one("cargo clippy -D warnings", cargo.current_dir(workspace.root())).await
}

pub struct Tests<'r> {
    pub what: &'static str,
    /// Cargo's options that select packages and test targets.
    pub targets: Vec<String>,
    /// Parts of test names; empty for all tests.
    pub filter: &'r [String],
    /// A superuser's URL.
    pub database_url: &'r str,
    /// `host:port` of a pooler in front of that server.
    pub pooler: Option<&'r str>,
    /// A Python with the packages of requirements-test.txt.
    pub python: Option<PathBuf>,
}

/// The file to which tests that leave themselves out append their names and reasons (`testing::left_out`); removed when
/// dropped.
struct LeftOutList(PathBuf);

impl LeftOutList {
    fn new(workspace: &Workspace) -> Result<Self> {
        let path = workspace.local(&format!("test-left-out-{}", std::process::id()));
        remove(&path)?;
        Ok(Self(path))
    }

    fn read(&self) -> Result<String> {
        match std::fs::read_to_string(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            read => read.with_context(|| format!("cannot read {}", self.0.display())),
        }
    }
}

impl Drop for LeftOutList {
    fn drop(&mut self) {
        // If it cannot be removed, it stays in .local/; the next run has a file of its own.
        let _ = remove(&self.0);
    }
}

pub async fn tests(workspace: &Workspace, tests: Tests<'_>, report: &mut Report) -> Result<()> {
    let mut cargo = process::cargo();
    cargo.arg("test").args(&tests.targets).args(["--no-fail-fast", "--"]).args(tests.filter);
    cargo.current_dir(workspace.root()).env("DATABASE_URL", tests.database_url);
    cargo.env("HOLDFAST_TEST_POOLER", tests.pooler.unwrap_or_default());
    if let Some(python) = &tests.python {
        cargo.env("HOLDFAST_TEST_PYTHON", python);
    }
    counted(workspace, tests.what, &mut cargo, report).await
}

/// Runs a command that prints results as Rust's test programs do, and that knows of the list of tests left out.
pub async fn counted(
    workspace: &Workspace,
    what: &'static str,
    command: &mut Command,
    report: &mut Report,
) -> Result<()> {
    println!("\n── {what}");
    let begun = Instant::now();
    let left_out_list = LeftOutList::new(workspace)?;
    command.env("HOLDFAST_TEST_LEFT_OUT", &left_out_list.0).stdout(Stdio::piped());
    let mut group = Group::spawn(command)?;
    let mut lines = BufReader::new(group.stdout().context("its output is piped")?).lines();
    let mut counted = Counted::default();
    while let Some(line) = lines.next_line().await? {
        counted.add(&line);
        println!("{line}");
    }
    let succeeded = group.wait().await?.success();
    if !succeeded && counted.failed == 0 {
        // It did not compile, or a test ended its whole process.
        counted.failed = 1;
    }
    let reasons = counted.leave_out(&left_out_list.read()?);
    report.ran.push(Ran {
        what,
        passed: counted.passed,
        failed: counted.failed,
        left_out: counted.left_out,
        took: begun.elapsed(),
    });
    for (why, count) in reasons {
        let noun = if count == 1 { "test" } else { "tests" };
        report.left_out(&format!("{count} {noun} of {what}"), &why);
    }
    Ok(())
}

#[derive(Default, Debug, PartialEq)]
struct Counted {
    passed: u64,
    failed: u64,
    left_out: u64,
    ignored: u64,
}

impl Counted {
    /// Adds the numbers of a `test result:` line, with which a test program ends; skips other lines.
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

    /// Takes the tests of this list out of those that passed: in each line a test's name, a tab and the reason. A test can be
    /// in it several times. Returns the number of tests for each reason.
    fn leave_out(&mut self, list: &str) -> BTreeMap<String, u64> {
        let tests: HashMap<&str, &str> = list.lines().filter_map(|line| line.split_once('\t')).collect();
        let mut reasons = BTreeMap::new();
        for why in tests.values() {
            *reasons.entry((*why).to_owned()).or_default() += 1;
        }
        self.passed = self.passed.saturating_sub(tests.len() as u64);
        if self.ignored > 0 {
            reasons.insert("marked #[ignore]".to_owned(), self.ignored);
        }
        self.left_out = reasons.values().sum();
        reasons
    }
}

/// Breaks the debug binaries at random, with fixed seeds, and lets a checker that knows nothing of the code read the history.
pub async fn chaos(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let history = workspace.local("chaos-history.jsonl");
    let python = Venv::tools(workspace).await?.program("python");
    for seed in CHAOS_SEEDS {
        let mut chaos = process::cargo();
        chaos.args(["run", "--quiet", "--bin", "chaos", "--", "--debug", "--seconds", CHAOS_SECONDS]);
        chaos.args(["--seed", seed, "--history"]).arg(&history).current_dir(workspace.root());
        report.one("cargo xtask chaos", &mut chaos).await?;
        let mut checker = Command::new(&python);
        checker.arg(workspace.root().join("chaos/check_history.py")).arg(&history);
        report.one("chaos/check_history.py", &mut checker).await?;
    }
    remove(&history)
}

/// Runs cfn-lint on the SAM template.
pub async fn template(workspace: &Workspace, venv: &Venv, report: &mut Report) -> Result<()> {
    let template = workspace.root().join("template.yaml");
    if !template.is_file() {
        report.left_out("cfn-lint", "there is no template.yaml");
        return Ok(());
    }
    report.one("cfn-lint template.yaml", Command::new(venv.program("cfn-lint")).arg(template)).await
}

/// Runs cargo-deny, if it is installed.
pub async fn dependencies(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let Some(mut deny) = cargo_deny(workspace).await? else {
        report.left_out(
            "cargo deny check",
            "cargo-deny is not installed (cargo install cargo-deny, or .ci/run)",
        );
        return Ok(());
    };
    // Not `advisories`, which needs the internet.
    deny.args(["check", "bans", "licenses", "sources"]).current_dir(workspace.root());
    report.one("cargo deny check bans licenses sources", &mut deny).await
}

/// The one that `.ci/run` installs, or this machine's.
async fn cargo_deny(workspace: &Workspace) -> Result<Option<Command>> {
    let own = workspace.local("cargo-tools/bin/cargo-deny");
    if own.is_file() {
        return Ok(Some(Command::new(own)));
    }
    let [mut probe, mut installed] = [process::cargo(), process::cargo()];
    installed.arg("deny");
    let found = process::output(probe.args(["deny", "--version"])).await?.status.success();
    Ok(found.then_some(installed))
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
        assert_eq!(counted, Counted { passed: 14, failed: 1, ignored: 1, left_out: 0 });
    }

    #[test]
    fn a_test_that_left_itself_out_is_counted_once_under_its_reason_and_not_as_passed() {
        let mut counted = Counted::default();
        counted.add(
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.42s",
        );
        let list = "it-1 hmac::a\tno vectors\nit-2 hmac::a\tno vectors\nit-1 hmac::a\tno vectors\nit-1 b\tno Python\n";
        let reasons = counted.leave_out(list);
        assert_eq!(counted, Counted { passed: 2, failed: 0, ignored: 1, left_out: 4 });
        let reasons: Vec<_> = reasons.iter().map(|(why, count)| (why.as_str(), *count)).collect();
        assert_eq!(reasons, [("marked #[ignore]", 1), ("no Python", 1), ("no vectors", 2)]);
    }

    #[test]
    fn the_last_line_is_the_sum_and_what_was_left_out_stands_above_it() {
        let ran =
            |what, passed, left_out| Ran { what, passed, failed: 0, left_out, took: Duration::from_secs(2) };
        let mut report =
            Report { ran: vec![ran("clippy", 1, 0), ran("cargo test", 40, 3)], left_out: Vec::new() };
        report.left_out("3 tests of cargo test", "no Python\nand more");
        let text = report.text();
        assert!(
            text.ends_with(
                "\nleft out: 3 tests of cargo test: no Python\n\n41 passed, 0 failed, 3 skipped\n"
            ),
            "{text}"
        );
        report.ran.pop();
        assert!(report.text().ends_with("\n1 passed, 0 failed\n"));
    }
}
