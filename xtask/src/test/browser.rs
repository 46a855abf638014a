//! The browser tests (`stories/browser`): a real Chromium against the whole stack as `cargo xtask dev` serves it, with a
//! database and ports of its own.
//!
//! Where no browser is to be had, they are left out.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;

use xtask::ports::any_free;
use xtask::process::{self, Group, Step, own_program};
use xtask::python::Venv;
use xtask::workspace::{STATE_VARIABLE, Workspace, remove};

use super::steps::{Report, counted};

/// As a test's name on the command line.
pub const NAME: &str = "browser";
const WHAT: &str = "browser tests";
/// Names of a Chromium, on the PATH; and where macOS keeps Chrome.
const BROWSERS: [&str; 5] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];
/// The functions may have to be compiled for it.
const STARTS_WITHIN: Duration = Duration::from_secs(900);
const START_CHECK_EVERY: Duration = Duration::from_millis(200);
/// PostgreSQL among them.
const ENDS_WITHIN: Duration = Duration::from_secs(30);
const LOG_LINES: usize = 15;

/// Runs them, or reports why they were left out.
pub async fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let venv = match Venv::browser_tools(workspace).await {
        Ok(venv) => venv,
        Err(error) => {
            report.left_out(WHAT, &format!("no Playwright: {error:#}"));
            return Ok(());
        }
    };
    let Some(browser) = browser(&venv).await? else {
        report.left_out(WHAT, "there is no Chromium or Chrome, and none could be installed");
        return Ok(());
    };
    let state = workspace.local(&format!("browser-{}", std::process::id()));
    remove_leftovers(workspace)?;
    let issuer = any_free()?;
    let stack = Stack::start(&state, issuer).await?;
    let mut python = Command::new(venv.program("python"));
    python
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "stories/browser"])
        .current_dir(workspace.root())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env(STATE_VARIABLE, &state)
        .env("HOLDFAST_BROWSER", browser)
        .env("HOLDFAST_ISSUER_PORT", issuer.to_string())
        .env("HOLDFAST_XTASK", own_program()?)
        .env("HOLDFAST_SCREENS", workspace.local("screens"));
    let ran = counted(workspace, WHAT, &mut python, report).await;
    stack.end().await?;
    ran
}

/// A browser of this machine; else, for root on Debian, one that is installed now.
async fn browser(venv: &Venv) -> Result<Option<PathBuf>> {
    if let Some(found) = installed(venv).await? {
        return Ok(Some(found));
    }
    if !nix::unistd::geteuid().is_root() || which("apt-get").is_none() {
        return Ok(None);
    }
    let step = Step::begin("installing chromium (apt-get)");
    for arguments in
        [&["update", "-qq"][..], &["install", "-y", "-qq", "--no-install-recommends", "chromium"]]
    {
        let mut apt = Command::new("apt-get");
        if !process::output(apt.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
            .await?
            .status
            .success()
        {
            break;
        }
    }
    step.done();
    installed(venv).await
}

async fn installed(venv: &Venv) -> Result<Option<PathBuf>> {
    if let Some(found) = BROWSERS.iter().find_map(|name| which(name)) {
        return Ok(Some(found));
    }
    // Playwright's own, where a person has let it download one.
    const OWN: &str = "from playwright.sync_api import sync_playwright
with sync_playwright() as p: print(p.chromium.executable_path)";
    let output = process::output(Command::new(venv.program("python")).args(["-c", OWN])).await?;
    let own = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    Ok(own.is_file().then_some(own))
}

/// The program of this name on the PATH, or at this path.
fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // An absolute name replaces the folder that it is joined to.
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
}

/// What runs that were killed have left. Their processes end with their `dev`, which ends with its parent.
fn remove_leftovers(workspace: &Workspace) -> Result<()> {
    for entry in std::fs::read_dir(workspace.local(""))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let run = name.strip_prefix("browser-").and_then(|pid| pid.parse().ok());
        if run.is_some_and(|pid| !process::is_running(pid)) {
            remove(&path)?;
        }
    }
    Ok(())
}

struct Stack {
    group: Group,
    state: PathBuf,
}

impl Stack {
    /// `cargo xtask dev` without schedules, so that each test decides when the relay runs; signing in goes to `issuer`.
    async fn start(state: &Path, issuer: u16) -> Result<Self> {
        std::fs::create_dir_all(state)?;
        let step = Step::begin("starting the stack for the browser");
        let log = state.join("dev.log");
        let out = std::fs::File::create(&log)?;
        let mut command = Command::new(own_program()?);
        command
            .args(["dev", "--no-schedule", "--port", &any_free()?.to_string()])
            .env(STATE_VARIABLE, state)
            .env("CONSOLE_OIDC_AUTHORIZE_URL", format!("http://127.0.0.1:{issuer}/authorize?prompt=login"))
            .env("CONSOLE_OIDC_TOKEN_URL", format!("http://127.0.0.1:{issuer}/token"))
            .env("CONSOLE_OIDC_CLIENT_ID", "holdfast-console")
            .stdout(out.try_clone()?)
            .stderr(out);
        let mut stack = Self { group: Group::spawn(&mut command)?, state: state.to_owned() };
        let begun = Instant::now();
        while !state.join("dev.env").is_file() {
            let ended = tokio::time::timeout(START_CHECK_EVERY, stack.group.wait()).await.is_ok();
            if ended || begun.elapsed() > STARTS_WITHIN {
                bail!("the stack does not start; its log ends with\n{}", process::tail(&log, LOG_LINES));
            }
        }
        step.done();
        Ok(stack)
    }

    async fn end(mut self) -> Result<()> {
        // It ends what it has started, in its own order.
        let _ = kill(Pid::from_raw(self.group.pid()), Signal::SIGTERM);
        if tokio::time::timeout(ENDS_WITHIN, self.group.wait()).await.is_err() {
            process::end_tree(self.group.pid()).await;
        }
        remove(&self.state).context("the stack's folder cannot be removed")
    }
}
