//! The functions, served by `cargo lambda watch` under their deployed paths, with several instances of each.

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

/// More than one, so that concurrent requests run on different instances, as on Lambda.
const INSTANCES: usize = 4;
/// Longest wait for the first healthy answer, once the functions are built.
const HEALTHY_WITHIN: Duration = Duration::from_secs(120);
/// Longest wait for one health check: the first one starts an instance.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(30);
const HEALTH_PAUSE: Duration = Duration::from_millis(100);
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(60);
const LOG_LINES: usize = 15;

/// Method and path of a request.
type Call = (reqwest::Method, String);

pub struct Built {
    /// The folder of the compiled functions.
    programs: PathBuf,
    warm_up: Vec<Call>,
}

/// Compiles every function, so that no request waits for the compiler.
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
    Ok(Built { programs: Path::new(target).join("debug"), warm_up: warm_up_calls(&metadata)? })
}

/// One call to each function that has a route. Sent without credentials, so it changes nothing.
fn warm_up_calls(metadata: &Value) -> Result<Vec<Call>> {
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

/// The path with an id that does not exist in place of each parameter.
fn with_ids(path: &str) -> String {
    let segments = path.split('/').map(|segment| match segment.starts_with('{') {
        true => "00000000-0000-0000-0000-000000000000",
        false => segment,
    });
    segments.collect::<Vec<_>>().join("/")
}

/// `cargo lambda watch` and the instances that it started.
pub struct Functions {
    server: Group,
    pid_file: PathBuf,
    log: PathBuf,
    warm_up: Vec<Call>,
}

impl Functions {
    /// Ends the server of an earlier run that was killed.
    pub async fn end_leftover(workspace: &Workspace) -> Result<()> {
        let pid_file = pid_file(workspace);
        if let Some(pid) = std::fs::read_to_string(&pid_file).ok().and_then(|text| text.trim().parse().ok())
            // The process id may belong to another program by now.
            && process::command_line(pid).await.is_some_and(|line| line.contains("lambda") && line.contains("watch"))
        {
            process::end_tree(pid).await;
        }
        remove(&pid_file)
    }

    /// Starts the server on `port` of loopback. The functions get `environment` and reach the Runtime API through the
    /// bridge on port `bridge`.
    pub fn start(
        workspace: &Workspace,
        venv: &Venv,
        built: Built,
        port: u16,
        bridge: u16,
        environment: &str,
    ) -> Result<Self> {
        let env_file = workspace.state("functions.env");
        write_private(&env_file, environment)?;
        let log = workspace.state("functions.log");
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = Command::new(venv.program("cargo-lambda"));
        command
            .args(["lambda", "watch", "--ignore-changes", "--invoke-address", "127.0.0.1", "--invoke-port"])
            .arg(port.to_string())
            .args(["--concurrency", &INSTANCES.to_string(), "--env-file"])
            .arg(&env_file)
            .current_dir(empty_folder(workspace)?)
            .env("CARGO", workspace.root().join("xtask/src/dev/run-built.sh"))
            .env("HOLDFAST_ROOT", workspace.root())
            .env("HOLDFAST_BUILT", &built.programs)
            .env("HOLDFAST_BRIDGE", format!("127.0.0.1:{bridge}"))
            .stdout(out.try_clone()?)
            .stderr(out);
        let server = Group::spawn(&mut command)?;
        let pid_file = pid_file(workspace);
        write_private(&pid_file, &server.pid().to_string())?;
        Ok(Self { server, pid_file, log, warm_up: built.warm_up })
    }

    /// Waits until `GET /health` answers 200.
    pub async fn wait_until_healthy(&mut self, base_url: &str) -> Result<()> {
        let client = reqwest::Client::new();
        let begun = Instant::now();
        let mut last = "no answer".to_owned();
        while begun.elapsed() < HEALTHY_WITHIN {
            let asked = client.get(format!("{base_url}/health")).timeout(HEALTH_TIMEOUT).send();
            tokio::select! {
                answer = asked => match answer {
                    Ok(answer) if answer.status() == 200 => return Ok(()),
                    Ok(answer) => last = answer.status().to_string(),
                    Err(error) => last = error.to_string(),
                },
                exited = self.exited() => return exited.map(|_| ()),
            }
            tokio::time::sleep(HEALTH_PAUSE).await;
        }
        bail!(
            "GET /health is not 200 ({last}); {} ends with\n{}",
            self.log.display(),
            process::tail(&self.log, LOG_LINES)
        )
    }

    /// Starts all instances of every function that has a route, by as many concurrent requests; ignores the answers.
    pub async fn warm_up(&self, base_url: &str) {
        let client = reqwest::Client::new();
        let mut asked = tokio::task::JoinSet::new();
        for (method, path) in &self.warm_up {
            for _ in 0..INSTANCES {
                let request = client.request(method.clone(), format!("{base_url}{path}"));
                asked.spawn(request.timeout(WARM_UP_TIMEOUT).send());
            }
        }
        asked.join_all().await;
    }

    /// Waits for the server's end; that it ends by itself is always an error.
    pub async fn exited(&mut self) -> Result<ExitStatus> {
        let status = self.server.wait().await?;
        bail!(
            "cargo lambda watch ended ({status}); {} ends with\n{}",
            self.log.display(),
            process::tail(&self.log, LOG_LINES)
        )
    }

    /// Ends the server and every instance.
    pub async fn end(mut self) {
        let pid = self.server.pid();
        // Both at once: an ended child counts as running until it is waited for.
        let _ = tokio::join!(process::end_tree(pid), self.server.wait());
        let _ = remove(&self.pid_file);
    }
}

/// An empty working folder for the watcher. Although it ignores changes, it walks through all files below its folder once
/// for each instance; `target/` and `.local/` would take most of the start.
fn empty_folder(workspace: &Workspace) -> Result<PathBuf> {
    let dir = workspace.local("watch");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

fn pid_file(workspace: &Workspace) -> PathBuf {
    workspace.state("functions.pid")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchers_folder_is_empty() {
        let dir = Workspace::open().and_then(|workspace| empty_folder(&workspace)).expect("a folder");
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
