//! The functions, served by `cargo lambda watch` under their deployed paths, several instances of each.

use std::fs::File;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::{self, Group, Step};
use crate::python::Venv;
use crate::workspace::{Workspace, remove, write_private};

/// Instances of each function, so that requests meet as they do in the cloud.
const INSTANCES: usize = 4;
/// From start to the first healthy answer; the functions are built by then.
const HEALTHY_WITHIN: Duration = Duration::from_secs(120);

/// The server with its instances.
pub struct Functions {
    server: Group,
    pid_file: PathBuf,
    log: PathBuf,
}

/// Compiles every function the very way the server will ask for it, so that no request waits for a compiler.
///
/// # Errors
/// When one does not compile; cargo has said why.
pub async fn build(workspace: &Workspace) -> Result<()> {
    let functions = workspace.functions()?;
    let step = Step::begin(format!(
        "building {} functions (minutes the first time)",
        functions.len()
    ));
    let mut cargo = process::cargo();
    cargo.current_dir(workspace.root()).arg("build");
    for function in &functions {
        cargo.args(["--bin", function]);
    }
    if !Group::spawn(&mut cargo)?.wait().await?.success() {
        bail!("the functions do not compile (see above)");
    }
    step.done();
    Ok(())
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

    /// Starts the server on this port of loopback, with this environment for the functions.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(workspace: &Workspace, venv: &Venv, port: u16, environment: &str) -> Result<Self> {
        let env_file = workspace.local("functions.env");
        write_private(&env_file, environment)?;
        let log = workspace.local("functions.log");
        let out = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut command = process::cargo();
        command
            .args([
                "lambda",
                "watch",
                "--ignore-changes",
                "--invoke-address",
                "127.0.0.1",
                "--invoke-port",
            ])
            .arg(port.to_string())
            .args(["--concurrency", &INSTANCES.to_string(), "--env-file"])
            .arg(&env_file)
            .current_dir(workspace.root())
            // cargo finds its sub-command `lambda` on the PATH.
            .env("PATH", path_with(venv)?)
            .stdout(out.try_clone()?)
            .stderr(out);
        let server = Group::spawn(&mut command)?;
        let pid_file = pid_file(workspace);
        write_private(&pid_file, &server.pid().to_string())?;
        Ok(Self {
            server,
            pid_file,
            log,
        })
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
            let asked = client
                .get(format!("{base_url}/health"))
                .timeout(Duration::from_secs(30))
                .send();
            tokio::select! {
                answer = asked => match answer {
                    Ok(answer) if answer.status() == 200 => return Ok(()),
                    Ok(answer) => last = answer.status().to_string(),
                    Err(error) => last = error.to_string(),
                },
                ended = self.ended() => return ended.map(|_| ()),
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!(
            "GET /health is not 200 ({last}); {} ends with\n{}",
            self.log.display(),
            process::tail(&self.log, 15)
        )
    }

    /// Starts all instances of the functions behind these requests (method, path) by asking for all of them at once;
    /// whatever they answer.
    pub async fn warm(base_url: &str, requests: &[(reqwest::Method, &str)]) {
        let client = reqwest::Client::new();
        let mut asked = tokio::task::JoinSet::new();
        for (method, path) in requests {
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

fn pid_file(workspace: &Workspace) -> PathBuf {
    workspace.local("functions.pid")
}

fn path_with(venv: &Venv) -> Result<std::ffi::OsString> {
    let first = venv.program("");
    let rest = std::env::var_os("PATH").unwrap_or_default();
    Ok(std::env::join_paths(
        std::iter::once(first).chain(std::env::split_paths(&rest)),
    )?)
}
