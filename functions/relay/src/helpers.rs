//! Helpers: additional relays for the next minute, when one is not enough.

use aws::scheduler::{Scheduled, Scheduler};
use jiff::Timestamp;
use serde_json::json;

/// Access to one-time relays.
#[derive(Clone, Debug)]
pub struct Helpers {
    /// Its target is the relay.
    pub scheduler: Scheduler,
    /// Most helpers in a minute, of all relays together.
    pub max: u32,
}

/// Rows that one helper is expected to deliver, if this relay did not deliver more.
const MIN_CAPACITY: u64 = 500;

impl Helpers {
    /// Schedules as many helpers as `due` rows need, given that this relay delivered `delivered`. Names contain the minute,
    /// so relays that ask at the same time share their helpers. A failure is only logged: the rows wait for the next
    /// scheduled relay.
    pub async fn ask(&self, due: u64, delivered: u64, now: Timestamp) {
        let minute = now.as_second().div_euclid(60) + 1;
        for number in 1..=wanted(due, delivered, self.max) {
            let name = format!("holdfast-relay-{minute}-{number}");
            let Ok(at) = Timestamp::from_second(minute * 60) else { return };
            match self.scheduler.once_at(&name, at, &json!({"helper": number})).await {
                Ok(Scheduled::Created) => tracing::info!(name, due, "helper scheduled"),
                Ok(Scheduled::AlreadyThere) => tracing::info!(name, "helper already scheduled"),
                Err(error) => {
                    tracing::warn!(%error, "no helper scheduled");
                    return;
                }
            }
        }
    }
}

fn wanted(due: u64, delivered: u64, max: u32) -> u32 {
    let needed = due.div_ceil(delivered.max(MIN_CAPACITY));
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
