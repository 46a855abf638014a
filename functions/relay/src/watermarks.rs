//! How far this relay has come at each destination. What was delivered leaves dead entries in the index, below what is
//! due; they cannot be removed while anybody holds an old snapshot, and need not be walked again for every batch.

use std::collections::HashMap;
use std::time::Duration;

use shared::delivery::outbox::Claimed;
use tokio::time::Instant;
use uuid::Uuid;

/// Lifetime of a watermark; then a full rescan of the destination, since an event that took long to commit may lie below.
const LIFETIME: Duration = Duration::from_secs(5);
/// A rescan that took t is not repeated for this many times t, if that is longer than the lifetime.
const LIFETIME_PER_RESCAN: u32 = 10;
/// Below the oldest due row: an event that commits a little late is still found at once. (It is written last in its
/// transaction, some milliseconds before the commit.)
const MARGIN_SECS: f64 = 0.2;
/// More than this are not kept: each claim passes them all.
const MOST: usize = 64;

#[derive(Default)]
pub(crate) struct Watermarks(HashMap<Uuid, Watermark>);

struct Watermark {
    /// Due time of the oldest row, in seconds since 1970.
    secs: f64,
    /// When the destination is scanned from the beginning again.
    until: Instant,
}

impl Watermarks {
    /// What the next claim may rely on.
    pub(crate) fn current(&mut self, now: Instant) -> Vec<(Uuid, f64)> {
        self.0.retain(|_, watermark| now < watermark.until);
        self.0.iter().map(|(id, watermark)| (*id, watermark.secs)).collect()
    }

    /// Notes where a claim found its rows, begun at `begun`.
    pub(crate) fn note(&mut self, claimed: &[Claimed], begun: Instant) {
        let until = begun + LIFETIME.max(begun.elapsed() * LIFETIME_PER_RESCAN);
        for row in claimed {
            let Some(oldest_due_secs) = row.oldest_due_secs else { continue };
            let secs = oldest_due_secs - MARGIN_SECS;
            if let Some(watermark) = self.0.get_mut(&row.destination_id) {
                watermark.secs = secs;
            } else if self.0.len() < MOST {
                self.0.insert(row.destination_id, Watermark { secs, until });
            }
        }
    }
}
