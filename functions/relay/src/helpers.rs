//! More relays when one is not enough: one-time invocations for the next minute.

use aws::scheduler::{Asked, Scheduler};
use jiff::Timestamp;
use serde_json::json;

/// Whom a relay may ask for help.
#[derive(Clone, Debug)]
pub struct Helpers {
    /// Invokes relays.
    pub scheduler: Scheduler,
    /// At most so many in a minute, whoever asks.
    pub max: u32,
}

/// Rows that a relay is taken to deliver, where it delivered fewer than that itself.
const LEAST_CAPACITY: u64 = 500;

impl Helpers {
    /// Asks for as many relays as `due` rows need beside the next scheduled one, given that this one delivered
    /// `delivered`. The names come from the minute, so relays that ask side by side ask for the same ones. A failure is
    /// logged: the rows wait for the next minute.
    pub async fn ask(&self, due: u64, delivered: u64, now: Timestamp) {
        let minute = now.as_second().div_euclid(60) + 1;
        for number in 1..=wanted(due, delivered, self.max) {
            let name = format!("holdfast-relay-{minute}-{number}");
            let Ok(at) = Timestamp::from_second(minute * 60) else { return };
            match self.scheduler.once_at(&name, at, &json!({"helper": number})).await {
                Ok(Asked::Now) => tracing::info!(name, due, "asked for a helper"),
                Ok(Asked::Before) => tracing::info!(name, "a helper was asked for before"),
                Err(error) => {
                    tracing::warn!(%error, "no helper");
                    return;
                }
            }
        }
    }
}

fn wanted(due: u64, delivered: u64, max: u32) -> u32 {
    let needed = due.div_ceil(delivered.max(LEAST_CAPACITY));
    u32::try_from(needed).unwrap_or(u32::MAX).min(max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_asked_for_by_what_is_left_and_never_for_more_than_allowed() {
        assert_eq!(wanted(0, 1000, 4), 0);
        assert_eq!(wanted(1, 1000, 4), 1);
        assert_eq!(wanted(3000, 1000, 4), 3);
        assert_eq!(wanted(100_000, 1000, 4), 4);
        assert_eq!(wanted(100_000, 0, 0), 0);
    }
}
