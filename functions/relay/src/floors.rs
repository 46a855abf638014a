//! How far this relay has come at each destination. What was delivered leaves dead entries in the index, below what is
//! due; they cannot be removed while anybody holds an old snapshot, and need not be walked again for every batch.

use std::collections::HashMap;
use std::time::Duration;

use shared::outbox::Claimed;
use tokio::time::Instant;
use uuid::Uuid;

/// After so long a destination is looked at from the beginning again: an event that took long to commit may lie there.
const TRUSTED: Duration = Duration::from_secs(5);
/// Or after so many times as long as such a look takes, if that is longer.
const TRUSTED_LOOKS: u32 = 10;
/// Below the oldest due row: an event that commits a little late is still found at once. (It is written last in its
/// transaction, some milliseconds before the commit.)
const MARGIN_SECS: f64 = 0.2;
/// More than this are not kept: each claim passes them all.
const MOST: usize = 64;

#[derive(Default)]
pub(crate) struct Floors(HashMap<Uuid, Floor>);

struct Floor {
    secs: f64,
    /// When the destination is looked at from the beginning again.
    until: Instant,
}

impl Floors {
    /// What the next claim may rely on.
    pub(crate) fn current(&mut self, now: Instant) -> (Vec<Uuid>, Vec<f64>) {
        self.0.retain(|_, floor| now < floor.until);
        self.0.iter().map(|(id, floor)| (*id, floor.secs)).unzip()
    }

    /// Notes where a claim found its rows, begun at `begun`.
    pub(crate) fn note(&mut self, claimed: &[Claimed], begun: Instant) {
        let until = begun + TRUSTED.max(begun.elapsed() * TRUSTED_LOOKS);
        for row in claimed {
            let Some(first) = row.floor_secs else { continue };
            if let Some(floor) = self.0.get_mut(&row.destination_id) {
                floor.secs = first - MARGIN_SECS;
            } else if self.0.len() < MOST {
                self.0.insert(row.destination_id, Floor { secs: first - MARGIN_SECS, until });
            }
        }
    }
}
