//! The loop: settle what has ended, claim into the free slots, wait. One task owns the database connection; attempts
//! run beside it.

use std::sync::Arc;
use std::time::Duration;

use shared::db::DbError;
use shared::delivery::{Attempt, Sender, retry_delay};
use shared::outbox::{self, ClaimRequest, Claimed, LeaseTerms, Outcome, Settlement};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use uuid::Uuid;

use crate::lanes::Lanes;
use crate::{DrainError, Relay, Summary};

/// Tries to settle a set before the drain gives up; `Db::run` reconnects within each.
const SETTLE_TRIES: u32 = 3;
/// Between two tries.
const SETTLE_PAUSE: Duration = Duration::from_millis(300);

/// An attempt that has ended.
struct Ended {
    id: i64,
    destination: Uuid,
    token: Uuid,
    attempts: i32,
    attempt: Attempt,
}

struct Drain<'r> {
    relay: &'r Relay,
    sender: Arc<Sender>,
    summary: Summary,
    lanes: Lanes,
    under_way: JoinSet<Ended>,
    settlements: Vec<Settlement>,
    /// The destination served last.
    after: Uuid,
    /// Nothing is claimed from here on.
    last_claim: Instant,
    /// When to look for due rows: at once, until a claim comes back empty.
    look_at: Instant,
    /// When to look for lost rows, though other work be under way.
    lost_look_at: Instant,
    /// Whether there was no lost row due when last looked, and nothing was claimed since.
    none_lost: bool,
}

pub(crate) async fn drain(
    relay: &Relay,
    sender: Sender,
    watch: Duration,
    deadline: Instant,
) -> Result<Summary, DrainError> {
    let now = Instant::now();
    let limits = &relay.limits;
    let mut drain = Drain {
        relay,
        sender: Arc::new(sender),
        summary: Summary::default(),
        lanes: Lanes::new(limits.in_flight_each),
        under_way: JoinSet::new(),
        settlements: Vec::new(),
        after: Uuid::nil(),
        last_claim: deadline.checked_sub(limits.attempt + limits.settle).unwrap_or(now),
        look_at: now,
        // Other work first: a lost row that kills this relay too must not keep it from ever doing any.
        lost_look_at: now + limits.look_every,
        none_lost: false,
    };
    let outcome = drain.turns(now + watch).await;
    // Whatever stopped the turns: what is under way is awaited and settled.
    drain.finish().await?;
    outcome?;
    Ok(drain.summary)
}

impl Drain<'_> {
    async fn turns(&mut self, watch_until: Instant) -> Result<(), DrainError> {
        loop {
            self.collect_ended();
            self.settle().await?;
            let now = Instant::now();
            if now >= self.last_claim {
                return Ok(());
            }
            if now >= self.lost_look_at && self.lost_turn().await? {
                continue;
            }
            if now >= self.look_at && self.lanes.in_flight() < self.relay.limits.in_flight {
                self.claim().await?;
                continue;
            }
            let idle = self.lanes.in_flight() == 0;
            if idle && !self.none_lost {
                self.lost_turn().await?;
                continue;
            }
            let mut wake_at = self.lost_look_at.min(self.last_claim);
            if now < self.look_at {
                wake_at = wake_at.min(self.look_at);
            }
            if !idle {
                if let Ok(Some(ended)) = timeout_at(wake_at, self.under_way.join_next()).await {
                    self.end(ended);
                }
            } else if now >= watch_until {
                return Ok(());
            } else {
                sleep_until(wake_at).await;
            }
        }
    }

    /// Claims a batch and starts all of it. After an empty one the next look is due a pause later.
    async fn claim(&mut self) -> Result<(), DbError> {
        let limits = &self.relay.limits;
        let (busy, room) = self.lanes.room();
        let request = ClaimRequest {
            slots: limits.batch.min(limits.in_flight - self.lanes.in_flight()),
            after: self.after,
            busy: &busy,
            room: &room,
            room_each: limits.in_flight_each,
            terms: self.terms(),
        };
        let db = &self.relay.db;
        let (claimed, after) = db
            .run_prepared(&(db.persistent(), request), |connection, (persistent, request)| {
                Box::pin(async move { Ok(outbox::claim(connection, *persistent, request).await?) })
            })
            .await?;
        self.after = after;
        if claimed.is_empty() {
            self.look_at = Instant::now() + limits.look_every;
        }
        claimed.into_iter().for_each(|row| self.start(row));
        Ok(())
    }

    /// The turn of the rows that were lost with a relay: one of them, alone, since it may be what killed it. Returns
    /// whether one was claimed. Other work then gets the next turn, and at least as much time as this one took.
    async fn lost_turn(&mut self) -> Result<bool, DbError> {
        let begun = Instant::now();
        self.lost_look_at = begun + self.relay.limits.look_every;
        self.none_lost = true;
        let db = &self.relay.db;
        let lost = db
            .run_prepared(&db.persistent(), |connection, persistent| {
                Box::pin(async move { Ok(outbox::sweep_lost(connection, *persistent).await?) })
            })
            .await?;
        self.summary.dead_lettered += u64::from(lost.dead_lettered.unsigned_abs());
        if !lost.lost_due {
            return Ok(false);
        }
        self.finish().await?;
        if Instant::now() >= self.last_claim {
            return Ok(false);
        }
        let asked = (db.persistent(), self.lanes.troubled(), self.terms());
        let suspect = db
            .run_prepared(&asked, |connection, (persistent, troubled, terms)| {
                Box::pin(
                    async move { Ok(outbox::claim_lost(connection, *persistent, troubled, *terms).await?) },
                )
            })
            .await?;
        let Some(suspect) = suspect else { return Ok(false) };
        self.start(suspect);
        self.finish().await?;
        let now = Instant::now();
        self.look_at = now;
        self.lost_look_at = now + (now - begun);
        Ok(true)
    }

    fn terms(&self) -> LeaseTerms {
        let limits = &self.relay.limits;
        LeaseTerms {
            lease: limits.lease,
            retry_unit: limits.retry_unit,
            jitter: (self.relay.ambient.jitter)(),
        }
    }

    fn start(&mut self, row: Claimed) {
        self.summary.claimed += 1;
        self.none_lost = false;
        self.lanes.start(row.destination_id);
        let (sender, now) = (Arc::clone(&self.sender), self.relay.ambient.now);
        self.under_way.spawn(async move {
            let attempt = sender.attempt(&row, now()).await;
            Ended {
                id: row.id,
                destination: row.destination_id,
                token: row.token,
                attempts: row.attempts,
                attempt,
            }
        });
    }

    fn collect_ended(&mut self) {
        while let Some(ended) = self.under_way.try_join_next() {
            self.end(ended);
        }
    }

    fn end(&mut self, ended: Result<Ended, JoinError>) {
        let ended = match ended {
            Ok(ended) => ended,
            // A panic in an attempt ends the relay, as it does where panics abort: its row is then claimed alone.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let answered = !matches!(ended.attempt, Attempt::NoAnswer { .. });
        if self.lanes.end(ended.destination, answered) {
            self.look_at = Instant::now();
        }
        self.settlements.push(Settlement { id: ended.id, token: ended.token, outcome: self.outcome(ended) });
    }

    fn outcome(&self, ended: Ended) -> Outcome {
        let (error, retry_after) = match ended.attempt {
            Attempt::Delivered => return Outcome::Delivered,
            Attempt::Gone { error } => return Outcome::Gone { error },
            Attempt::Refused { error, retry_after } => (error, retry_after),
            Attempt::NoAnswer { error } | Attempt::Unsendable { error } => (error, None),
        };
        let jitter = (self.relay.ambient.jitter)();
        let delay = retry_delay(ended.attempts, jitter, self.relay.limits.retry_unit, retry_after);
        Outcome::Failed { error, delay }
    }

    /// Waits for all that is under way and settles it as it ends.
    async fn finish(&mut self) -> Result<(), DbError> {
        while let Some(ended) = self.under_way.join_next().await {
            self.end(ended);
            self.collect_ended();
            self.settle().await?;
        }
        self.settle().await
    }

    async fn settle(&mut self) -> Result<(), DbError> {
        if self.settlements.is_empty() {
            return Ok(());
        }
        let db = &self.relay.db;
        let asked = (db.persistent(), std::mem::take(&mut self.settlements));
        let mut tries = 0;
        let settled = loop {
            tries += 1;
            let settled = db
                .run_prepared(&asked, |connection, (persistent, settlements)| {
                    Box::pin(async move { Ok(outbox::settle(connection, *persistent, settlements).await?) })
                })
                .await;
            match settled {
                Ok(settled) => break settled,
                Err(error) if tries < SETTLE_TRIES => {
                    tracing::warn!(%error, rows = asked.1.len(), "not settled; trying again");
                    tokio::time::sleep(SETTLE_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        };
        if settled.refused > 0 {
            tracing::warn!(rows = settled.refused, "results refused: the lease had run out");
        }
        self.summary.delivered += settled.delivered;
        self.summary.failed += settled.failed;
        self.summary.dead_lettered += settled.dead_lettered;
        Ok(())
    }
}
