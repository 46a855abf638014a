//! `cargo xtask bench`: what an idempotent allocation costs, as ratios within one run.
//!
//! Three implementations write the same rows into the same database: the product (the release binary in the emulator's
//! sandboxes), the floor, which is the lower bound (pgbench sends the same statement), and the textbook (idempotency key,
//! work and answer in one transaction each). They are measured alternately, so that a machine that becomes slower slows all
//! of them.

mod cold;
mod database;
mod floor;
mod link;
mod product;
mod report;
mod sample;
mod textbook;
mod wire;
mod workload;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use sqlx::{Connection, PgConnection};

use xtask::process::{self, Group, Step, Stop};
use xtask::python::Venv;
use xtask::workspace::{Workspace, remove, try_lock};

use cold::ColdStarts;
use database::{Database, Server};
use floor::Floor;
use link::Link;
use product::{Events, Product};
use report::{Cell, Delay, Figures, PerRequest, Round};
use sample::Window;
use textbook::Textbook;
use workload::Workload;

/// What the delayed link adds to a round trip.
const ROUND_TRIP: Duration = Duration::from_micros(500);
/// Requests before messages are counted: by then connections, statements and plans are made.
const WARM_REQUESTS: usize = 20;
/// Requests whose messages are counted.
const COUNTED_REQUESTS: u32 = 100;
const TIMED_ROUND_TRIPS: usize = 200;
/// The exit status of a shell command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Compare allocate with its lower bound and with a textbook implementation; print ratios, write .local/bench.json.
#[derive(clap::Parser)]
#[command(name = "cargo xtask bench")]
pub struct Args {
    /// Measure for about a minute (after the build): only 32 sandboxes, two short rounds.
    #[arg(long)]
    quick: bool,
}

struct Plan {
    clients: &'static [usize],
    rounds: usize,
    /// For product and textbook, whose sessions are kept for several rounds.
    warm_up: Duration,
    /// For pgbench, whose sessions are new in each round.
    floor_warm_up: Duration,
    counted: Duration,
    cold_starts: usize,
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
                cold_starts: 5,
            }
        } else {
            Self {
                clients: &[1, 8, 32],
                rounds: 5,
                warm_up: Duration::from_millis(300),
                floor_warm_up: Duration::from_millis(1500),
                counted: Duration::from_secs(3),
                cold_starts: 20,
            }
        }
    }
}

/// A missed target is not a failure, since figures depend on the machine.
///
/// One thread serves all sandboxes and connections: all cores are busy, so threads that wake each other would slow down
/// what is measured.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    bench(Args::parse()).await.unwrap_or_else(|error| {
        eprintln!("error: {}", holdfast::one_line(&error));
        ExitCode::FAILURE
    })
}

async fn bench(args: Args) -> Result<ExitCode> {
    let workspace = Workspace::open()?;
    let Some(_lock) = try_lock(&workspace.local("bench.lock"))? else {
        bail!("another bench is running: two at once would measure each other");
    };
    let mut stop = Stop::listen()?;
    let mut server = None;
    let outcome = tokio::select! {
        outcome = measure(&workspace, args.quick, &mut server) => outcome.map(Some),
        () = stop.requested() => Ok(None),
    };
    if let Some(server) = server {
        server.end().await?;
    }
    remove(&workspace.local("bench"))?;
    let Some(figures) = outcome? else {
        eprintln!("interrupted");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let path = workspace.local("bench.json");
    std::fs::write(&path, serde_json::to_string_pretty(&figures.json())?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}\nwritten to .local/bench.json", figures.table());
    Ok(ExitCode::SUCCESS)
}

struct Bench {
    database: Database,
    floor: Floor,
    events: Events,
    allocate: PathBuf,
    delayed: Link,
}

async fn measure(workspace: &Workspace, quick: bool, server: &mut Option<Server>) -> Result<Figures> {
    let plan = Plan::new(quick);
    let venv = Venv::tools(workspace).await?;
    let [allocate, bare] = build(workspace).await?;
    let load_average = load_average();
    let database = Database::make(workspace, &venv, server).await?;
    let dir = workspace.local("bench");
    let bench = Bench {
        floor: Floor::new(&venv, dir.clone())?,
        events: Events::new()?,
        allocate,
        delayed: delayed_link(&database).await?,
        database,
    };
    let at_rest = added_by(&bench.delayed, &bench.database).await?;

    let step = Step::begin("cold starts, and round trips of a warm request");
    let function = bench.events.function(&bench.allocate, bench.database.app_url(bench.database.port));
    let cold = ColdStarts::measure(&function, &bench.events, &bare, plan.cold_starts).await?;
    let (product_messages, textbook_messages) = bench.count_messages().await?;
    step.done();

    bench.delayed.take();
    let mut cells = Vec::new();
    let mut peak_memory_kib = None;
    for &clients in plan.clients {
        for delayed in [false, true] {
            cells.extend(bench.measure_group(&plan, clients, delayed, &mut peak_memory_kib).await?);
        }
    }
    let passed = bench.delayed.take();
    bench.database.check().await?;
    Ok(Figures {
        quick,
        cells,
        delay: Delay {
            wanted: ROUND_TRIP,
            at_rest,
            held_under_load: passed.held / u32::try_from(passed.chunks.max(1))?,
        },
        product_messages,
        textbook_messages,
        cold,
        peak_memory_kib,
        zipped_bytes: cold::zipped_bytes(&venv, &bench.allocate, &dir).await?,
        cores: std::thread::available_parallelism()?.get(),
        load_average,
    })
}

impl Bench {
    fn port(&self, delayed: bool) -> u16 {
        if delayed { self.delayed.port } else { self.database.port }
    }

    /// All rounds of both workloads with this number of clients of each implementation.
    async fn measure_group(
        &self,
        plan: &Plan,
        clients: usize,
        delayed: bool,
        peak_memory_kib: &mut Option<u64>,
    ) -> Result<Vec<Cell>> {
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
        if let Ok(peak) = product.peak_memory_kib() {
            *peak_memory_kib = Some(peak.max(peak_memory_kib.unwrap_or(0)));
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
        self.database.checkpoint().await?;
        let of_product = product.measure(workload, window()).await?;
        self.database.checkpoint().await?;
        let times = (plan.floor_warm_up, plan.counted);
        let of_floor =
            self.floor.measure(&self.database, self.port(delayed), clients, workload, times).await?;
        self.database.checkpoint().await?;
        let of_textbook = textbook.measure(workload, window()).await?;
        Ok(Round { product: of_product, floor: of_floor, textbook: of_textbook })
    }

    /// Messages of warm requests of product and textbook, counted by a proxy without delay.
    async fn count_messages(&self) -> Result<(PerRequest, PerRequest)> {
        let counter = Link::before(self.database.port, Duration::ZERO)?;
        let url = self.database.app_url(counter.port);
        let taken = |link: &Link| PerRequest { requests: COUNTED_REQUESTS, counts: link.take().counts };
        let function = self.events.function(&self.allocate, url.clone());
        let product = Product::start(&function, &self.events, 1).await?;
        product.send(Workload::Spread, WARM_REQUESTS).await?;
        counter.take();
        product.send(Workload::Spread, COUNTED_REQUESTS as usize).await?;
        let of_product = taken(&counter);
        product.end().await?;

        let textbook = Textbook::connect(&url, 1).await?;
        textbook.send(Workload::Spread, WARM_REQUESTS).await?;
        counter.take();
        textbook.send(Workload::Spread, COUNTED_REQUESTS as usize).await?;
        Ok((of_product, taken(&counter)))
    }
}

/// A link that adds [`ROUND_TRIP`] to a round trip, the proxy's own cost included.
async fn delayed_link(database: &Database) -> Result<Link> {
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

async fn build(workspace: &Workspace) -> Result<[PathBuf; 2]> {
    let step = Step::begin("building the release binaries (minutes the first time)");
    let mut cargo = process::cargo();
    cargo.current_dir(workspace.root()).args([
        "build",
        "--release",
        "--quiet",
        "-p",
        "allocate",
        "-p",
        "bare",
    ]);
    if !Group::spawn(&mut cargo)?.wait().await?.success() {
        bail!("the release build failed (see above)");
    }
    step.done();
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.root().join("target"), PathBuf::from);
    Ok(["allocate", "bare"].map(|name| target.join("release").join(name)))
}

/// Of the last minute; on Linux only.
fn load_average() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}
