//! `cargo xtask reconcile [--tenant ID]`: a reconciliation in the running stack, with its progress.
//!
//! The stack's function does the work, as it is deployed; this program starts it again until the run has ended, and reads
//! from the database how far it has come.

use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, Row};
use uuid::Uuid;

use xtask::dev_env::DevEnv;
use xtask::workspace::Workspace;

const LOOK_EVERY: Duration = Duration::from_millis(100);
const BAR_WIDTH: usize = 40;
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
    let mut event = json!({"tenantId": args.tenant});
    let summary = loop {
        let invoked = invoke(&url, event);
        tokio::pin!(invoked);
        let summary = loop {
            tokio::select! {
                summary = &mut invoked => break summary?,
                () = tokio::time::sleep(LOOK_EVERY) => show(&mut conn, args.tenant).await?,
            }
        };
        if summary["more"] != true {
            break summary;
        }
        event = json!({"tenantId": args.tenant, "resume": true});
    };
    clear();
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

/// How far the open runs are, as a bar; nothing where nobody looks. What they walk is counted in lines until they compare SKUs.
async fn show(conn: &mut PgConnection, tenant: Option<Uuid>) -> Result<()> {
    if !std::io::stderr().is_terminal() {
        return Ok(());
    }
    let row = sqlx::query(
        "select coalesce(sum(case r.state when 'walking' then r.lines when 'booking' then r.booked else r.skus end), 0)::bigint,
           coalesce(sum(case r.state when 'booking' then r.variances
             else (select count(*) from sku k where k.tenant_id = r.tenant_id) end), 0)::bigint,
           coalesce(min(r.state), 'starting')
         from reconcile_run r where r.finished_at is null and r.tenant_id = coalesce($1, r.tenant_id)",
    )
    .bind(tenant)
    .fetch_one(conn)
    .await?;
    let number = |column| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    eprint!("{}", bar(&row.try_get::<String, _>(2)?, number(0)?, number(1)?));
    Ok(std::io::stderr().flush()?)
}

/// A line that replaces the one before.
fn bar(state: &str, done: u64, all: u64) -> String {
    let filled = usize::try_from(done.min(all) * BAR_WIDTH as u64 / all.max(1)).unwrap_or(BAR_WIDTH);
    format!("\r{state:9} {}{} {done}/{all} SKUs ", "█".repeat(filled), "░".repeat(BAR_WIDTH - filled))
}

fn clear() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\u{1b}[2K");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_full_at_the_end_and_never_longer() {
        assert_eq!(bar("walking", 0, 0), format!("\rwalking   {} 0/0 SKUs ", "░".repeat(BAR_WIDTH)));
        let half = format!("{}{}", "█".repeat(BAR_WIDTH / 2), "░".repeat(BAR_WIDTH / 2));
        assert_eq!(bar("measuring", 250, 500), format!("\rmeasuring {half} 250/500 SKUs "));
        assert_eq!(bar("booking", 9, 3), format!("\rbooking   {} 9/3 SKUs ", "█".repeat(BAR_WIDTH)));
    }
}
