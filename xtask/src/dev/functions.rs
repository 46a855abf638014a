//! The functions, served by `cargo lambda watch` under their deployed paths, several instances of each.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::process::Command;

use xtask::process::{self, Group, Step};
use xtask::python::Venv;
use xtask::workspace::{Workspace, remove, write_private};

/// Instances of each function, so that requests meet as they do in the cloud.
const INSTANCES: usize = 4;
/// From start to the first healthy answer; the functions are built by then.
const HEALTHY_WITHIN: Duration = Duration::from_secs(120);

/// Method and path of a request.
type Call = (reqwest::Method, String);

/// The functions, compiled.
pub struct Built {
    programs: PathBuf,
    calls: Vec<Call>,
}

/// Compiles every function, so that no request waits for a compiler.
///
/// # Errors
/// When one does not compile; cargo has said why.
pub async fn build(workspace: &Workspace) -> Result<Built> {
    let functions = workspace.functions()?;
    let step = Step::begin(format!("building {} functions (minutes the first time)", functions.len()));
    let mut cargo = process::cargo();
    cargo.current_dir(workspace.root()).arg("build");
    for function in &functions {
        cargo.args(["--bin", function]);
    }
    if !Group::spawn(&mut cargo)?.wait().await?.success() {
        bail!("the functions do not compile (see above)");
    }
    let mut cargo = process::cargo();
    cargo.current_dir(workspace.root()).args(["metadata", "--no-deps", "--format-version", "1"]);
    let metadata = process::succeed("cargo does not read this workspace", &mut cargo).await?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let target = metadata["target_directory"].as_str().context("cargo names no target directory")?;
    step.done();
    Ok(Built { programs: Path::new(target).join("debug"), calls: harmless_calls(&metadata)? })
}

/// One call to each function that has a route. They carry no credentials, so that nothing can come of them.
fn harmless_calls(metadata: &Value) -> Result<Vec<Call>> {
    let router = metadata["metadata"]["lambda"]["watch"]["router"].as_object();
    let mut calls = BTreeMap::new();
    for (path, routes) in router.context("the root Cargo.toml routes nothing")? {
        for route in routes.as_array().into_iter().flatten() {
            let function = route["function"].as_str().context("a route without a function")?;
            let method = route["method"].as_str().unwrap_or("GET").parse()?;
            calls.entry(function.to_owned()).or_insert((method, with_ids(path)));
        }
    }
    Ok(calls.into_values().collect())
}

/// The path with an id that is nobody's in place of each parameter.
fn with_ids(path: &str) -> String {
    let segments = path.split('/').map(|segment| match segment.starts_with('{') {
        true => "00000000-0000-0000-0000-000000000000",
        false => segment,
    });
    segments.collect::<Vec<_>>().join("/")
}

/// The server with its instances.
pub struct Functions {
    server: Group,
    pid_file: PathBuf,
    log: PathBuf,
    calls: Vec<Call>,
}

impl Functions {
    /// Ends a server that a killed run left behind.
    ///
    /// # Errors
    /// When its trace cannot be removed.
    pub async fn end_leftover(workspace: &Workspace) -> Result<()> {
        let pid_file = pid_file(workspace);
        if let Some(pid) = std::fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok())
            // The id may have been given to another program since.
            && process::command_line(pid).await.is_some_and(|line| line.contains("lambda") && line.contains("watch"))
        {
            process::end_tree(pid).await;
        }
        remove(&pid_file)
    }

    /// Starts the server on this port of loopback, with this environment for the functions, which reach it over the
    /// bridge on that port.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(
        workspace: &Workspace,
        venv: &Venv,
        built: Built,
        port: u16,
        bridge: u16,
        environment: &str,
    ) -> Result<Self> {
        let env_file = workspace.local("functions.env");
        write_private(&env_file, environment)?;
        let log = workspace.local("functions.log");
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(venv.program("cargo-lambda"));
        command
            .args(["lambda", "watch", "--ignore-changes", "--invoke-address", "127.0.0.1", "--invoke-port"])
            .arg(port.to_string())
            .args(["--concurrency", &INSTANCES.to_string(), "--env-file"])
            .arg(&env_file)
            .current_dir(nothing_to_watch(workspace)?)
            .env("CARGO", workspace.root().join("xtask/src/dev/run-built.sh"))
            .env("HOLDFAST_ROOT", workspace.root())
            .env("HOLDFAST_BUILT", &built.programs)
            .env("HOLDFAST_BRIDGE", format!("127.0.0.1:{bridge}"))
            .stdout(out.try_clone()?)
            .stderr(out);
        let server = Group::spawn(&mut command)?;
        let pid_file = pid_file(workspace);
        write_private(&pid_file, &server.pid().to_string())?;
        Ok(Self { server, pid_file, log, calls: built.calls })
    }

    /// Waits until `GET /health` answers 200.
    ///
    /// # Errors
    /// When it does not in time, or the server ends: with the last lines of its log.
    pub async fn healthy(&mut self, base_url: &str) -> Result<()> {
        let client = reqwest::Client::new();
        let begun = Instant::now();
        let mut last = "no answer".to_owned();
        while begun.elapsed() < HEALTHY_WITHIN {
            let asked = client.get(format!("{base_url}/health")).timeout(Duration::from_secs(30)).send();
            tokio::select! {
                answer = asked => match answer {
                    Ok(answer) if answer.status() == 200 => return Ok(()),
                    Ok(answer) => last = answer.status().to_string(),
                    Err(error) => last = error.to_string(),
                },
                ended = self.ended() => return ended.map(|_| ()),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!(
            "GET /health is not 200 ({last}); {} ends with\n{}",
            self.log.display(),
            process::tail(&self.log, 15)
        )
    }

    /// Starts all instances of every function that has a route, by asking as many at once; whatever they answer.
    pub async fn warm(&self, base_url: &str) {
        let client = reqwest::Client::new();
        let mut asked = tokio::task::JoinSet::new();
        for (method, path) in &self.calls {
            for _ in 0..INSTANCES {
                let request = client.request(method.clone(), format!("{base_url}{path}"));
                asked.spawn(request.timeout(Duration::from_secs(60)).send());
            }
        }
        asked.join_all().await;
    }

    /// Returns when the server ends by itself, which is always an error.
    ///
    /// # Errors
    /// Always: its exit status and the last lines of its log.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        let status = self.server.wait().await?;
        bail!(
            "cargo lambda watch ended ({status}); {} ends with\n{}",
            self.log.display(),
            process::tail(&self.log, 15)
        )
    }

    /// Ends the server and every instance.
    pub async fn end(mut self) {
        let pid = self.server.pid();
        // Both at once: until it is waited for, an ended child still counts as running.
        let _ = tokio::join!(process::end_tree(pid), self.server.wait());
        let _ = remove(&self.pid_file);
    }
}

/// An empty folder for the watcher to stand in. Changes are ignored, and yet it walks through all that is below its
/// folder, once for each instance: `target/` and `.local/` would take most of the start.
fn nothing_to_watch(workspace: &Workspace) -> Result<PathBuf> {
    let dir = workspace.local("watch");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

fn pid_file(workspace: &Workspace) -> PathBuf {
    workspace.local("functions.pid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watcher_finds_nothing_to_walk_through() {
        let dir = Workspace::open().and_then(|workspace| nothing_to_watch(&workspace)).expect("a folder");
        assert_eq!(std::fs::read_dir(dir).expect("a list").count(), 0);
    }

    #[test]
    fn a_parameter_becomes_an_id_and_the_rest_of_the_path_stays() {
        assert_eq!(with_ids("/skus"), "/skus");
        assert_eq!(
            with_ids("/orders/{id}/allocate"),
            "/orders/00000000-0000-0000-0000-000000000000/allocate"
        );
    }
}
