//! Whoever breaks things: connections, sandboxes, the database server, the partner. And the jobs, which overlap.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use testing::emulator::event;
use xtask::postgres::{Cluster, Purpose};

use crate::fleet::Fleet;
use crate::network::{Fault, Network};
use crate::partner::{Mood, Partner};

/// The longest freeze: past every time limit of a request and of a session.
const LONGEST_FREEZE: Duration = Duration::from_secs(20);
/// Between two crashes of the database server.
const CRASH_EVERY: Duration = Duration::from_secs(20);

/// What was done, by kind.
#[derive(Default)]
pub struct Counts {
    pub faults: AtomicU64,
    pub kills: AtomicU64,
    pub freezes: AtomicU64,
    pub crashes: AtomicU64,
    pub drains: AtomicU64,
}

/// Everything that can be broken.
pub struct Nemesis {
    pub network: Arc<Network>,
    pub fleet: Arc<Fleet>,
    pub partner: Arc<Partner>,
    pub cluster: Arc<Cluster>,
    pub port: u16,
    pub owner_url: String,
    pub seed: u64,
    pub counts: Counts,
    pub over: AtomicBool,
}

impl Nemesis {
    fn rng(&self, of: u64) -> StdRng {
        StdRng::seed_from_u64(self.seed ^ of.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::SeqCst)
    }

    async fn pause(&self, rng: &mut StdRng, ms: std::ops::Range<u64>) {
        tokio::time::sleep(Duration::from_millis(rng.random_range(ms))).await;
    }

    /// Strikes connections.
    pub async fn break_connections(self: Arc<Self>) {
        let mut rng = self.rng(1);
        while self.goes_on() {
            self.pause(&mut rng, 20..250).await;
            let fault = match rng.random_range(0..20) {
                0..3 => Fault::Cut,
                3..6 => Fault::LoseRequest,
                6..8 => Fault::HalfRequest,
                8..12 => Fault::LoseAnswer,
                12..14 => Fault::HalfAnswer,
                14 => Fault::Silence,
                15 => Fault::SilentAnswer,
                _ => Fault::Delay(Duration::from_millis(rng.random_range(5..800))),
            };
            if rng.random_bool(0.01) {
                self.network.strike_all(fault);
            } else {
                self.network.strike(|open| rng.random_range(0..open), fault);
            }
            self.counts.faults.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Kills and freezes sandboxes; a frozen one goes on after a while.
    pub async fn break_sandboxes(self: Arc<Self>) {
        let mut rng = self.rng(2);
        while self.goes_on() {
            self.pause(&mut rng, 100..900).await;
            let running = self.fleet.running();
            if running.is_empty() {
                continue;
            }
            let (_, sandbox) = running[rng.random_range(0..running.len())].clone();
            if rng.random_bool(0.5) {
                // It may have ended meanwhile.
                let _ = sandbox.kill().await;
                self.counts.kills.fetch_add(1, Ordering::SeqCst);
            } else if sandbox.freeze().await.is_ok() {
                self.counts.freezes.fetch_add(1, Ordering::SeqCst);
                let ms = match rng.random_bool(0.3) {
                    true => rng.random_range(3_000..LONGEST_FREEZE.as_millis() as u64),
                    false => rng.random_range(50..3_000),
                };
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    let _ = sandbox.thaw();
                });
            }
        }
    }

    /// Crashes the database server and starts it again.
    pub async fn crash_server(self: Arc<Self>) -> Result<()> {
        let mut rng = self.rng(3);
        let mut last = Instant::now();
        while self.goes_on() {
            self.pause(&mut rng, 500..3_000).await;
            if last.elapsed() < CRASH_EVERY || !self.goes_on() {
                continue;
            }
            self.cluster.crash().await?;
            self.pause(&mut rng, 0..1_500).await;
            self.cluster.start(self.port, &Purpose::Test).await?;
            self.counts.crashes.fetch_add(1, Ordering::SeqCst);
            last = Instant::now();
        }
        Ok(())
    }

    /// Changes the partner's mood.
    pub async fn spoil_partner(self: Arc<Self>) {
        let mut rng = self.rng(4);
        while self.goes_on() {
            let mood = match rng.random_range(0..10) {
                0..4 => Mood::Well,
                4..6 => Mood::Flaky,
                6 => Mood::Fails,
                7 => Mood::Busy,
                _ => Mood::Hangs(Duration::from_millis(rng.random_range(50..4_000))),
            };
            self.partner.behave(mood);
            self.pause(&mut rng, 500..4_000).await;
        }
    }

    /// Holds an old snapshot of the database again and again, as a dump does.
    pub async fn hold_snapshots(self: Arc<Self>) {
        let mut rng = self.rng(5);
        while self.goes_on() {
            if let Ok(mut conn) = PgConnection::connect(&self.owner_url).await {
                let begun = sqlx::raw_sql(AssertSqlSafe(
                    "begin isolation level repeatable read; select count(*) from sku_position",
                ));
                if begun.execute(&mut conn).await.is_ok() {
                    self.pause(&mut rng, 1_000..8_000).await;
                }
            }
            self.pause(&mut rng, 200..2_000).await;
        }
    }

    /// The warehouse counts what the books say, now and then some units more or less. Where the server is down it counts nothing.
    async fn count_stock(&self, rng: &mut StdRng) {
        let Ok(mut conn) = PgConnection::connect(&self.owner_url).await else { return };
        let books: Result<Vec<(String, i64)>, _> = sqlx::query_as(
            "select s.code, p.on_hand from sku s join sku_position p on p.tenant_id = s.tenant_id and p.sku_id = s.id
             where s.code like 'CHAOS-%' order by s.code",
        )
        .fetch_all(&mut conn)
        .await;
        let Ok(mut counted) = books else { return };
        for (_, units) in &mut counted {
            if rng.random_bool(0.3) {
                *units = (*units + rng.random_range(-4..=4)).max(0);
            }
        }
        self.partner.counts(counted);
    }

    /// Invokes the relay side by side and over each other, and the other jobs now and then.
    pub async fn run_jobs(self: Arc<Self>) {
        let mut rng = self.rng(6);
        while self.goes_on() {
            self.pause(&mut rng, 100..1_200).await;
            let (function, payload) = match rng.random_range(0..20) {
                0 if self.fleet.has("reaper") => ("reaper", event::scheduled("reaper")),
                1 | 2 if self.fleet.has("reconcile") => {
                    self.count_stock(&mut rng).await;
                    ("reconcile", event::scheduled("reconcile"))
                }
                n => ("relay", json!({"watchSeconds": n % 4})),
            };
            let this = self.clone();
            tokio::spawn(async move {
                // Killed, frozen or failed: the next one goes on.
                let _ = this.fleet.invoke(function, payload.to_string(), Duration::from_secs(60)).await;
                this.counts.drains.fetch_add(1, Ordering::SeqCst);
            });
        }
    }
}
