//! How many signed events a relay delivers to one destination, beside an HTTP client of ours that posts the same bodies, and what
//! that costs the database.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use serde_json::json;
use sqlx::{Connection, Row};
use testing::emulator::{Function, Sandbox};

use crate::database::Database;
use crate::report::{Measured, Target};
use crate::sample::median;
use crate::stage::Stage;
use xtask::process::Step;

/// As a relay has of one destination at first.
const CLIENT_IN_FLIGHT: usize = 20;
const RELAYS: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(120);
/// Jiffies of `/proc/<pid>/stat`.
const TICKS_PER_SEC: f64 = 100.0;

struct Round {
    client_per_sec: f64,
    one_per_sec: f64,
    several_per_sec: f64,
    cpu_secs_per_1000: f64,
}

pub async fn measure(stage: &Stage<'_>) -> Result<Measured> {
    let [binary] = stage.build(["relay"]).await?;
    let (events, rounds) = if stage.quick { (4_000, 2) } else { (10_000, 5) };
    let sink = sink()?;
    let database = stage.database("relay").await?;
    database.run(&seed(sink)).await?;
    let function = Function::new("relay", &binary)
        .env("WORKER_DATABASE_URL", database.worker_url(database.port))
        .env("SECRETS_KEYS", testing::SECRETS_KEYS)
        .env("DESTINATION_ALLOW", "127.0.0.1");
    let mut relays = Vec::new();
    for _ in 0..RELAYS {
        relays.push(Sandbox::start(&function).await?);
    }
    let step = Step::begin(format!("{rounds} rounds of {events} events to one destination"));
    let mut measured = Vec::new();
    for _ in 0..=rounds {
        let client_per_sec = client(sink, events).await?;
        let cpu_before = cpu_secs(&database).await;
        let one_per_sec = drain(&database, &relays[..1], events).await?;
        let cpu = cpu_secs(&database).await.ok().zip(cpu_before.ok()).map(|(after, before)| after - before);
        let several_per_sec = drain(&database, &relays, events).await?;
        let cpu_secs_per_1000 = cpu.map_or(f64::NAN, |secs| secs * 1_000.0 / events as f64);
        measured.push(Round { client_per_sec, one_per_sec, several_per_sec, cpu_secs_per_1000 });
    }
    step.done();
    for relay in relays {
        relay.kill().await?;
    }
    // The first round warms connections, plans and caches.
    let of = |figure: fn(&Round) -> f64| median(measured.iter().skip(1).map(figure));
    let (client, one, several) = (of(|r| r.client_per_sec), of(|r| r.one_per_sec), of(|r| r.several_per_sec));
    let (to_client, to_one) =
        (of(|r| r.one_per_sec / r.client_per_sec), of(|r| r.several_per_sec / r.one_per_sec));
    let cpu = of(|r| r.cpu_secs_per_1000);
    Ok(Measured {
        table: format!(
            "events/s to one destination: a plain HTTP client {client:.0}, one relay {one:.0} ({to_client:.2} ×), {RELAYS} relays \
             {several:.0} ({to_one:.2} × one)\nCPU of the database for 1,000 events: {cpu:.3} s\n"
        ),
        json: json!({"clientPerSec": client, "relayPerSec": one, "relaysPerSec": several, "toClient": to_client,
            "severalToOne": to_one, "databaseCpuSecsPer1000": cpu}),
        targets: vec![
            Target::at_least(
                "one relay over a plain HTTP client, events to one destination",
                to_client,
                "×",
                0.4,
            ),
            Target::at_least(format!("{RELAYS} relays over one"), to_one, "×", 1.0),
        ],
    })
}

fn seed(sink: SocketAddr) -> String {
    format!(
        "insert into tenant (id, name) values ('00000000-0000-4000-8000-000000000001', 'Bench');
         insert into destination (tenant_id, id, name, kind, url, event_types)
           values ('00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000002', 'Sink', 'webhook',
                   'http://{sink}/hook', '{{*}}');
         insert into destination_secret (tenant_id, destination_id, secret)
           values ('00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-000000000002',
                   'whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz')"
    )
}

/// Writes a backlog and lets these relays drain it together.
async fn drain(database: &Database, relays: &[Sandbox], events: usize) -> Result<f64> {
    database
        .run(&format!(
            "insert into outbox (tenant_id, destination_id, event_id, aggregate_type, aggregate_id, sequence, event_type, payload)
             select d.tenant_id, d.id, gen_random_uuid(), 'sku', gen_random_uuid(), 1, 'sku.ats_changed', '{}'
             from destination d, generate_series(1, {events})",
            body().replace('\'', "''")
        ))
        .await?;
    database.run("vacuum analyze outbox; checkpoint").await?;
    let begun = Instant::now();
    let event = json!({"watchSeconds": 0}).to_string();
    try_join_all(relays.iter().map(|relay| relay.invoke(event.clone(), TIMEOUT))).await?;
    let took = begun.elapsed();
    let mut owner = database.owner().await?;
    let left: i64 = sqlx::query_scalar("select count(*) from outbox where processed_at is null")
        .fetch_one(&mut owner)
        .await?;
    owner.close().await?;
    ensure!(left == 0, "the figures are void: {left} events are left");
    Ok(events as f64 / took.as_secs_f64())
}

/// As long as an event of the product.
fn body() -> String {
    json!({"id": "00000000-0000-4000-8000-00000000000a", "type": "sku.ats_changed", "schemaVersion": 1,
        "timestamp": "2026-01-01T00:00:00.000000Z", "tenantId": "00000000-0000-4000-8000-000000000001",
        "aggregate": {"type": "sku", "id": "00000000-0000-4000-8000-00000000000b", "sequence": 1},
        "data": {"atsAfter": 12}})
    .to_string()
}

/// Posts `events` bodies, in a thread of its own as the relay has a process of its own.
async fn client(sink: SocketAddr, events: usize) -> Result<f64> {
    let took = tokio::task::spawn_blocking(move || -> Result<Duration> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = reqwest::Client::builder().no_proxy().build()?;
            let begun = Instant::now();
            let posting = (0..CLIENT_IN_FLIGHT).map(|_| {
                let client = client.clone();
                tokio::spawn(async move {
                    for _ in 0..events / CLIENT_IN_FLIGHT {
                        let request = client.post(format!("http://{sink}/hook")).body(body());
                        let answer = request.header("content-type", "application/json").send().await?;
                        answer.error_for_status()?.bytes().await?;
                    }
                    anyhow::Ok(())
                })
            });
            for posted in posting.collect::<Vec<_>>() {
                posted.await??;
            }
            Ok(begun.elapsed())
        })
    });
    Ok(events as f64 / took.await??.as_secs_f64())
}

/// A partner that answers 200 at once, in a thread of its own.
fn sink() -> Result<SocketAddr> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            axum::serve(listener, axum::Router::new().fallback(async |_: axum::body::Bytes| "")).await?;
            Ok(())
        })
    });
    Ok(address)
}

/// CPU time of the server and of all its processes, also of those that have ended; on Linux only.
async fn cpu_secs(database: &Database) -> Result<f64> {
    let mut owner = database.owner().await?;
    let session: i32 = sqlx::query("select pg_backend_pid()").fetch_one(&mut owner).await?.get(0);
    let stat = |pid: &str| -> Result<Vec<String>> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field is the name, which may hold spaces.
        let (_, rest) = text.rsplit_once(')').context("no name in /proc")?;
        Ok(rest.split_whitespace().map(str::to_owned).collect())
    };
    let ticks = |fields: &[String], range: std::ops::Range<usize>| -> f64 {
        fields[range].iter().filter_map(|field| field.parse::<f64>().ok()).sum()
    };
    let server = stat(&session.to_string())?[1].clone();
    // Of the server those of its ended children too: utime, stime, cutime, cstime.
    let mut sum = ticks(&stat(&server)?, 11..15);
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.bytes().all(|b| b.is_ascii_digit())
            && let Ok(fields) = stat(&name)
            && fields[1] == server
        {
            sum += ticks(&fields, 11..13);
        }
    }
    owner.close().await?;
    Ok(sum / TICKS_PER_SEC)
}
