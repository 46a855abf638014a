//! The deployed functions: sandboxes of the real binaries under the emulator, as many as there are requests at a time.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use testing::emulator::event::HttpAnswer;
use testing::emulator::{Function, Sandbox};

/// Sandboxes of one function at most: concurrency that is reserved for it.
const CAP: usize = 8;
/// How long an invocation waits for a sandbox, as a throttled request is refused.
const WAITS: Duration = Duration::from_secs(3);

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost(pub String);

#[derive(Default)]
struct Pool {
    idle: Vec<Arc<Sandbox>>,
    all: Vec<Arc<Sandbox>>,
}

/// All functions. Sandboxes are killed when this is dropped.
pub struct Fleet {
    functions: BTreeMap<String, Function>,
    pools: Mutex<HashMap<String, Pool>>,
    started: AtomicU64,
}

impl Fleet {
    /// Functions with these binaries; each gets the whole environment.
    pub fn new(binaries: &[(String, PathBuf)], env: &[(String, String)], log: &Path) -> Self {
        let function = |(name, binary): &(String, PathBuf)| {
            let mut function = Function::new(name, binary);
            function.env = env.to_vec();
            function.log = Some(log.join(format!("{name}.log")));
            (name.clone(), function)
        };
        Self {
            functions: binaries.iter().map(function).collect(),
            pools: Mutex::default(),
            started: AtomicU64::new(0),
        }
    }

    /// Whether there is a function of this name.
    pub fn has(&self, function: &str) -> bool {
        self.functions.contains_key(function)
    }

    /// Sandboxes that were started so far.
    pub fn started(&self) -> u64 {
        self.started.load(Ordering::SeqCst)
    }

    fn pools(&self) -> MutexGuard<'_, HashMap<String, Pool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Invokes the function in an idle sandbox or a new one. `timeout` is the function's; the sandbox is killed at its end.
    pub async fn invoke(&self, function: &str, event: String, timeout: Duration) -> Result<Vec<u8>, Lost> {
        let sandbox = self.sandbox(function).await?;
        let invoked = sandbox.invoke(event, timeout).await;
        let mut pools = self.pools();
        let pool = pools.entry(function.to_owned()).or_default();
        match invoked {
            Ok(invoked) => {
                pool.idle.push(sandbox);
                Ok(invoked.payload.to_vec())
            }
            Err(error) => {
                pool.all.retain(|one| !Arc::ptr_eq(one, &sandbox));
                Err(Lost(error.to_string()))
            }
        }
    }

    /// As [`Self::invoke`], for a function that answers HTTP.
    pub async fn request(
        &self,
        function: &str,
        event: String,
        timeout: Duration,
    ) -> Result<HttpAnswer, Lost> {
        let payload = self.invoke(function, event, timeout).await?;
        HttpAnswer::read(&payload).map_err(|error| Lost(format!("{error:#}")))
    }

    async fn sandbox(&self, function: &str) -> Result<Arc<Sandbox>, Lost> {
        let begun = std::time::Instant::now();
        loop {
            let room = {
                let mut pools = self.pools();
                let pool = pools.entry(function.to_owned()).or_default();
                pool.all.retain(|sandbox| sandbox.is_running());
                while let Some(sandbox) = pool.idle.pop() {
                    if sandbox.is_running() {
                        return Ok(sandbox);
                    }
                }
                pool.all.len() < CAP
            };
            if room {
                return self.start(function).await;
            }
            if begun.elapsed() > WAITS {
                return Err(Lost("throttled".into()));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn start(&self, function: &str) -> Result<Arc<Sandbox>, Lost> {
        let known = self.functions.get(function).ok_or_else(|| Lost(format!("no function {function}")))?;
        let sandbox = Arc::new(Sandbox::start(known).await.map_err(|error| Lost(error.to_string()))?);
        self.started.fetch_add(1, Ordering::SeqCst);
        self.pools().entry(function.to_owned()).or_default().all.push(sandbox.clone());
        Ok(sandbox)
    }

    /// All sandboxes that run, in no order that matters.
    pub fn running(&self) -> Vec<(String, Arc<Sandbox>)> {
        let pools = self.pools();
        let mut names: Vec<_> = pools.keys().cloned().collect();
        names.sort();
        let of = |name: String| {
            let sandboxes = pools[&name].all.iter().filter(|sandbox| sandbox.is_running()).cloned();
            sandboxes.map(move |sandbox| (name.clone(), sandbox)).collect::<Vec<_>>()
        };
        names.into_iter().flat_map(of).collect()
    }

    /// Kills every sandbox.
    pub async fn end(&self) {
        for (_, sandbox) in self.running() {
            // It may have ended by itself meanwhile.
            let _ = sandbox.kill().await;
        }
        self.pools().clear();
    }
}
