//! The figures: a table to read, and `.local/bench.json`.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Value, json};

use super::cold::ColdStarts;
use super::sample::{Sample, median};
use super::wire::Seen;
use super::workload::Workload;

/// Rounds of one workload over one link with one number of clients.
pub struct Cell {
    /// What was asked for.
    pub workload: Workload,
    /// Whether every message was delayed.
    pub delayed: bool,
    /// Sandboxes, pgbench clients, connections of the textbook.
    pub clients: usize,
    /// One entry a round.
    pub rounds: Vec<Round>,
}

/// The three rivals, measured one after the other.
#[derive(Clone, Copy, serde::Serialize)]
pub struct Round {
    /// The release binary in sandboxes.
    pub product: Sample,
    /// pgbench with the same call.
    pub floor: Sample,
    /// Three transactions.
    pub textbook: Sample,
}

/// What the delay really was.
pub struct Delay {
    /// Asked for, there and back.
    pub wanted: Duration,
    /// What one round trip through the proxy took longer than one without, nothing else running.
    pub at_rest: Duration,
    /// How long the proxy held a message on average, over all measurements; twice that is a round trip.
    pub held_under_load: Duration,
}

/// Seen on the wire in a number of warm requests.
#[derive(Clone, Copy)]
pub struct PerRequest {
    /// Requests that were sent.
    pub count: u64,
    /// All they needed.
    pub seen: Seen,
}

/// Everything that was measured.
pub struct Figures {
    /// `--quick`: not enough rounds to quote.
    pub quick: bool,
    /// In the order measured.
    pub cells: Vec<Cell>,
    /// Of the proxy.
    pub delay: Delay,
    /// Of the product.
    pub product_wire: PerRequest,
    /// Of the textbook.
    pub textbook_wire: PerRequest,
    /// Of both functions.
    pub cold: ColdStarts,
    /// The largest of all sandboxes; unknown where there is no `/proc`.
    pub peak_memory_kib: Option<u64>,
    /// Of `bootstrap`.
    pub zipped_bytes: u64,
    /// CPUs of this machine.
    pub cores: usize,
    /// Load before the first measurement, where it is known.
    pub load_average: Option<f64>,
}

/// A promise and what became of it.
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
    fn each(&self, which: impl Fn(&Seen) -> u64) -> f64 {
        which(&self.seen) as f64 / self.count as f64
    }
}

impl Figures {
    /// The table.
    pub fn table(&self) -> String {
        let mut out = String::new();
        let rounds = self.cells.first().map_or(0, |cell| cell.rounds.len());
        let load = self.load_average.map_or("unknown".to_owned(), |load| format!("{load:.2}"));
        // Writing into a String cannot fail.
        let _ = writeln!(
            out,
            "\nallocate, medians of {rounds} interleaved rounds. {} cores, shared by load generator, functions and \
             PostgreSQL; load before: {load}.{}\n\
             product: release binary in N sandboxes · floor: pgbench, the same SQL call · textbook: three transactions\n",
            self.cores,
            if self.quick { " --quick: a look, not figures to quote." } else { "" }
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
            let rivals: [fn(&Round) -> Sample; 3] = [|r| r.product, |r| r.floor, |r| r.textbook];
            for rival in rivals {
                let _ = write!(
                    out,
                    "   {:>6.0}/s {:>7.2} {:>7.2}",
                    cell.of(|r| rival(r).per_sec),
                    cell.of(|r| rival(r).p50_ms),
                    cell.of(|r| rival(r).p99_ms)
                );
            }
            let _ = writeln!(out, "   {:>7.2} {:>10.2}", cell.times_floor(), cell.times_textbook());
        }
        self.write_rest(&mut out);
        out
    }

    fn write_rest(&self, out: &mut String) {
        let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
        let _ = writeln!(
            out,
            "(p50, p99 in ms)\n\ndelay: {:.2} ms a round trip wanted; {:.2} ms at rest, {:.2} ms under load (held by \
             the proxy)",
            ms(self.delay.wanted),
            ms(self.delay.at_rest),
            ms(self.delay.held_under_load) * 2.0
        );
        for (name, wire) in [("product", &self.product_wire), ("textbook", &self.textbook_wire)] {
            let _ = writeln!(
                out,
                "on the wire, a warm request of {name}: {:.2} round trips, {:.2} ReadyForQuery, {:.2} commits",
                wire.each(|s| s.turns),
                wire.each(|s| s.replies),
                wire.each(|s| s.commits)
            );
        }
        let (poll, bare_poll, _) = self.cold.medians(|s| s.first_poll_ms);
        let (answer, bare_answer, times) = self.cold.medians(|s| s.first_answer_ms);
        let _ = writeln!(
            out,
            "cold start, exec to first poll: {poll:.1} ms, bare function {bare_poll:.1} ms; to first answer: {answer:.1} \
             ms, bare {bare_answer:.1} ms ({times:.2} ×)"
        );
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
        let contended = |workload| {
            self.cells.iter().find(|cell| cell.workload == workload && cell.delayed && cell.clients == 32)
        };
        let mut targets = Vec::new();
        let mut push = |what, figure: Option<f64>, unit, at_least, bound| {
            targets.extend(figure.map(|figure| Target { what, figure, unit, at_least, bound }));
        };
        let hot = contended(Workload::Hot);
        let spread = contended(Workload::Spread);
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
        let round_trips = self.product_wire.each(|s| s.turns);
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

    /// The same for a program.
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
        let wire = |wire: &PerRequest| {
            json!({"roundTrips": wire.each(|s| s.turns), "requests": wire.each(|s| s.requests),
                   "readyForQuery": wire.each(|s| s.replies), "commits": wire.each(|s| s.commits)})
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
            "wirePerRequest": {"product": wire(&self.product_wire), "textbook": wire(&self.textbook_wire)},
            "coldStarts": self.cold,
            "peakMemoryKib": self.peak_memory_kib,
            "zippedBytes": self.zipped_bytes,
            "targets": targets,
        })
    }
}
