//! Throughput of allocate at the database, sent by pgbench: the version before, this one and the floor, in turn; and of the
//! product's sandboxes over both versions. One client commits without waiting for the disk, so that the CPU decides.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::link::Link;
use crate::parts::allocate::delayed_link;
use crate::pgbench::{Pgbench, Run};
use crate::product::{Events, Product};
use crate::report::{Measured, Target};
use crate::sample::{Sample, Window, median};
use crate::stage::Stage;
use crate::workload::{Workload, as_before};
use xtask::process::Step;

/// Whose rounds are compared.
const COLUMNS: [&str; 3] = ["before", "now", "floor"];
const SANDBOXES: usize = 32;

struct Cell {
    workload: Workload,
    /// `32 clients`, or `32 sandboxes, 0.5 ms`.
    who: String,
    /// Of each round, by [`COLUMNS`]; sandboxes have no floor.
    rounds: Vec<Vec<Sample>>,
    /// The promised bound of now over before.
    at_least: Option<f64>,
}

impl Cell {
    fn of(&self, column: usize, which: impl Fn(&Sample) -> f64) -> f64 {
        median(self.rounds.iter().filter_map(|round| round.get(column)).map(which))
    }

    fn ratio(&self, over: usize) -> f64 {
        median(self.rounds.iter().filter_map(|r| Some(r[1].per_sec / r.get(over)?.per_sec)))
    }
}

pub async fn measure(stage: &Stage<'_>) -> Result<Measured> {
    let [allocate] = stage.build(["allocate"]).await?;
    let now = stage.seeded_database("now").await?;
    let databases = [stage.seeded_before("before").await?, now];
    let pgbench = Pgbench::new(stage.venv, stage.dir.clone())?;
    let rounds = if stage.quick { 2 } else { 5 };
    let counted = if stage.quick { Duration::from_millis(1250) } else { Duration::from_secs(3) };
    let warm_up = Duration::from_millis(1000);
    let mut cells = Vec::new();
    for (clients, bounds) in [(1, [1.4, 1.4]), (8, [1.15, 1.45]), (32, [f64::NAN; 2])] {
        let step = Step::begin(format!("{rounds} rounds of {clients} clients of pgbench"));
        for (workload, bound) in Workload::ALL.into_iter().zip(bounds) {
            let scripts = [as_before(&workload.script()), workload.script(), workload.floor_script()];
            let mut cell = Cell {
                workload,
                who: format!("{clients} clients"),
                rounds: Vec::new(),
                at_least: Some(bound).filter(|bound| !bound.is_nan()),
            };
            for _ in 0..rounds {
                let mut round = Vec::new();
                let of = [(&databases[0], false), (&databases[1], false), (&databases[1], true)];
                for ((database, prepared), script) in of.into_iter().zip(&scripts) {
                    database.run("checkpoint").await?;
                    let run = Run { script, port: database.port, clients, prepared, durable: clients > 1 };
                    round.push(pgbench.measure(database, &run, (warm_up, counted)).await?);
                }
                cell.rounds.push(round);
            }
            cells.push(cell);
        }
        step.done();
    }

    let step = Step::begin(format!("{rounds} rounds of {SANDBOXES} sandboxes, 0.5 ms more a round trip"));
    let events = Events::new()?;
    let mut products = Vec::new();
    for database in &databases {
        let link: Link = delayed_link(database).await?;
        let function = events.function(&allocate, database.app_url(link.port));
        let product = Product::start(&function, &events, SANDBOXES).await?;
        product.measure(Workload::Spread, Window::begin(Duration::ZERO, warm_up)).await?;
        products.push((product, link));
    }
    for (workload, bound) in Workload::ALL.into_iter().zip([1.2, 1.3]) {
        let who = format!("{SANDBOXES} sandboxes, 0.5 ms");
        let mut cell = Cell { workload, who, rounds: Vec::new(), at_least: Some(bound) };
        for _ in 0..rounds {
            let mut round = Vec::new();
            for (product, _) in &products {
                databases[0].run("checkpoint").await?;
                round.push(product.measure(workload, Window::begin(warm_up / 2, counted)).await?);
            }
            cell.rounds.push(round);
        }
        cells.push(cell);
    }
    for (product, _) in products {
        product.end().await?;
    }
    step.done();

    let mut table = format!(
        "medians of {rounds} interleaved rounds (p50 in ms)\n{:<12} {:<22} {:>9} {:>7} {:>9} {:>7} {:>9} {:>7} {:>9} {:>8}\n",
        "workload", "who", COLUMNS[0], "p50", COLUMNS[1], "p50", COLUMNS[2], "p50", "× before", "× floor"
    );
    for cell in &cells {
        // Writing into a String cannot fail.
        let _ = write!(table, "{:<12} {:<22}", cell.workload.name(), cell.who);
        for column in 0..COLUMNS.len() {
            let (per_sec, p50) = (cell.of(column, |s| s.per_sec), cell.of(column, |s| s.p50_ms));
            let _ = write!(table, " {per_sec:>7.0}/s {p50:>7.2}");
        }
        let _ = writeln!(table, " {:>9.2} {:>8.2}", cell.ratio(0), cell.ratio(2));
    }
    let targets = cells.iter().filter_map(|cell| {
        let what = format!("{}, {}: throughput over the version before's", cell.workload.name(), cell.who);
        Some(Target::at_least(what, cell.ratio(0), "×", cell.at_least?))
    });
    Ok(Measured {
        table,
        targets: targets.collect(),
        json: cells
            .iter()
            .map(|cell| {
                json!({"workload": cell.workload.name(), "who": cell.who, "columns": COLUMNS, "rounds": cell.rounds,
                       "timesBefore": cell.ratio(0), "timesFloor": cell.ratio(2)})
            })
            .collect(),
    })
}
