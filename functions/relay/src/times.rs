//! Times of batches, from the claim to the last answer, for the metrics.

use std::collections::HashMap;

use tokio::time::Instant;

/// One EMF metric of a line holds at most 100 values.
const MAX_TIMES: usize = 100;

#[derive(Default)]
pub(crate) struct BatchTimes {
    under_way: HashMap<u64, (Instant, usize)>,
    last: u64,
    done_ms: Vec<f64>,
}

impl BatchTimes {
    /// Returns the number of the new batch.
    pub(crate) fn begin(&mut self, claimed_at: Instant, messages: usize) -> u64 {
        self.last += 1;
        self.under_way.insert(self.last, (claimed_at, messages));
        self.last
    }

    /// Ends one message of a batch.
    pub(crate) fn end(&mut self, batch: u64, now: Instant) {
        let Some((begun, left)) = self.under_way.get_mut(&batch) else { return };
        *left -= 1;
        if *left == 0 {
            let took_ms = (now - *begun).as_secs_f64() * 1000.0;
            self.under_way.remove(&batch);
            if self.done_ms.len() < MAX_TIMES {
                self.done_ms.push(took_ms);
            }
        }
    }

    pub(crate) fn done_ms(&self) -> &[f64] {
        &self.done_ms
    }
}
