//! `cargo xtask reconcile [--tenant ID]`: a reconciliation in the running stack, with its progress.
//!
//! The stack's function does the work, as it is deployed; this program starts it again until the run has ended, and reads
//! from the database how far it has come.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use xtask::dev_env::DevEnv;
use xtask::workspace::Workspace;

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The longest timeout that Lambda allows.
const INVOCATION_TIMEOUT: Duration = Duration::from_secs(900);

#[derive(clap::Args)]
pub struct Args {
    /// Only this tenant [default: all].
    #[arg(long, value_name = "TENANT_ID")]
    tenant: Option<Uuid>,
}

/// Fails where a run failed; one that is held is told.
pub async fn run(args: Args) -> Result<()> {
    let env = DevEnv::read(&Workspace::open()?)?;
    let mut conn = PgConnection::connect(env.get("DATABASE_URL")?)
        .await
        .context("the stack's database does not answer: is `cargo xtask dev` still running?")?;
    let url = format!("{}/2015-03-31/functions/reconcile/invocations", env.get("HOLDFAST_URL")?);
    let bar = ProgressBar::new(0);
    bar.set_style(ProgressStyle::with_template("{msg:9} {wide_bar} {pos}/{len} SKUs, {elapsed}")?);
    let mut event = json!({"tenantId": args.tenant});
    let summary = loop {
        let invoked = invoke(&url, event);
        tokio::pin!(invoked);
        let summary = loop {
            tokio::select! {
                summary = &mut invoked => break summary?,
                () = tokio::time::sleep(LOOK_EVERY) => show(&mut conn, args.tenant, &bar).await?,
            }
        };
        if summary["more"] != true {
            break summary;
        }
        event = json!({"tenantId": args.tenant, "resume": true});
    };
    bar.finish_and_clear();
    conn.close().await?;
    println!("{summary:#}");
    if summary["failed"].as_u64() != Some(0) {
        bail!(
            "{} of the reconciliations stopped with an error; the next one goes on there",
            summary["failed"]
        );
    }
    if summary["held"].as_u64() != Some(0) {
        eprintln!("{} wait for a person: see /console, or GET /admin/reconcile?state=held", summary["held"]);
    }
    Ok(())
}

async fn invoke(url: &str, event: Value) -> Result<Value> {
    let answer = reqwest::Client::new()
        .post(url)
        .timeout(INVOCATION_TIMEOUT)
        .header("content-type", "application/json")
        .body(event.to_string())
        .send()
        .await
        .context("the stack does not answer: does `cargo xtask dev` still run?")?;
    let summary: Value =
        serde_json::from_str(&answer.text().await?).context("reconcile answers no summary")?;
    // A function that fails answers with an error document, not with a status.
    if let Some(error) = summary["errorMessage"].as_str() {
        bail!("reconcile failed: {error}");
    }
    Ok(summary)
}

/// The runs that are open: what they walk is counted in lines until they compare SKUs.
async fn show(conn: &mut PgConnection, tenant: Option<Uuid>, bar: &ProgressBar) -> Result<()> {
    let row = sqlx::query(
        "select coalesce(sum(case when r.state = 'walking' then r.lines when r.state = 'booking' then r.booked else r.skus end), 0)::bigint,
           coalesce(sum(case when r.state = 'booking' then r.variances
             else (select count(*) from sku k where k.tenant_id = r.tenant_id) end), 0)::bigint,
           coalesce(min(r.state), 'starting')
         from reconcile_run r where r.finished_at is null and r.tenant_id = coalesce($1, r.tenant_id)",
    )
    .bind(tenant)
    .fetch_one(conn)
    .await?;
    let number = |column| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    bar.set_length(number(1)?);
    bar.set_position(number(0)?);
    bar.set_message(row.try_get::<String, _>(2)?);
    Ok(())
}
