//! CPU seconds of the database for 1,000 requests, with one client: the version before, this one, and the floor. Unlike
//! throughput it hardly depends on what else the machine does.

use std::fmt::Write;

use anyhow::Result;
use serde_json::json;

use crate::database::Database;
use crate::pgbench::{Pgbench, Run};
use crate::report::{Measured, Target};
use crate::sample::median;
use crate::stage::Stage;
use crate::workload::{Operation, Workload, as_before};
use xtask::process::Step;

/// Of each round; those of many lines are fewer.
const REQUESTS: usize = 1_000;

struct Row {
    name: String,
    before: Vec<f64>,
    now: Vec<f64>,
}

impl Row {
    fn ratio(&self) -> f64 {
        median(self.now.iter().zip(&self.before).map(|(now, before)| now / before))
    }
}

pub async fn measure(stage: &Stage<'_>) -> Result<Measured> {
    let now = stage.seeded_database("cpu").await?;
    let before = stage.seeded_before("cpu_before").await?;
    let pgbench = Pgbench::new(stage.venv, stage.dir.clone())?;
    let rounds = if stage.quick { 3 } else { 7 };
    let step = Step::begin("CPU of the database");
    let mut rows = Vec::new();
    for operation in Operation::ALL {
        let script = operation.script();
        let script_before = as_before(&script);
        let requests = match operation {
            Operation::Allocate(lines) if lines > 1 => REQUESTS / usize::try_from(lines)? * 3,
            _ => REQUESTS,
        };
        let mut row = Row { name: operation.name(), before: Vec::new(), now: Vec::new() };
        for round in 0..rounds {
            // Whoever comes first finds a colder machine.
            let order = if round % 2 == 0 { [false, true] } else { [true, false] };
            for is_now in order {
                let (database, script, seconds) = if is_now {
                    (&now, &script, &mut row.now)
                } else {
                    (&before, &script_before, &mut row.before)
                };
                seconds.push(cpu_seconds(stage, &pgbench, database, script, false, requests).await?);
            }
        }
        rows.push(row);
    }
    let script = Workload::Spread.floor_script();
    let mut floor = Vec::new();
    for _ in 0..rounds {
        floor.push(cpu_seconds(stage, &pgbench, &now, &script, true, REQUESTS).await?);
    }
    step.done();
    now.run("do $$ begin assert not exists (select from position_audit) and not exists (select from order_line_audit); end $$")
        .await?;

    let mut table =
        format!("{:<34} {:>8} {:>8} {:>7}\n", "CPU seconds per 1,000 requests", "before", "now", "×");
    for row in &rows {
        // Writing into a String cannot fail.
        let _ = writeln!(
            table,
            "{:<34} {:>8.3} {:>8.3} {:>7.2}",
            row.name,
            median(row.before.iter().copied()),
            median(row.now.iter().copied()),
            row.ratio()
        );
    }
    let floor = median(floor);
    let _ = writeln!(table, "{:<34} {:>8} {floor:>8.3}", "the floor of allocate, 1 line", "");
    let bounds = [
        ("allocate, 1 line", 0.72),
        ("allocate, 10 lines", 0.8),
        ("release, 1 line", 1.0),
        ("order-save, 2 lines", 1.0),
    ];
    let targets = rows.iter().filter_map(|row| {
        let (_, bound) = bounds.iter().find(|(name, _)| *name == row.name)?;
        Some(Target::at_most(
            format!("CPU of {} over the version before's", row.name),
            row.ratio(),
            "×",
            *bound,
        ))
    });
    Ok(Measured {
        table,
        targets: targets.collect(),
        json: json!({
            "perThousand": rows.iter().map(|row| json!({"what": row.name, "before": row.before, "now": row.now,
                "times": row.ratio()})).collect::<Vec<_>>(),
            "floorPerThousand": floor,
        }),
    })
}

/// CPU seconds of all server processes for 1,000 requests of one client.
async fn cpu_seconds(
    stage: &Stage<'_>,
    pgbench: &Pgbench,
    database: &Database,
    script: &str,
    prepared: bool,
    requests: usize,
) -> Result<f64> {
    let run = Run { script, port: database.port, clients: 1, prepared, durable: false };
    // Connecting and planning are part of both, and are taken off.
    let begun = stage.cpu_secs().await?;
    pgbench.repeat(database, &run, requests / 10).await?;
    let connected = stage.cpu_secs().await?;
    pgbench.repeat(database, &run, requests + requests / 10).await?;
    let ended = stage.cpu_secs().await?;
    Ok(((ended - connected) - (connected - begun)) / requests as f64 * 1e3)
}
