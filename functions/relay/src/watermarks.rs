//! Watermarks: the due time up to which this relay has worked through a destination's rows. Delivered rows leave dead index
//! entries below it, which vacuum cannot remove while an old snapshot is open. Claims begin at the watermark, so that not
//! every batch reads them again.

use std::collections::HashMap;
use std::time::Duration;

use shared::delivery::outbox::Claimed;
use tokio::time::Instant;
use uuid::Uuid;

/// Lifetime of a watermark, then a full rescan of the destination: an event that took long to commit may be below.
const LIFETIME: Duration = Duration::from_secs(5);
/// After a rescan that took t the lifetime is at least 10 t.
const LIFETIME_PER_RESCAN: u32 = 10;
/// The watermark lies this far below the oldest due row, so that an event that commits a little late is found at once: it is
/// written some milliseconds before its commit.
const MARGIN_SECS: f64 = 0.2;
/// Each claim sends all watermarks to the database: keep few.
const MAX_WATERMARKS: usize = 64;

#[derive(Default)]
pub(crate) struct Watermarks(HashMap<Uuid, Watermark>);

struct Watermark {
    /// Seconds since 1970.
    secs: f64,
    until: Instant,
}

impl Watermarks {
    /// Drops those whose lifetime is over and returns the others.
    pub(crate) fn current(&mut self, now: Instant) -> Vec<(Uuid, f64)> {
        self.0.retain(|_, watermark| now < watermark.until);
        self.0.iter().map(|(id, watermark)| (*id, watermark.secs)).collect()
    }

    /// Moves watermarks to the rows of a claim that began at `begun`.
    pub(crate) fn note(&mut self, claimed: &[Claimed], begun: Instant) {
        let until = begun + LIFETIME.max(begun.elapsed() * LIFETIME_PER_RESCAN);
        for row in claimed {
            let Some(oldest_due_secs) = row.oldest_due_secs else { continue };
            let secs = oldest_due_secs - MARGIN_SECS;
            if let Some(watermark) = self.0.get_mut(&row.destination_id) {
                watermark.secs = secs;
            } else if self.0.len() < MAX_WATERMARKS {
                self.0.insert(row.destination_id, Watermark { secs, until });
            }
        }
    }
}
