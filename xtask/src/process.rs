//! Programs that the commands start: each in a process group of its own, so that Ctrl-C reaches this program alone and
//! it ends the others in its own order.

use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};

/// How long a program may take to end after SIGTERM before it is killed.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Ctrl-C, SIGTERM or a closed terminal.
pub struct Stop(tokio::sync::watch::Receiver<bool>);

impl Stop {
    /// From now on these signals are heard here and no longer end the process.
    ///
    /// # Errors
    /// When the system refuses a handler.
    pub fn listen() -> Result<Self> {
        let (heard, stop) = tokio::sync::watch::channel(false);
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            let mut stream = signal(kind).context("cannot listen for signals")?;
            let heard = heard.clone();
            tokio::spawn(async move {
                while stream.recv().await.is_some() {
                    heard.send_replace(true);
                }
            });
        }
        Ok(Self(stop))
    }

    /// Returns once one was heard.
    pub async fn requested(&mut self) {
        if self.0.wait_for(|heard| *heard).await.is_err() {
            // The listeners live as long as the runtime; without them no signal can ever be heard.
            std::future::pending::<()>().await;
        }
    }
}

/// A child and whatever it starts in its process group; dropped before it ended, the group gets SIGTERM.
pub struct Group {
    child: Child,
    pid: Pid,
}

impl Group {
    /// Starts it, without a terminal to read from.
    ///
    /// # Errors
    /// When the program is not there or may not run.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let program = command.as_std().get_program().to_string_lossy().into_owned();
        let child = command
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let id = child.id().with_context(|| format!("{program} ended at once"))?;
        Ok(Self { child, pid: Pid::from_raw(i32::try_from(id)?) })
    }

    /// The child's process id, which is the group's.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// What the child writes, where it was asked to write into a pipe; once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits for the child's end.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // Gone in this very moment is as good as ended.
            let _ = killpg(self.pid, Signal::SIGTERM);
        }
    }
}

/// Runs a program to its end and returns what it wrote; cancelled, it is ended with all it started.
///
/// # Errors
/// When it cannot be started.
pub async fn output(command: &mut Command) -> Result<Output> {
    let mut group = Group::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?;
    let stdout = read_all(group.child.stdout.take());
    let stderr = read_all(group.child.stderr.take());
    let (stdout, stderr) = tokio::join!(stdout, stderr);
    let status = group.wait().await?;
    Ok(Output { status, stdout, stderr })
}

async fn read_all(pipe: Option<impl tokio::io::AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // A pipe that breaks has given all it had.
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut pipe, &mut bytes).await;
    }
    bytes
}

/// As [`output`], for a program that must succeed.
///
/// # Errors
/// When it fails: `what`, and the last lines it wrote.
pub async fn succeed(what: &str, command: &mut Command) -> Result<String> {
    let output = output(command).await.with_context(|| what.to_owned())?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!(
            "{what} ({}):\n{}",
            output.status,
            last_lines(&(stdout + &String::from_utf8_lossy(&output.stderr)), 15)
        );
    }
    Ok(stdout)
}

/// The last `count` lines that are not blank, indented.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(count);
    lines[from..].iter().map(|line| format!("    {line}\n")).collect()
}

/// The last `count` lines of a file; empty when it cannot be read.
pub fn tail(path: &Path, count: usize) -> String {
    last_lines(&String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()), count)
}

/// A `cargo` command free of what `cargo run` set for this program: build scripts that watch such variables (ring's,
/// for one) would otherwise run again each time the caller changes.
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if matches!(
            text.as_ref(),
            "CARGO" | "CARGO_BIN_NAME" | "CARGO_CRATE_NAME" | "CARGO_PRIMARY_PACKAGE" | "OUT_DIR"
        ) || text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_MANIFEST_")
        {
            command.env_remove(&name);
        }
    }
    command
}

/// One row of `ps`.
struct Running {
    pid: i32,
    parent: i32,
}

async fn all_running() -> Result<Vec<Running>> {
    let listed =
        succeed("cannot list processes", Command::new("ps").args(["-A", "-o", "pid=,ppid="])).await?;
    Ok(listed
        .lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map_while(|n| n.parse().ok());
            Some(Running { pid: numbers.next()?, parent: numbers.next()? })
        })
        .collect())
}

/// The command line of a running process, or nothing.
pub async fn command_line(pid: i32) -> Option<String> {
    let shown =
        output(Command::new("ps").args(["-ww", "-o", "command=", "-p", &pid.to_string()])).await.ok()?;
    let line = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
    (!line.is_empty()).then_some(line)
}

/// Ends a process with all its descendants, in whatever groups: SIGTERM to it, so that it can end them itself, then
/// SIGKILL to whoever is left.
pub async fn end_tree(pid: i32) {
    let listed = all_running().await.unwrap_or_default();
    let mut tree = vec![pid];
    let mut at = 0;
    while at < tree.len() {
        let parent = tree[at];
        tree.extend(listed.iter().filter(|r| r.parent == parent).map(|r| r.pid));
        at += 1;
    }
    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    let begun = Instant::now();
    while begun.elapsed() < END_WITHIN && tree.iter().any(|pid| is_running(*pid)) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for pid in tree.into_iter().filter(|pid| is_running(*pid)) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Whether a process with this id is there (a zombie of ours counts until it is waited for).
pub fn is_running(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

/// A line about a step that takes a while, and a second one with the seconds it took.
pub struct Step {
    what: String,
    begun: Instant,
}

impl Step {
    /// Says what begins.
    pub fn begin(what: impl Into<String>) -> Self {
        let what = what.into();
        println!("… {what}");
        Self { what, begun: Instant::now() }
    }

    /// Says that it is done.
    pub fn done(self) {
        println!("✓ {} ({:.1} s)", self.what, self.begun.elapsed().as_secs_f32());
    }
}
