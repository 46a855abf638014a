//! The figures, as a table and as the JSON of `.local/bench.json`.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::cold::ColdStarts;
use super::sample::{Sample, median};
use super::wire::Counts;
use super::workload::Workload;

/// Clients of the cells that have targets.
const TARGET_CLIENTS: usize = 32;

/// Rounds of one workload over one link with one number of clients.
pub struct Cell {
    pub workload: Workload,
    pub delayed: bool,
    /// Sandboxes, pgbench clients and connections of the textbook.
    pub clients: usize,
    pub rounds: Vec<Round>,
}

/// The three implementations, measured one after the other.
#[derive(Clone, Copy, serde::Serialize)]
pub struct Round {
    pub product: Sample,
    pub floor: Sample,
    pub textbook: Sample,
}

pub struct Delay {
    /// The intended delay of a round trip.
    pub wanted: Duration,
    /// The measured delay of a round trip while nothing else runs.
    pub at_rest: Duration,
    /// The mean time that a message was held, over all measurements: half of a round trip's delay.
    pub held_under_load: Duration,
}

/// Messages of a number of warm requests.
#[derive(Clone, Copy)]
pub struct PerRequest {
    pub requests: u32,
    /// Of all these requests together.
    pub counts: Counts,
}

pub struct Figures {
    /// Whether there were too few rounds for figures to quote.
    pub quick: bool,
    pub cells: Vec<Cell>,
    pub delay: Delay,
    pub product_messages: PerRequest,
    pub textbook_messages: PerRequest,
    pub cold: ColdStarts,
    /// The largest of all sandboxes; on Linux only.
    pub peak_memory_kib: Option<u64>,
    pub zipped_bytes: u64,
    pub cores: usize,
    /// Before the first measurement; on Linux only.
    pub load_average: Option<f64>,
}

/// A promised bound and the measured figure.
struct Target {
    what: &'static str,
    figure: f64,
    unit: &'static str,
    at_least: bool,
    bound: f64,
}

impl Target {
    fn is_met(&self) -> bool {
        if self.at_least { self.figure >= self.bound } else { self.figure <= self.bound }
    }
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
}

impl PerRequest {
    fn mean(&self, which: impl Fn(&Counts) -> u64) -> f64 {
        which(&self.counts) as f64 / f64::from(self.requests)
    }
}

impl Figures {
    pub fn table(&self) -> String {
        let mut out = String::new();
        self.write_throughput(&mut out);
        self.write_messages_and_cold_starts(&mut out);
        self.write_targets(&mut out);
        out
    }

    fn write_throughput(&self, out: &mut String) {
        let rounds = self.cells.first().map_or(0, |cell| cell.rounds.len());
        let load = self.load_average.map_or("unknown".to_owned(), |load| format!("{load:.2}"));
        // Writing into a String cannot fail.
        let _ = writeln!(
            out,
            "\nallocate, medians of {rounds} interleaved rounds. {} cores, shared by load generator, functions and \
             PostgreSQL; load before: {load}.{}\n\
             product: release binary in N sandboxes · floor: pgbench, the same statement · textbook: three transactions\n",
            self.cores,
            if self.quick { " --quick: too few rounds for figures to quote." } else { "" }
        );
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
        for cell in &self.cells {
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
    }

    fn write_messages_and_cold_starts(&self, out: &mut String) {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let _ = writeln!(
            out,
            "(p50, p99 in ms)\n\ndelay: {:.2} ms a round trip wanted; {:.2} ms at rest, {:.2} ms under load (held by \
             the proxy)",
            ms(self.delay.wanted),
            ms(self.delay.at_rest),
            ms(self.delay.held_under_load) * 2.0
        );
        for (name, messages) in [("product", &self.product_messages), ("textbook", &self.textbook_messages)] {
            let _ = writeln!(
                out,
                "a warm request of {name} needs {:.2} round trips, {:.2} ReadyForQuery, {:.2} commits",
                messages.mean(|c| c.round_trips),
                messages.mean(|c| c.replies),
                messages.mean(|c| c.commits)
            );
        }
        let (poll, bare_poll, _) = self.cold.medians(|s| s.first_poll_ms);
        let (answer, bare_answer, times) = self.cold.medians(|s| s.first_answer_ms);
        let _ = writeln!(
            out,
            "cold start, exec to first poll: {poll:.1} ms, bare function {bare_poll:.1} ms; to first answer: {answer:.1} \
             ms, bare {bare_answer:.1} ms ({times:.2} ×)"
        );
    }

    fn write_targets(&self, out: &mut String) {
        let _ = writeln!(out, "\n{:<66} {:>10}   target", "", "figure");
        for target in self.targets() {
            let _ = writeln!(
                out,
                "{:<66} {:>7.2} {:<2}   {} {} {:<2} {}",
                target.what,
                target.figure,
                target.unit,
                if target.at_least { "≥" } else { "≤" },
                target.bound,
                target.unit,
                if target.is_met() { "met" } else { "MISSED" }
            );
        }
    }

    fn targets(&self) -> Vec<Target> {
        let cell = |workload| {
            self.cells
                .iter()
                .find(|cell| cell.workload == workload && cell.delayed && cell.clients == TARGET_CLIENTS)
        };
        let mut targets = Vec::new();
        let mut push = |what, figure: Option<f64>, unit, at_least, bound| {
            targets.extend(figure.map(|figure| Target { what, figure, unit, at_least, bound }));
        };
        let hot = cell(Workload::Hot);
        let spread = cell(Workload::Spread);
        push(
            "hot SKU, 32 sandboxes, 0.5 ms: throughput over the floor's",
            hot.map(Cell::times_floor),
            "×",
            true,
            0.85,
        );
        push(
            "hot SKU, 32 sandboxes, 0.5 ms: throughput over the textbook's",
            hot.map(Cell::times_textbook),
            "×",
            true,
            5.0,
        );
        push(
            "1,000 SKUs, 32 sandboxes, 0.5 ms: throughput over the textbook's",
            spread.map(Cell::times_textbook),
            "×",
            true,
            4.0,
        );
        let round_trips = self.product_messages.mean(|c| c.round_trips);
        push("round trips of a warm allocate", Some(round_trips), "", false, 1.0);
        let (_, _, cold) = self.cold.medians(|s| s.first_poll_ms);
        push("cold start to first poll (with the connection) over a bare one's", Some(cold), "×", false, 1.5);
        let peak = self.peak_memory_kib.map(|kib| kib as f64 / 1024.0);
        push("peak memory of a sandbox", peak, "MB", false, 40.0);
        let zipped = self.zipped_bytes as f64 / 1e6;
        push(
            "zip (cargo build --release, stripped; deflated by Python's zipfile)",
            Some(zipped),
            "MB",
            false,
            6.0,
        );
        targets
    }

    pub fn json(&self) -> Value {
        let us = |duration: Duration| duration.as_secs_f64() * 1e6;
        let cells: Vec<Value> = self
            .cells
            .iter()
            .map(|cell| {
                json!({"workload": cell.workload.name(), "link": cell.link(), "clients": cell.clients,
                       "timesFloor": cell.times_floor(), "timesTextbook": cell.times_textbook(), "rounds": cell.rounds})
            })
            .collect();
        let messages = |all: &PerRequest| {
            json!({"roundTrips": all.mean(|c| c.round_trips), "requests": all.mean(|c| c.requests),
                   "readyForQuery": all.mean(|c| c.replies), "commits": all.mean(|c| c.commits)})
        };
        let targets: Vec<Value> = self
            .targets()
            .iter()
            .map(|t| json!({"what": t.what, "figure": t.figure, "bound": t.bound, "atLeast": t.at_least, "met": t.is_met()}))
            .collect();
        json!({
            "quick": self.quick,
            "cores": self.cores,
            "loadAverage": self.load_average,
            "throughput": cells,
            "delayUs": {"wanted": us(self.delay.wanted), "atRest": us(self.delay.at_rest),
                        "heldEachWayUnderLoad": us(self.delay.held_under_load)},
            "wirePerRequest": {"product": messages(&self.product_messages),
                               "textbook": messages(&self.textbook_messages)},
            "coldStarts": self.cold,
            "peakMemoryKib": self.peak_memory_kib,
            "zippedBytes": self.zipped_bytes,
            "targets": targets,
        })
    }
}
