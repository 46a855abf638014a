//! Programs that the commands start, each in its own process group: Ctrl-C reaches only this program, which then ends the
//! others in its own order.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};

/// How long a program may take to end after SIGTERM before it is killed.
const END_WITHIN: Duration = Duration::from_secs(5);
const END_CHECK_EVERY: Duration = Duration::from_millis(50);
const OUTPUT_LINES: usize = 15;

/// This program's file. Where it was compiled anew while it runs, the new one: Linux calls the old one `… (deleted)`.
pub fn own_program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("where is this program?")?;
    Ok(path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map_or(path.clone(), PathBuf::from))
}

/// Reports Ctrl-C, SIGTERM or a closed terminal.
pub struct Stop(tokio::sync::watch::Receiver<bool>);

impl Stop {
    /// From now on these signals no longer end the process.
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

    /// Waits for such a signal.
    pub async fn requested(&mut self) {
        if self.0.wait_for(|heard| *heard).await.is_err() {
            // The listeners have ended, which only the end of the runtime does.
            std::future::pending::<()>().await;
        }
    }
}

/// A child process and its process group. If it still runs when this is dropped, the group gets SIGTERM.
pub struct Group {
    child: Child,
    pid: Pid,
}

impl Group {
    /// Starts the program with no standard input.
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

    /// The child's process id, which is also the group's.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// The child's standard output if it is a pipe; `None` from the second call on.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Waits for the child's end.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait().await?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            // Fails when it has ended just now.
            let _ = killpg(self.pid, Signal::SIGTERM);
        }
    }
}

/// Runs a program to its end and collects its output; when cancelled, ends its process group.
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
        // After an error, what was read so far counts.
        let _ = tokio::io::AsyncReadExt::read_to_end(&mut pipe, &mut bytes).await;
    }
    bytes
}

/// As [`output`], but fails when the program does: with `what` and the last lines of its output.
pub async fn succeed(what: &str, command: &mut Command) -> Result<String> {
    let output = output(command).await.with_context(|| what.to_owned())?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!(
            "{what} ({}):\n{}",
            output.status,
            last_lines(&(stdout + &String::from_utf8_lossy(&output.stderr)), OUTPUT_LINES)
        );
    }
    Ok(stdout)
}

/// The last `count` non-blank lines, indented.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let from = lines.len().saturating_sub(count);
    lines[from..].iter().map(|line| format!("    {line}\n")).collect()
}

/// The last `count` lines of a file; empty if it cannot be read.
pub fn tail(path: &Path, count: usize) -> String {
    last_lines(&String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()), count)
}

/// A `cargo` command without the variables that `cargo run` set for this program: build scripts that depend on them (ring's
/// does) would run again whenever they change.
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

struct PsRow {
    pid: i32,
    parent: i32,
}

async fn all_processes() -> Result<Vec<PsRow>> {
    let listed =
        succeed("cannot list processes", Command::new("ps").args(["-A", "-o", "pid=,ppid="])).await?;
    Ok(listed
        .lines()
        .filter_map(|line| {
            let mut numbers = line.split_whitespace().map_while(|n| n.parse().ok());
            Some(PsRow { pid: numbers.next()?, parent: numbers.next()? })
        })
        .collect())
}

/// The command line of a running process; `None` if it does not run.
pub async fn command_line(pid: i32) -> Option<String> {
    let shown =
        output(Command::new("ps").args(["-ww", "-o", "command=", "-p", &pid.to_string()])).await.ok()?;
    let line = String::from_utf8_lossy(&shown.stdout).trim().to_owned();
    (!line.is_empty()).then_some(line)
}

/// Ends a process and all its descendants, whatever their groups: SIGTERM to the process, which may end the others
/// itself, then SIGKILL to all that are left.
pub async fn end_tree(pid: i32) {
    let listed = all_processes().await.unwrap_or_default();
    let mut tree = vec![pid];
    let mut at = 0;
    while at < tree.len() {
        let parent = tree[at];
        tree.extend(listed.iter().filter(|row| row.parent == parent).map(|row| row.pid));
        at += 1;
    }
    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    let begun = Instant::now();
    while begun.elapsed() < END_WITHIN && tree.iter().any(|pid| is_running(*pid)) {
        tokio::time::sleep(END_CHECK_EVERY).await;
    }
    for pid in tree.into_iter().filter(|pid| is_running(*pid)) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Also true for a child that has ended and was not waited for.
pub fn is_running(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

/// Prints a line when a long step begins and another, with its duration, when it is done.
pub struct Step {
    what: String,
    begun: Instant,
}

impl Step {
    /// Prints the first line.
    pub fn begin(what: impl Into<String>) -> Self {
        let what = what.into();
        println!("… {what}");
        Self { what, begun: Instant::now() }
    }

    /// Prints the second line.
    pub fn done(self) {
        println!("✓ {} ({:.1} s)", self.what, self.begun.elapsed().as_secs_f32());
    }
}
