//! The nightly reconciliation: what 3PLs count becomes what positions say. A run of a tenant is a sequence of pages, each one
//! statement and one transaction: pages of reports become snapshots; then the counts are compared with what the books held at
//! their moment; then the differences are booked.
//!
//! Promises: a page's rows, its bookings and the checkpoint commit together, once; a run that stops anywhere goes on at its
//! checkpoint; two invocations do not work at one run. What moved after a count is not taken back. Nothing is booked before
//! all accounts are walked, nor where differences are larger than a person has allowed. No transaction is open during a call.
//! Relies on: `migrations/functions/7_operations/reconcile*.sql`, where all decisions under a lock are made.
//! Does not promise that a run ends in one invocation: it stops in time, and asks for its own continuation.

mod config;
pub mod page;
mod runs;
mod source;
mod work;

pub use config::{Config, Limits, Terms};

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws::mailer::aws_config;
use aws::scheduler::{Scheduled, Scheduler};
use jiff::Timestamp;
use lambda_runtime::LambdaEvent;
use serde::Serialize;
use serde_json::{Value, json};
use shared::db::connection::Db;
use shared::db::error::DbError;
use shared::delivery::address::Guard;
use shared::delivery::fetch::Fetcher;
use shared::runtime::config::ConfigError;
use shared::runtime::metrics::{Line, Unit};
use shared::runtime::sealed::{self, Sealer};
use tokio::time::Instant;
use uuid::Uuid;

use crate::runs::{Claim, Runs, State, Totals};
use crate::work::{End, Work};

/// A run that stopped with an error. It goes on with the next invocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Whose run.
    pub tenant_id: Uuid,
    /// The run.
    pub run_id: Uuid,
    /// Why, for a person.
    pub error: String,
}

/// The answer of an invocation: the runs that it worked at, with what they came to in all.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// Runs that were booked to the end.
    pub completed: u64,
    /// Runs that wait for a person.
    pub held: u64,
    /// Units of the differences of runs that this invocation held back.
    pub held_units: u64,
    /// Runs that stopped with an error, see `errors`.
    pub failed: u64,
    /// Whether another invocation works at a run that was meant.
    pub running: bool,
    /// Whether time was up before all was done.
    pub more: bool,
    /// Pages of reports.
    pub pages: u64,
    /// Lines on them.
    pub lines: u64,
    /// SKUs that were counted.
    pub skus: u64,
    /// SKUs that differed.
    pub variances: u64,
    /// SKUs whose difference was booked.
    pub booked: u64,
    /// Units that were added to positions.
    pub units_up: u64,
    /// Units that were taken from positions.
    pub units_down: u64,
    /// Units that could not be taken, since they are promised.
    pub units_short: u64,
    /// Codes that name no SKU.
    pub unknown: u64,
    /// Lines that could not be used.
    pub invalid: u64,
    /// Further lines of one SKU at one account.
    pub duplicates: u64,
    /// SKUs with stock that no account lists.
    pub missing: u64,
    /// How long it took.
    pub seconds: f64,
    /// What failed.
    pub errors: Vec<Failure>,
}

impl Summary {
    fn add(&mut self, run: &Totals) {
        self.pages += run.pages;
        self.lines += run.lines;
        self.skus += run.skus;
        self.variances += run.variances;
        self.booked += run.booked;
        self.units_up += run.units_up;
        self.units_down += run.units_down;
        self.units_short += run.units_short;
        self.unknown += run.unknown;
        self.invalid += run.invalid;
        self.duplicates += run.duplicates;
        self.missing += run.missing;
        self.held_units += run.variance_units;
    }
}

/// What an invocation is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// One tenant's inventory; `None`: everybody's.
    pub tenant: Option<Uuid>,
    /// Only go on with runs that are open, and begin none.
    pub resume: bool,
}

/// Why an invocation ended early. The runs go on with the next one.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Also after reconnects.
    #[error("the database cannot be used: {0}")]
    Database(#[from] DbError),
    /// TLS cannot be set up.
    #[error("no HTTP client: {0}")]
    Client(#[from] reqwest::Error),
    /// The event is not understood.
    #[error("the event's tenantId is not a UUID")]
    Event,
}

/// The state of one sandbox.
pub struct Reconciler {
    db: Db,
    /// Sizes and times.
    pub limits: Limits,
    /// What a person must see first.
    pub terms: Terms,
    /// Admits addresses of accounts.
    pub guard: Guard,
    /// Opens the tokens of accounts.
    pub sealer: Sealer,
    /// Names the day.
    pub zone: String,
    /// `None`: no continuation is asked for.
    pub scheduler: Option<Scheduler>,
}

impl Reconciler {
    /// The deployed job. The error names the variable that is missing or wrong.
    pub async fn new(config: &Config) -> Result<Self, ConfigError> {
        let db =
            Db::new(&config.database).map_err(|_| ConfigError::new("WORKER_DATABASE_URL", "is wrong"))?;
        let limits = Limits { max_age: config.max_age, ..Limits::default() };
        let mut reconciler = Self::with(db, limits, config.terms);
        (reconciler.guard, reconciler.zone) = (config.guard.clone(), config.zone.clone());
        reconciler.sealer = sealed::optional_from_env().await?;
        // Without a region the SDK would search the network for one.
        if config.aws {
            reconciler.scheduler = Scheduler::from_env(&aws_config().await)?;
        }
        Ok(reconciler)
    }

    /// For public addresses and tokens that are stored unsealed, without continuations.
    pub fn with(db: Db, limits: Limits, terms: Terms) -> Self {
        let (guard, sealer) = (Guard::default(), Sealer::default());
        Self { db, limits, terms, guard, sealer, zone: "UTC".into(), scheduler: None }
    }

    /// Works at all runs that were asked for, until they have ended or `deadline` is near; then asks for a continuation.
    pub async fn run_once(&self, request: Request, deadline: Instant) -> Result<Summary, ReconcileError> {
        let begun = Instant::now();
        let stop_at = deadline.checked_sub(self.limits.margin).unwrap_or(begun);
        let runs = Runs { db: &self.db, lease: self.limits.lease };
        if !request.resume {
            runs.begin(request.tenant, &self.zone).await?;
        }
        let mut summary = Summary::default();
        self.work(&runs, request.tenant, stop_at, &mut summary).await?;
        if summary.more {
            self.ask_for_continuation().await;
        }
        summary.seconds = begun.elapsed().as_secs_f64();
        metrics(&summary).write();
        Ok(summary)
    }

    async fn work(
        &self,
        runs: &Runs<'_>,
        tenant: Option<Uuid>,
        stop_at: Instant,
        summary: &mut Summary,
    ) -> Result<(), ReconcileError> {
        // Not at cold start: connections that were open when a sandbox froze are dead.
        let fetcher = Fetcher::new(self.limits.request, self.limits.page_max_bytes, self.guard.clone())?;
        let mut failed = Vec::new();
        let mut lease_ends: Option<Instant> = None;
        loop {
            if Instant::now() >= stop_at {
                summary.more = true;
                return Ok(());
            }
            let Claim { run, busy, held } = runs.claim(tenant, &failed).await?;
            summary.held = held;
            let Some(claimed) = run else {
                let Some(busy) = busy else { return Ok(()) };
                // A lease that is prolonged has an owner. One that is not will be free: its owner died.
                let ends = Instant::now() + busy;
                if lease_ends.is_some_and(|before| ends > before + self.limits.renewal / 4) {
                    summary.running = true;
                    return Ok(());
                }
                lease_ends.get_or_insert(ends);
                tokio::time::sleep(busy.min(self.limits.renewal / 4)).await;
                continue;
            };
            lease_ends = None;
            let (tenant_id, run_id) = (claimed.tenant_id, claimed.run_id);
            let mut work = Work::new(self, runs, &fetcher, claimed, stop_at);
            let end = work.run().await;
            summary.add(&runs.totals(&work.run).await?);
            match end {
                End::State(State::Held) => summary.held += 1,
                End::State(_) => summary.completed += 1,
                End::Stopped => summary.more = true,
                End::Lost => {
                    tracing::warn!(%tenant_id, %run_id, "the run is another's now, or was dropped");
                    failed.push(run_id);
                }
                End::Failed(error) => {
                    tracing::error!(%tenant_id, %run_id, error, "a reconciliation stopped");
                    failed.push(run_id);
                    summary.failed += 1;
                    summary.errors.push(Failure { tenant_id, run_id, error });
                }
            }
        }
    }

    /// A failure is only logged: the next tick goes on.
    async fn ask_for_continuation(&self) {
        let Some(scheduler) = &self.scheduler else { return };
        let minute = Timestamp::now().as_second().div_euclid(60) + 1;
        let Ok(at) = Timestamp::from_second(minute * 60) else { return };
        // Whoever asks in the same minute asks for the same.
        let name = format!("holdfast-reconcile-{minute}");
        match scheduler.once_at(&name, at, &json!({"resume": true})).await {
            Ok(Scheduled::Created) => tracing::info!(name, "continuation scheduled"),
            Ok(Scheduled::AlreadyThere) => tracing::info!(name, "continuation already scheduled"),
            Err(error) => tracing::warn!(%error, "no continuation scheduled"),
        }
    }
}

fn metrics(summary: &Summary) -> Line {
    #[expect(clippy::cast_precision_loss, reason = "counts of one night")]
    let count = |line: Line, (name, value): (&'static str, u64)| line.with(name, Unit::Count, value as f64);
    [
        ("RunsCompleted", summary.completed),
        ("RunsFailed", summary.failed),
        ("RunsHeld", summary.held),
        ("InventoryPages", summary.pages),
        ("InventorySkus", summary.skus),
        ("UnitsUp", summary.units_up),
        ("UnitsDown", summary.units_down),
        ("UnitsShort", summary.units_short),
        ("UnknownCodes", summary.unknown),
        ("InvalidLines", summary.invalid),
        ("MissingSkus", summary.missing),
    ]
    .into_iter()
    .fold(Line::of("reconcile"), count)
    .with("ReconcileTime", Unit::Seconds, summary.seconds)
}

/// One invocation. The event may be `{"tenantId"}`, to walk one tenant, or `{"resume":true}`, to go on with what is open; any
/// other, like that of a schedule, begins a night for all.
pub async fn handle(
    reconciler: &Reconciler,
    config: &Config,
    event: LambdaEvent<Value>,
) -> Result<Summary, ReconcileError> {
    let tenant = match event.payload.get("tenantId") {
        None | Some(Value::Null) => None,
        Some(id) => Some(id.as_str().and_then(|id| id.parse().ok()).ok_or(ReconcileError::Event)?),
    };
    let resume = event.payload.get("resume").and_then(Value::as_bool).unwrap_or(false);
    let deadline = Instant::now() + remaining(event.context.deadline, config.timeout);
    let summary = reconciler.run_once(Request { tenant, resume }, deadline).await?;
    tracing::info!(?summary, "reconciled");
    Ok(summary)
}

/// Time to the invocation's deadline. Local runtimes send one of 1970: then the configured time counts.
fn remaining(deadline_ms: u64, configured: Duration) -> Duration {
    let deadline = UNIX_EPOCH + Duration::from_millis(deadline_ms);
    deadline.duration_since(SystemTime::now()).unwrap_or(configured)
}
