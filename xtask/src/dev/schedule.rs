//! The schedules that EventBridge runs on AWS: relay every minute, reaper at minute 17 of every hour.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at};

/// Minute of the hour at which the reaper runs, as in `cron(17 * * * ? *)`.
const REAPER_MINUTE: i64 = 17;
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// The longest timeout that Lambda allows.
const INVOCATION_TIMEOUT: Duration = Duration::from_secs(900);

/// Runs them until the returned set is dropped. The relay starts at once and keeps watching until its next start, so an
/// event waits for a second at most. Of failures in a row only the first is printed.
pub fn start(base_url: &str) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    tasks.spawn(run(base_url.to_owned(), "relay", interval(MINUTE)));
    let next = Instant::now() + until_minute(REAPER_MINUTE, jiff::Timestamp::now().as_second());
    tasks.spawn(run(base_url.to_owned(), "reaper", interval_at(next, HOUR)));
    tasks
}

/// From `now` (seconds since 1970) to the next time the clock shows this minute.
fn until_minute(minute: i64, now: i64) -> Duration {
    let wait = (minute * 60 - now).rem_euclid(3600);
    Duration::from_secs(wait.unsigned_abs())
}

async fn run(base_url: String, function: &'static str, mut due: tokio::time::Interval) {
    // After the machine slept, one run makes up for all that were missed.
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut running = JoinSet::new();
    let mut failing = false;
    loop {
        tokio::select! {
            _ = due.tick() => {
                running.spawn(invoke(base_url.clone(), function));
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

async fn invoke(base_url: String, function: &'static str) -> Result<()> {
    let url = format!("{base_url}/2015-03-31/functions/{function}/invocations");
    let answer = reqwest::Client::new()
        .post(url)
        .timeout(INVOCATION_TIMEOUT)
        .header("content-type", "application/json")
        .body("{}")
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
    fn the_reaper_waits_for_its_minute_in_this_hour_or_the_next() {
        let at = |minute: i64, second: i64| 1_700_000_000 / 3600 * 3600 + minute * 60 + second;
        assert_eq!(until_minute(17, at(16, 30)), Duration::from_secs(30));
        assert_eq!(until_minute(17, at(17, 0)), Duration::ZERO);
        assert_eq!(until_minute(17, at(17, 1)), Duration::from_secs(3599));
        assert_eq!(until_minute(17, at(0, 0)), Duration::from_secs(17 * 60));
    }
}
