//! The schedules that EventBridge runs on AWS: relay every minute, reaper at minute 17 of every hour, reconcile at two in the
//! night (UTC), and what it left open every ten minutes.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};

const MINUTE: Duration = Duration::from_secs(60);
const TEN_MINUTES: Duration = Duration::from_secs(600);
const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// `cron(17 * * * ? *)`.
const REAPER_AT: Duration = Duration::from_secs(17 * 60);
/// `cron(0 2 * * ? *)`.
const NIGHT_AT: Duration = Duration::from_secs(2 * 3600);
/// `cron(5/10 * * * ? *)`.
const RESUME_AT: Duration = Duration::from_secs(5 * 60);
/// The longest timeout that Lambda allows.
const INVOCATION_TIMEOUT: Duration = Duration::from_secs(900);

/// Runs them until the returned set is dropped. The relay starts at once and keeps watching until its next start, so an
/// event waits for a second at most. Of failures in a row only the first is printed.
pub fn start(base_url: &str) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(run(base_url.to_owned(), "relay", "{}", interval(MINUTE)));
    let now = jiff::Timestamp::now().as_second();
    for (function, event, period, at) in [
        ("reaper", "{}", HOUR, REAPER_AT),
        ("reconcile", "{}", DAY, NIGHT_AT),
        ("reconcile", r#"{"resume":true}"#, TEN_MINUTES, RESUME_AT),
    ] {
        let next = Instant::now() + until(period, at, now);
        tasks.spawn(run(base_url.to_owned(), function, event, interval_at(next, period)));
    }
    tasks
}

/// From `now` (seconds since 1970) to the next time that is `at` from the beginning of a period.
fn until(period: Duration, at: Duration, now: i64) -> Duration {
    let [period, at] = [period, at].map(|time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
    Duration::from_secs((at - now).rem_euclid(period).unsigned_abs())
}

async fn run(base_url: String, function: &'static str, event: &'static str, mut due: tokio::time::Interval) {
    // After the machine slept, one run makes up for all that were missed.
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut running = JoinSet::new();
    let mut failing = false;
    loop {
        tokio::select! {
            _ = due.tick() => {
                running.spawn(invoke(base_url.clone(), function, event));
            }
            Some(ended) = running.join_next() => match ended.map_err(anyhow::Error::from).flatten() {
                Ok(()) => failing = false,
                Err(error) if !failing => {
                    failing = true;
                    eprintln!("{function}: {error:#}");
                }
                Err(_) => {}
            },
        }
    }
}

async fn invoke(base_url: String, function: &'static str, event: &'static str) -> Result<()> {
    let url = format!("{base_url}/2015-03-31/functions/{function}/invocations");
    let answer = reqwest::Client::new()
        .post(url)
        .timeout(INVOCATION_TIMEOUT)
        .header("content-type", "application/json")
        .body(event)
        .send()
        .await
        .context("the scheduled invocation got no answer")?;
    let status = answer.status();
    let body = answer.text().await.unwrap_or_default();
    // A function that fails answers with an error document, not with a status.
    if !status.is_success() || body.contains("\"errorType\"") {
        bail!("the scheduled invocation failed ({status}): {}", body.chars().take(500).collect::<String>());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_waits_for_its_moment_in_this_period_or_the_next() {
        let at = |minute: i64, second: i64| 1_700_000_000 / 3600 * 3600 + minute * 60 + second;
        let reaper = |now| until(HOUR, REAPER_AT, now);
        assert_eq!(reaper(at(16, 30)), Duration::from_secs(30));
        assert_eq!(reaper(at(17, 0)), Duration::ZERO);
        assert_eq!(reaper(at(17, 1)), Duration::from_secs(3599));
        assert_eq!(reaper(at(0, 0)), Duration::from_secs(17 * 60));
        assert_eq!(until(TEN_MINUTES, RESUME_AT, at(26, 0)), Duration::from_secs(9 * 60));
        // 1970-01-02, one in the night.
        assert_eq!(until(DAY, NIGHT_AT, 25 * 3600), Duration::from_secs(3600));
    }
}
