//! Throughput of allocate. Three implementations write the same rows into the same database: the product (the release
//! binary in the emulator's sandboxes), the floor (pgbench sends the leanest single statement that writes the same rows), and the
//! textbook (idempotency key, work and answer in one transaction each). They are measured alternately, so that a machine
//! that becomes slower slows all of them.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};

use crate::database::Database;
use crate::link::Link;
use crate::pgbench::{Pgbench, Run};
use crate::product::{Events, Product};
use crate::report::{Measured, Target};
use crate::sample::{self, Sample, Window, median};
use crate::stage::Stage;
use crate::textbook::Textbook;
use crate::workload::Workload;
use xtask::process::Step;

/// What the delayed link adds to a round trip.
const ROUND_TRIP: Duration = Duration::from_micros(500);
const TIMED_ROUND_TRIPS: usize = 200;
/// Clients of the cells that have targets.
const TARGET_CLIENTS: usize = 32;

struct Plan {
    clients: &'static [usize],
    rounds: usize,
    /// For product and textbook, whose sessions are kept for several rounds.
    warm_up: Duration,
    /// For pgbench, whose sessions are new in each round.
    floor_warm_up: Duration,
    counted: Duration,
}

impl Plan {
    fn new(quick: bool) -> Self {
        if quick {
            Self {
                clients: &[32],
                rounds: 2,
                warm_up: Duration::from_millis(200),
                floor_warm_up: Duration::from_millis(1000),
                counted: Duration::from_millis(1250),
            }
        } else {
            Self {
                clients: &[1, 8, 32],
                rounds: 5,
                warm_up: Duration::from_millis(300),
                floor_warm_up: Duration::from_millis(1500),
                counted: Duration::from_secs(3),
            }
        }
    }
}

/// Rounds of one workload over one link with one number of clients.
struct Cell {
    workload: Workload,
    delayed: bool,
    /// Sandboxes, pgbench clients and connections of the textbook.
    clients: usize,
    rounds: Vec<Round>,
}

/// The three implementations, measured one after the other.
#[derive(Clone, Copy, serde::Serialize)]
struct Round {
    product: Sample,
    floor: Sample,
    textbook: Sample,
}

struct Bench {
    database: Database,
    pgbench: Pgbench,
    events: Events,
    allocate: PathBuf,
    delayed: Link,
}

pub async fn measure(stage: &Stage<'_>) -> Result<Measured> {
    let plan = Plan::new(stage.quick);
    let [allocate] = stage.build(["allocate"]).await?;
    let database = stage.seeded_database("allocate").await?;
    let bench = Bench {
        pgbench: Pgbench::new(stage.venv, stage.dir.clone())?,
        events: Events::new()?,
        allocate,
        delayed: delayed_link(&database).await?,
        database,
    };
    let at_rest = added_by(&bench.delayed, &bench.database).await?;
    bench.delayed.take();
    let mut cells = Vec::new();
    for &clients in plan.clients {
        for delayed in [false, true] {
            cells.extend(bench.measure_group(&plan, clients, delayed).await?);
        }
    }
    let passed = bench.delayed.take();
    check(&bench.database).await?;
    let held_under_load = passed.held / u32::try_from(passed.chunks.max(1))?;
    let us = |duration: Duration| duration.as_secs_f64() * 1e6;
    Ok(Measured {
        table: table(&cells, at_rest, held_under_load * 2),
        json: json!({
            "cells": cells.iter().map(Cell::json).collect::<Vec<_>>(),
            "delayUs": {"wanted": us(ROUND_TRIP), "atRest": us(at_rest), "heldEachWayUnderLoad": us(held_under_load)},
        }),
        targets: targets(&cells),
    })
}

impl Bench {
    fn port(&self, delayed: bool) -> u16 {
        if delayed { self.delayed.port } else { self.database.port }
    }

    /// All rounds of both workloads with this number of clients of each implementation.
    async fn measure_group(&self, plan: &Plan, clients: usize, delayed: bool) -> Result<Vec<Cell>> {
        let link = if delayed { "0.5 ms more a round trip" } else { "direct" };
        let step = Step::begin(format!("{} rounds of {clients} clients, {link}", plan.rounds));
        let url = self.database.app_url(self.port(delayed));
        let function = self.events.function(&self.allocate, url.clone());
        let product = Product::start(&function, &self.events, clients).await?;
        let textbook = Textbook::connect(&url, clients).await?;
        let warm = || Window::begin(Duration::ZERO, plan.floor_warm_up);
        product.measure(Workload::Spread, warm()).await?;
        textbook.measure(Workload::Spread, warm()).await?;

        let mut cells = Workload::ALL.map(|workload| Cell { workload, delayed, clients, rounds: Vec::new() });
        for _ in 0..plan.rounds {
            for cell in &mut cells {
                let round =
                    self.measure_round(plan, &product, &textbook, cell.workload, clients, delayed).await?;
                cell.rounds.push(round);
            }
        }
        product.end().await?;
        step.done();
        Ok(cells.into())
    }

    async fn measure_round(
        &self,
        plan: &Plan,
        product: &Product,
        textbook: &Textbook,
        workload: Workload,
        clients: usize,
        delayed: bool,
    ) -> Result<Round> {
        let window = || Window::begin(plan.warm_up, plan.counted);
        self.database.run("checkpoint").await?;
        let of_product = product.measure(workload, window()).await?;
        self.database.run("checkpoint").await?;
        let times = (plan.floor_warm_up, plan.counted);
        let script = workload.floor_script();
        let run = Run { script: &script, port: self.port(delayed), clients, prepared: true, durable: true };
        let of_floor = self.pgbench.measure(&self.database, &run, times).await?;
        self.database.run("checkpoint").await?;
        let of_textbook = textbook.measure(workload, window()).await?;
        Ok(Round { product: of_product, floor: of_floor, textbook: of_textbook })
    }
}

/// Fails if any request was refused or left unfinished, or a position or line differs from its ledger.
async fn check(database: &Database) -> Result<()> {
    let mut owner = database.owner().await?;
    let (refused, unfinished, wrong): (i64, i64, i64) = sqlx::query_as(
        "select (select count(*) from idempotency_key where response_status <> 200),
                (select count(*) from bench.textbook_key where state <> 'done'),
                (select count(*) from position_audit) + (select count(*) from order_line_audit)",
    )
    .fetch_one(&mut owner)
    .await?;
    owner.close().await?;
    ensure!(
        refused == 0 && wrong == 0 && unfinished == 0,
        "the figures are void: {refused} requests were refused, {unfinished} keys of the textbook are unfinished, {wrong} \
         positions or lines differ from their ledgers"
    );
    Ok(())
}

/// A link that adds [`ROUND_TRIP`] to a round trip, the proxy's own cost included.
pub async fn delayed_link(database: &Database) -> Result<Link> {
    let proxy_alone = added_by(&Link::before(database.port, Duration::ZERO)?, database).await?;
    Link::before(database.port, ROUND_TRIP.saturating_sub(proxy_alone) / 2)
}

async fn added_by(link: &Link, database: &Database) -> Result<Duration> {
    let direct = round_trip(&database.app_url(database.port)).await?;
    let through = round_trip(&database.app_url(link.port)).await?;
    Ok(through.saturating_sub(direct))
}

/// The median time of the simplest query.
async fn round_trip(url: &str) -> Result<Duration> {
    let mut connection = PgConnection::connect(url).await?;
    let mut secs = Vec::new();
    for _ in 0..TIMED_ROUND_TRIPS {
        let begun = Instant::now();
        sqlx::raw_sql("select 1").execute(&mut connection).await?;
        secs.push(begun.elapsed().as_secs_f64());
    }
    connection.close().await?;
    Ok(Duration::from_secs_f64(sample::median(secs)))
}

impl Cell {
    fn link(&self) -> &'static str {
        if self.delayed { "0.5 ms" } else { "direct" }
    }

    fn of(&self, which: impl Fn(&Round) -> f64) -> f64 {
        median(self.rounds.iter().map(which))
    }

    fn times_floor(&self) -> f64 {
        self.of(|round| round.product.per_sec / round.floor.per_sec)
    }

    fn times_textbook(&self) -> f64 {
        self.of(|round| round.product.per_sec / round.textbook.per_sec)
    }

    fn json(&self) -> Value {
        json!({"workload": self.workload.name(), "link": self.link(), "clients": self.clients,
               "timesFloor": self.times_floor(), "timesTextbook": self.times_textbook(), "rounds": self.rounds})
    }
}

fn table(cells: &[Cell], at_rest: Duration, under_load: Duration) -> String {
    let rounds = cells.first().map_or(0, |cell| cell.rounds.len());
    let mut out = format!(
        "medians of {rounds} interleaved rounds (p50, p99 in ms)\n\
         product: release binary in N sandboxes · floor: pgbench, the leanest single statement · textbook: three transactions\n\n"
    );
    // Writing into a String cannot fail.
    let _ = writeln!(
        out,
        "{:<12} {:<7} {:>3}   {:>8} {:>7} {:>7}   {:>8} {:>7} {:>7}   {:>8} {:>7} {:>7}   {:>7} {:>10}",
        "workload",
        "link",
        "N",
        "product",
        "p50",
        "p99",
        "floor",
        "p50",
        "p99",
        "textbook",
        "p50",
        "p99",
        "× floor",
        "× textbook"
    );
    for cell in cells {
        let _ = write!(out, "{:<12} {:<7} {:>3}", cell.workload.name(), cell.link(), cell.clients);
        let samples: [fn(&Round) -> Sample; 3] = [|r| r.product, |r| r.floor, |r| r.textbook];
        for sample in samples {
            let _ = write!(
                out,
                "   {:>6.0}/s {:>7.2} {:>7.2}",
                cell.of(|r| sample(r).per_sec),
                cell.of(|r| sample(r).p50_ms),
                cell.of(|r| sample(r).p99_ms)
            );
        }
        let _ = writeln!(out, "   {:>7.2} {:>10.2}", cell.times_floor(), cell.times_textbook());
    }
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let _ = writeln!(
        out,
        "\ndelay: {:.2} ms a round trip wanted; {:.2} ms at rest, {:.2} ms under load (held by the proxy)",
        ms(ROUND_TRIP),
        ms(at_rest),
        ms(under_load)
    );
    out
}

fn targets(cells: &[Cell]) -> Vec<Target> {
    let mut targets = Vec::new();
    for cell in cells.iter().filter(|cell| cell.delayed && cell.clients == TARGET_CLIENTS) {
        let of = |what: &str| {
            format!("{}, 32 sandboxes, 0.5 ms: throughput over the {what}", cell.workload.name())
        };
        let textbook = |bound| Target::at_least(of("textbook's"), cell.times_textbook(), "×", bound);
        match cell.workload {
            Workload::Hot => {
                targets.push(Target::at_least(of("floor's"), cell.times_floor(), "×", 0.85));
                targets.push(textbook(5.0));
            }
            Workload::Spread => {
                targets.push(Target::at_least(of("floor's"), cell.times_floor(), "×", 0.7));
                targets.push(textbook(4.0));
            }
        }
    }
    targets
}
