//! `cargo xtask chaos`: the real binaries of every function under the emulator, a real PostgreSQL behind a network that cuts, delays
//! and falls silent, a partner that misbehaves, jobs that overlap, all killed and frozen at random; then, when all is quiet, the
//! invariants. The seed decides what is drawn; what the machine does in between it cannot decide, so a seed repeats as far
//! as timing allows.

mod arrivals;
mod audits;
mod checks;
mod clients;
mod fleet;
mod history;
mod intent;
mod nemesis;
mod network;
mod partner;
mod plants;
mod requests;
mod world;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Parser;
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::task::JoinSet;

use holdfast::migrate::{RolePasswords, migrate};
use xtask::ports::any_free;
use xtask::postgres::{Cluster, Purpose};
use xtask::process::{self, Group, Step, Stop};
use xtask::python::Venv;
use xtask::workspace::{Workspace, remove, try_lock};

use checks::Check;
use clients::Load;
use fleet::Fleet;
use intent::{Intent, Told};
use nemesis::{Counts, Nemesis};
use network::Network;
use partner::{Mood, Partner};
use world::World;

/// The exit status of a shell command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
const PASSWORD: &str = "chaos";
/// Drains after the faults until the outbox is empty, at most.
const DRAINS: usize = 60;
/// Violations of one check that are printed.
const PRINTED: usize = 10;

/// Break everything at random, then check the invariants.
#[derive(clap::Parser)]
#[command(name = "cargo xtask chaos")]
pub struct Args {
    /// How long requests and faults go on; the checks come after that.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Decides all that is drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Clients at a time.
    #[arg(long, default_value_t = 10)]
    clients: usize,
    /// Use the debug binaries, which are quicker to build.
    #[arg(long)]
    debug: bool,
    /// Use what `cargo xtask package` left: the programs as they are deployed.
    #[arg(long, conflicts_with = "debug")]
    packaged: bool,
    /// Plant a classic mistake first, to see that it is found.
    #[arg(long, value_name = "NAME")]
    plant: Option<String>,
    /// Write the requests and answers to this file, for chaos/check_history.py.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    chaos(Args::parse()).await.unwrap_or_else(|error| {
        eprintln!("error: {}", holdfast::one_line(&error));
        ExitCode::FAILURE
    })
}

async fn chaos(args: Args) -> Result<ExitCode> {
    let workspace = Workspace::open()?;
    let Some(_lock) = try_lock(&workspace.local("chaos.lock"))? else {
        bail!("another chaos is running here");
    };
    let mut stop = Stop::listen()?;
    let venv = Venv::tools(&workspace).await?;
    let data = workspace.local("postgres-chaos");
    let cluster = Arc::new(Cluster::at(&venv, data.clone()).await?);
    clear(&cluster, &data).await?;
    let outcome = tokio::select! {
        outcome = run(&workspace, &args, &cluster) => outcome.map(Some),
        () = stop.requested() => Ok(None),
    };
    clear(&cluster, &data).await?;
    Ok(match outcome? {
        None => {
            eprintln!("interrupted");
            ExitCode::from(INTERRUPTED)
        }
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::FAILURE,
    })
}

async fn clear(cluster: &Cluster, data: &std::path::Path) -> Result<()> {
    cluster.stop().await?;
    remove(&data.with_extension("part"))?;
    remove(&data.with_extension("log"))?;
    remove(data)
}

/// Binaries of all functions, as they were packaged for this machine's kind of processor.
fn packaged(workspace: &Workspace) -> Result<Vec<(String, PathBuf)>> {
    let programs = workspace.functions()?.into_iter().map(|name| {
        let program = workspace.local("package").join(&name).join("bootstrap");
        if !program.is_file() {
            bail!("{name} is not packaged: run `cargo xtask package`");
        }
        Ok((name, program))
    });
    programs.collect()
}

/// Binaries of all functions.
async fn build(workspace: &Workspace, debug: bool) -> Result<Vec<(String, PathBuf)>> {
    let functions = workspace.functions()?;
    let step = Step::begin(format!("building {} functions (minutes the first time)", functions.len()));
    let mut cargo = process::cargo();
    cargo.current_dir(workspace.root()).args(["build", "--quiet"]);
    if !debug {
        cargo.arg("--release");
    }
    for function in &functions {
        cargo.args(["--bin", function]);
    }
    if !Group::spawn(&mut cargo)?.wait().await?.success() {
        bail!("the functions do not compile (see above)");
    }
    step.done();
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.root().join("target"), PathBuf::from);
    let folder = target.join(if debug { "debug" } else { "release" });
    Ok(functions.into_iter().map(|name| (name.clone(), folder.join(name))).collect())
}

/// Whether all invariants hold.
async fn run(workspace: &Workspace, args: &Args, cluster: &Arc<Cluster>) -> Result<bool> {
    let binaries = if args.packaged { packaged(workspace)? } else { build(workspace, args.debug).await? };
    let step = Step::begin("making a database and a tenant");
    cluster.init(&Purpose::Test).await?;
    let port = any_free()?;
    cluster.start(port, &Purpose::Test).await?;
    let url =
        |user: &str, port: u16, name: &str| format!("postgres://{user}:{PASSWORD}@127.0.0.1:{port}/{name}");
    let mut maintenance = PgConnection::connect(&url("postgres", port, "postgres")).await?;
    sqlx::raw_sql("create database chaos").execute(&mut maintenance).await?;
    maintenance.close().await?;
    let owner_url = url("postgres", port, "chaos");
    let passwords = RolePasswords { app: Some(PASSWORD.into()), worker: Some(PASSWORD.into()) };
    migrate(&owner_url, Some(passwords)).await?;
    let mut owner = PgConnection::connect(&owner_url).await?;
    // Statistics stay as they are: those of empty tables.
    sqlx::raw_sql("alter system set autovacuum = off; select pg_reload_conf()")
        .execute(&mut owner)
        .await
        .ok();
    let partner = Arc::new(Partner::serve().await?);
    let world = World::make(&mut owner, args.seed, &partner.url).await?;
    if let Some(name) = &args.plant {
        plants::plant(&mut owner, name).await?;
    }
    owner.close().await?;

    let network = Arc::new(Network::before(port).await?);
    let logs = workspace.local("chaos");
    remove(&logs)?;
    std::fs::create_dir_all(&logs)?;
    let env = world.environment(
        url("holdfast_app", network.port, "chaos"),
        url("holdfast_worker", network.port, "chaos"),
    );
    let fleet = Arc::new(Fleet::new(&binaries, &env, &logs));
    let load = Load::new(world.clone(), fleet.clone(), args.seed);
    let nemesis = Arc::new(Nemesis {
        network: network.clone(),
        fleet: fleet.clone(),
        partner: partner.clone(),
        cluster: cluster.clone(),
        port,
        owner_url: owner_url.clone(),
        seed: args.seed,
        counts: Counts::default(),
        over: AtomicBool::new(false),
    });
    step.done();

    break_everything(args, &load, &nemesis).await?;
    let step = Step::begin("letting everything come to rest");
    network.heal();
    partner.behave(Mood::Well);
    fleet.end().await;
    load.settle().await;
    drain(&owner_url, &fleet).await?;
    fleet.end().await;
    step.done();

    let intents = load.intents();
    let mut owner = PgConnection::connect(&owner_url).await?;
    let (runs, booked): (i64, i64) = sqlx::query_as(
        "select count(*) filter (where state = 'done'), coalesce(sum(booked), 0)::bigint from reconcile_run",
    )
    .fetch_one(&mut owner)
    .await?;
    println!("{runs} reconciliations were done, and booked {booked} differences");
    let mut checks = checks::all(&mut owner, &world, &partner, &intents).await?;
    checks.push(checks::left_behind(&mut owner).await?);
    owner.close().await?;
    if let Some(path) = &args.history {
        history::write(path, &world, load.start, &intents)?;
        println!("the history is in {}", path.display());
    }
    Ok(report(args, &load, &nemesis, &intents, &checks))
}

/// Clients and faults, side by side, until the time is up.
async fn break_everything(args: &Args, load: &Arc<Load>, nemesis: &Arc<Nemesis>) -> Result<()> {
    println!("… {} clients, {} s, seed {}", args.clients, args.seconds, args.seed);
    let mut clients = JoinSet::new();
    for client in 0..args.clients {
        clients.spawn(load.clone().client(client));
    }
    let mut faults = JoinSet::new();
    faults.spawn(nemesis.clone().break_connections());
    faults.spawn(nemesis.clone().break_sandboxes());
    faults.spawn(nemesis.clone().spoil_partner());
    faults.spawn(nemesis.clone().hold_snapshots());
    faults.spawn(nemesis.clone().run_jobs());
    let crashes = tokio::spawn(nemesis.clone().crash_server());
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let mut told = Instant::now();
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(200)).await;
        if told.elapsed() > Duration::from_secs(15) {
            told = Instant::now();
            println!("  {} requests, {} s left", load.count(), end.saturating_duration_since(told).as_secs());
        }
    }
    nemesis.over.store(true, Ordering::SeqCst);
    load.stop();
    crashes.await.context("the crashes ended in a panic")??;
    while faults.join_next().await.is_some() {}
    nemesis.network.heal();
    nemesis.partner.behave(Mood::Well);
    while let Some(client) = clients.join_next().await {
        client.context("a client ended in a panic")??;
    }
    Ok(())
}

/// Drains the outbox until nothing is left; events in backoff become due, as if their time had passed.
async fn drain(owner_url: &str, fleet: &Fleet) -> Result<()> {
    let mut owner = PgConnection::connect(owner_url).await?;
    for _ in 0..DRAINS {
        sqlx::raw_sql(AssertSqlSafe(
            "update destination_health set open_until = null, paced_until = null, failures = 0, probing = false;
             update outbox set next_attempt_at = now(), leased_until = case when lease_token is not null then now() end
             where processed_at is null and dead_lettered_at is null and discarded_at is null and isfinite(next_attempt_at)",
        ))
        .execute(&mut owner)
        .await?;
        // A failed drain is followed by the next.
        let _ = fleet.invoke("relay", json!({"watchSeconds": 1}).to_string(), Duration::from_secs(60)).await;
        let left: i64 = sqlx::query_scalar(
            "select count(*) from outbox where destination_id is not null and processed_at is null
               and dead_lettered_at is null and discarded_at is null",
        )
        .fetch_one(&mut owner)
        .await?;
        if left == 0 {
            break;
        }
    }
    Ok(owner.close().await?)
}

/// Prints the table, and of each violation what happened to what it concerns. Whether there is none.
fn report(args: &Args, load: &Load, nemesis: &Nemesis, intents: &[Intent], checks: &[Check]) -> bool {
    let count = |of: &std::sync::atomic::AtomicU64| of.load(Ordering::SeqCst);
    let counts = &nemesis.counts;
    let tries: usize = intents.iter().map(|intent| intent.tries.len()).sum();
    let told = |wanted: fn(&Told) -> bool| {
        intents.iter().flat_map(|i| &i.tries).filter(|one| wanted(&one.told)).count()
    };
    println!(
        "\nseed {}: {} requests in {tries} tries ({} answers, {} unchanged, {} in use, {} unknown, {} given up); {} sandboxes, {} \
         killed, {} frozen; {} faults of the network, {} crashes of the server, {} jobs",
        args.seed,
        intents.len(),
        told(|t| matches!(t, Told::Answer(_))),
        told(|t| *t == Told::Unchanged),
        told(|t| *t == Told::InUse),
        told(|t| matches!(t, Told::Unknown(_))),
        intents.iter().filter(|intent| intent.is_open()).count(),
        nemesis.fleet.started(),
        count(&counts.kills),
        count(&counts.freezes),
        count(&counts.faults),
        count(&counts.crashes),
        count(&counts.drains),
    );
    println!("\n{:<44} {:>9} {:>10}", "check", "looked at", "violations");
    for check in checks {
        println!("{:<44} {:>9} {:>10}", check.name, check.looked_at, check.violations.len());
    }
    let mut concerned = BTreeSet::new();
    for check in checks.iter().filter(|check| !check.violations.is_empty()) {
        println!("\n{}:", check.name);
        check.violations.iter().take(PRINTED).for_each(|violation| println!("  {violation}"));
        concerned.extend(check.concerned.iter().take(PRINTED));
    }
    if !concerned.is_empty() {
        println!("\nwhat happened to what is concerned:");
        history::print(load.start, intents, &concerned);
    }
    let violations: usize = checks.iter().map(|check| check.violations.len()).sum();
    println!("\n{} requests, {violations} violations", intents.len());
    violations == 0
}
