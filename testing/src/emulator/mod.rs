//! A Lambda emulator: sandboxes (Lambda's execution environments) that run any bootstrap binary, each with its own Runtime
//! API.
//!
//! Promises what Lambda promises: one invocation at a time per sandbox; each event with a request id, the real deadline
//! and a trace header; a function that exceeds its timeout is killed with its sandbox; a sandbox can be frozen between
//! invocations and is thawed by the next one. In addition a caller can freeze, thaw and kill it at any moment.
//! Relies on the Runtime API of 2018-06-01: HTTP on loopback, one port per sandbox.
//! Does not promise isolation, a memory limit or a CPU share: a sandbox is an ordinary process. A dead sandbox is not
//! replaced; that is left to the caller.

pub mod event;
mod runtime_api;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use runtime_api::{Delivery, Phase, RuntimeApi};

/// Lambda's limit for the init phase.
const INIT_WITHIN: Duration = Duration::from_secs(10);
/// A stop signal reaches every thread within microseconds; a machine under load may need longer.
const FROZEN_WITHIN: Duration = Duration::from_secs(5);
const MEMORY_MB: u32 = 256;

/// A function's configuration, as in its deployment.
#[derive(Clone, Debug)]
pub struct Function {
    /// `AWS_LAMBDA_FUNCTION_NAME`.
    pub name: String,
    /// The bootstrap binary.
    pub binary: PathBuf,
    /// The function's own variables. It gets these and Lambda's, but none of the caller's.
    pub env: Vec<(String, String)>,
    /// `AWS_LAMBDA_FUNCTION_MEMORY_SIZE`; not enforced.
    pub memory_mb: u32,
    /// Whether a sandbox is frozen while it waits for an event, as on Lambda.
    pub freezes_between: bool,
    /// Receives standard output and error, appended; `None` discards them.
    pub log: Option<PathBuf>,
}

impl Function {
    /// With 256 MB, not frozen between invocations, without a log.
    pub fn new(name: impl Into<String>, binary: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            binary: binary.into(),
            env: Vec::new(),
            memory_mb: MEMORY_MB,
            freezes_between: false,
            log: None,
        }
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }
}

/// Why there was no response.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The process or its Runtime API could not be started.
    #[error("cannot start {name}: {source}")]
    Start {
        /// The function's name.
        name: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The function reported an init error, or did not ask for an event within 10 s.
    #[error("init failed: {0}")]
    Init(String),
    /// The function reported an error: the error document, as it was sent.
    #[error("the function failed: {0}")]
    Function(String),
    /// No response within the timeout; the sandbox was killed.
    #[error("no answer within {0:?}")]
    TimedOut(Duration),
    /// The process has ended, with this status.
    #[error("the sandbox ended: {0}")]
    Ended(String),
    /// A signal could not be sent, or the process cannot be inspected.
    #[error("cannot reach the process: {0}")]
    Process(String),
}

/// An invocation's response.
#[derive(Clone, Debug)]
pub struct Invoked {
    /// For an HTTP function see [`event::HttpAnswer::read`].
    pub payload: Bytes,
    /// From handing out the event to the end of the response.
    pub duration: Duration,
}

/// One sandbox: a process and its Runtime API. The process is killed when this is dropped.
pub struct Sandbox {
    pid: Pid,
    started: Instant,
    phase: watch::Receiver<Phase>,
    deliveries: mpsc::Sender<Delivery>,
    /// Held during an invocation: the next one waits.
    turn: tokio::sync::Mutex<()>,
    api: Arc<RuntimeApi>,
    tasks: [JoinHandle<()>; 2],
}

impl Sandbox {
    /// Starts the process, but does not wait for its init phase, as [`Sandbox::ready`] does.
    pub async fn start(function: &Function) -> Result<Self, SandboxError> {
        let failed = |source| SandboxError::Start { name: function.name.clone(), source };
        let (deliveries, pending) = mpsc::channel(1);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?.to_string();
        let mut command = command(function, &address).map_err(failed)?;
        let started = Instant::now();
        let mut child = command.spawn().map_err(failed)?;
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        let pid = Pid::from_raw(id.ok_or_else(|| failed(std::io::Error::other("it ended at once")))?);
        let (api, phase) = RuntimeApi::new(function, pid, started, pending);
        let served = tokio::spawn(runtime_api::serve(listener, api.clone()));
        let watched = api.clone();
        let reaped = tokio::spawn(async move {
            let status = child.wait().await.map_or_else(|e| e.to_string(), |s| s.to_string());
            watched.ended(status);
        });
        Ok(Self {
            pid,
            started,
            phase,
            deliveries,
            turn: tokio::sync::Mutex::new(()),
            api,
            tasks: [served, reaped],
        })
    }

    /// Waits for the end of the init phase and returns its length, from exec to the first poll for an event.
    pub async fn ready(&self) -> Result<Duration, SandboxError> {
        if let Phase::Ready(init) = &*self.phase.borrow() {
            return Ok(*init);
        }
        let mut phase = self.phase.clone();
        let waited =
            tokio::time::timeout(INIT_WITHIN, phase.wait_for(|phase| !matches!(phase, Phase::Starting)));
        match waited.await {
            Ok(Ok(reached)) => match &*reached {
                Phase::Ready(init) => Ok(*init),
                Phase::InitFailed(error) => Err(SandboxError::Init(error.clone())),
                Phase::Ended { status, .. } => Err(SandboxError::Ended(status.clone())),
                Phase::Starting => Err(SandboxError::Init("still starting".into())),
            },
            Ok(Err(_)) => Err(SandboxError::Ended("its Runtime API is gone".into())),
            Err(_) => Err(SandboxError::Init(format!("no poll for an event within {INIT_WITHIN:?}"))),
        }
    }

    /// Hands one event to the function and waits for the response; concurrent calls wait for each other. After `timeout`,
    /// which the function sees as its deadline, the sandbox is killed, as on Lambda.
    pub async fn invoke(&self, event: impl Into<Bytes>, timeout: Duration) -> Result<Invoked, SandboxError> {
        let _turn = self.turn.lock().await;
        self.ready().await?;
        let (answer_to, answer) = oneshot::channel();
        let delivery = Delivery { event: event.into(), timeout, answer_to };
        if self.deliveries.send(delivery).await.is_err() {
            return Err(SandboxError::Ended("its Runtime API is gone".into()));
        }
        tokio::select! {
            biased;
            answer = answer => match answer {
                Ok(answer) => answer.map_err(SandboxError::Function),
                Err(_) => Err(self.ended()),
            },
            () = self.gone() => Err(self.ended()),
            () = tokio::time::sleep(timeout) => {
                self.kill().await?;
                Err(SandboxError::TimedOut(timeout))
            }
        }
    }

    /// Stops every thread and waits until all are stopped. No event thaws the sandbox, only [`Sandbox::thaw`].
    pub async fn freeze(&self) -> Result<(), SandboxError> {
        self.api.hold(true);
        self.signal(Signal::SIGSTOP)?;
        let begun = Instant::now();
        while !is_stopped(self.pid)? {
            if begun.elapsed() > FROZEN_WITHIN {
                return Err(SandboxError::Process("it does not stop".into()));
            }
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Lets all threads continue.
    pub fn thaw(&self) -> Result<(), SandboxError> {
        self.api.hold(false);
        self.signal(Signal::SIGCONT)
    }

    /// Kills the process, whatever it is doing, and waits for its end.
    pub async fn kill(&self) -> Result<(), SandboxError> {
        if self.is_running() {
            self.signal(Signal::SIGKILL)?;
        }
        self.gone().await;
        Ok(())
    }

    /// Whether the process has not ended; also true while it is frozen.
    pub fn is_running(&self) -> bool {
        !matches!(&*self.phase.borrow(), Phase::Ended { .. })
    }

    /// The time since exec.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The process id, which is also the process group's.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw()
    }

    /// The peak resident memory so far (`VmHWM`) in KiB. On Linux only.
    pub fn peak_memory_kib(&self) -> Result<u64, SandboxError> {
        let path = format!("/proc/{}/status", self.pid);
        let status =
            std::fs::read_to_string(&path).map_err(|e| SandboxError::Process(format!("{path}: {e}")))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        line.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse().ok())
            .ok_or_else(|| SandboxError::Process(format!("{path} holds no VmHWM")))
    }

    fn signal(&self, signal: Signal) -> Result<(), SandboxError> {
        if !self.is_running() {
            return Err(self.ended());
        }
        kill(self.pid, signal).map_err(|e| SandboxError::Process(e.to_string()))
    }

    /// Waits for the end of the process.
    async fn gone(&self) {
        let mut phase = self.phase.clone();
        // An error means that the sender was dropped, which happens only after that.
        let _ = phase.wait_for(|phase| matches!(phase, Phase::Ended { .. })).await;
    }

    fn ended(&self) -> SandboxError {
        match &*self.phase.borrow() {
            Phase::Ended { status, .. } => SandboxError::Ended(status.clone()),
            _ => SandboxError::Ended("its Runtime API dropped the invocation".into()),
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.is_running() {
            // Fails if it has just ended. The waiting task reaps it.
            let _ = kill(self.pid, Signal::SIGKILL);
        }
        self.tasks[0].abort();
    }
}

/// The process with Lambda's environment, and nothing of the caller's.
fn command(function: &Function, runtime_api: &str) -> std::io::Result<Command> {
    let task_root = function.binary.parent().unwrap_or(Path::new("/")).to_owned();
    let mut command = Command::new(&function.binary);
    command
        .env_clear()
        .env("AWS_LAMBDA_RUNTIME_API", runtime_api)
        .env("AWS_LAMBDA_FUNCTION_NAME", &function.name)
        .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
        .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", function.memory_mb.to_string())
        .env("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand")
        .env("AWS_LAMBDA_LOG_GROUP_NAME", format!("/aws/lambda/{}", function.name))
        .env("AWS_LAMBDA_LOG_STREAM_NAME", "2026/01/01/[$LATEST]local")
        .env("AWS_REGION", event::REGION)
        .env("AWS_DEFAULT_REGION", event::REGION)
        .env("_HANDLER", "bootstrap")
        .env("LAMBDA_TASK_ROOT", &task_root)
        .env("LAMBDA_RUNTIME_DIR", "/var/runtime")
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("LANG", "en_US.UTF-8")
        .env("TZ", ":UTC")
        .envs(function.env.iter().map(|(name, value)| (name, value)))
        .current_dir(&task_root)
        .stdin(Stdio::null())
        // So that Ctrl-C reaches only the caller, which ends its sandboxes in its own order.
        .process_group(0)
        .kill_on_drop(true);
    match &function.log {
        None => command.stdout(Stdio::null()).stderr(Stdio::null()),
        Some(path) => {
            let log = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
            command.stdout(log.try_clone()?).stderr(log)
        }
    };
    Ok(command)
}

/// Whether every thread is stopped. Without `/proc` it is assumed, if the process exists.
fn is_stopped(pid: Pid) -> Result<bool, SandboxError> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return match kill(pid, None) {
            Ok(()) => Ok(true),
            Err(error) => Err(SandboxError::Process(error.to_string())),
        };
    };
    for thread in threads.flatten() {
        // A thread that has ended meanwhile counts as stopped.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        if !matches!(state, Some('T' | 't' | 'Z' | 'X') | None) {
            return Ok(false);
        }
    }
    Ok(true)
}
