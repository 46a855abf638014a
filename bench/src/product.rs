//! The product: sandboxes that run the release binary; each gets its next event when it has answered.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testing::emulator::event::{self, HttpAnswer};
use testing::emulator::{Function, Sandbox};
use tokio::task::JoinSet;

use super::sample::{Sample, Window};
use super::workload::{Allocation, TENANT, USER, Workload};
use holdfast::secrets::random_hex;
use xtask::tokens::TokenIssuer;

/// No request may take longer than API Gateway waits.
const TIMEOUT: Duration = Duration::from_secs(29);

/// Makes events for `allocate` from a template, which is cheaper than to serialize each.
#[derive(Clone)]
pub struct Events {
    issuer: TokenIssuer,
    /// The template's text, split at [`SLOTS`].
    pieces: Arc<[String]>,
}

/// Placeholders in the order of the template's text: in the body, in a header, and twice in the path.
const SLOTS: [&str; 4] = ["{sku}", "{key}", "{order}", "{order}"];

/// Longer than any event.
const EVENT_BYTES: usize = 2048;

impl Events {
    pub fn new() -> Result<Self> {
        let issuer = TokenIssuer {
            secret: random_hex(),
            issuer: "https://issuer.bench".into(),
            audience: "holdfast-bench".into(),
            tenant_claim: "tenant_id".into(),
            scope_claim: "scope".into(),
        };
        let token = issuer.token(TENANT.parse()?, USER.parse()?)?;
        let headers = [
            ("authorization", format!("Bearer {token}")),
            ("content-type", "application/json".into()),
            ("idempotency-key", "{key}".into()),
        ];
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let event =
            event::http("POST", "/orders/{order}/allocate", &headers, br#"{"skuId":"{sku}","qty":1}"#);
        let mut pieces = Vec::new();
        let mut rest = event.to_string();
        for slot in SLOTS {
            let (before, after) = rest
                .split_once(slot)
                .with_context(|| format!("the event has no {slot} where it is looked for"))?;
            pieces.push(before.to_owned());
            rest = after.to_owned();
        }
        pieces.push(rest);
        Ok(Self { issuer, pieces: pieces.into() })
    }

    pub fn event(&self, wanted: &Allocation) -> String {
        let fillings = [&wanted.sku, &wanted.key, &wanted.order, &wanted.order];
        let mut event = String::with_capacity(EVENT_BYTES);
        for (piece, filling) in self.pieces.iter().zip(fillings) {
            event.push_str(piece);
            event.push_str(filling);
        }
        event.extend(self.pieces.last().map(String::as_str));
        event
    }

    /// `allocate`, configured to accept these events.
    pub fn function(&self, binary: &Path, database_url: String) -> Function {
        Function::new("allocate", binary)
            .env("APP_DATABASE_URL", database_url)
            .env("JWT_SECRET", &self.issuer.secret)
            .env("JWT_ISSUER", &self.issuer.issuer)
            .env("JWT_AUDIENCE", &self.issuer.audience)
            .env("JWT_TENANT_CLAIM", &self.issuer.tenant_claim)
            .env("JWT_SCOPE_CLAIM", &self.issuer.scope_claim)
    }
}

pub struct Product {
    sandboxes: Vec<Arc<Sandbox>>,
    events: Events,
}

impl Product {
    /// Starts `count` sandboxes and waits until each has its database connection.
    pub async fn start(function: &Function, events: &Events, count: usize) -> Result<Self> {
        let mut sandboxes = Vec::new();
        for _ in 0..count {
            sandboxes.push(Arc::new(Sandbox::start(function).await?));
        }
        for sandbox in &sandboxes {
            sandbox.ready().await?;
        }
        Ok(Self { sandboxes, events: events.clone() })
    }

    /// Keeps all sandboxes busy during the window. Latency is the time from handing out an event to its answer.
    pub async fn measure(&self, workload: Workload, window: Window) -> Result<Sample> {
        let mut clients = JoinSet::new();
        for sandbox in &self.sandboxes {
            clients.spawn(keep_busy(sandbox.clone(), self.events.clone(), workload, window));
        }
        let mut latencies_us = Vec::new();
        while let Some(client) = clients.join_next().await {
            latencies_us.extend(client??);
        }
        Ok(Sample::of(latencies_us, window.counted()))
    }

    /// Sends `count` requests, one after the other, to one sandbox.
    pub async fn send(&self, workload: Workload, count: usize) -> Result<()> {
        let sandbox = self.sandboxes.first().context("no sandbox")?;
        for _ in 0..count {
            allocate(sandbox, &self.events, workload).await?;
        }
        Ok(())
    }

    /// The largest peak of all sandboxes.
    pub fn peak_memory_kib(&self) -> Result<u64> {
        let peaks: Result<Vec<u64>, _> = self.sandboxes.iter().map(|s| s.peak_memory_kib()).collect();
        Ok(peaks?.into_iter().max().unwrap_or(0))
    }

    pub async fn end(self) -> Result<()> {
        for sandbox in self.sandboxes {
            sandbox.kill().await?;
        }
        Ok(())
    }
}

/// Returns the counted latencies in microseconds.
async fn keep_busy(
    sandbox: Arc<Sandbox>,
    events: Events,
    workload: Workload,
    window: Window,
) -> Result<Vec<u64>> {
    let mut latencies_us = Vec::new();
    while window.is_open() {
        let duration = allocate(&sandbox, &events, workload).await?;
        if window.counts() {
            latencies_us.push(u64::try_from(duration.as_micros())?);
        }
    }
    Ok(latencies_us)
}

/// One request. Any status but 200 ends the run, because a refusal is cheaper than an allocation.
pub async fn allocate(sandbox: &Sandbox, events: &Events, workload: Workload) -> Result<Duration> {
    let invoked = sandbox.invoke(events.event(&workload.next()), TIMEOUT).await?;
    // lambda_http writes the status first, so a success need not be parsed.
    if !invoked.payload.starts_with(br#"{"statusCode":200,"#) {
        let answer = HttpAnswer::read(&invoked.payload)?;
        if answer.status != 200 {
            bail!("allocate answered {}: {}", answer.status, String::from_utf8_lossy(&answer.body));
        }
    }
    Ok(invoked.duration)
}
