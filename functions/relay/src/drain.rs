//! The loop: settle what has ended, claim into the free slots, wait. One task owns the database connection; attempts
//! run beside it.

use std::sync::Arc;
use std::time::Duration;

use shared::db::connection::DbError;
use shared::delivery::attempt::Attempt;
use shared::delivery::outbox::{self, ClaimRequest, Claimed, DestinationKind, LeaseTerms};
use shared::delivery::settlement::{self, Settlement, Transition};
use shared::delivery::shopify_items::{self, LearnedItem};
use shared::delivery::shopify_push::Pushed;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use uuid::Uuid;

use crate::lanes::Lanes;
use crate::parcels::{Carrier, Parcel, bundle};
use crate::times::BatchTimes;
use crate::watermarks::Watermarks;
use crate::{DrainError, Relay, Summary};

/// Tries to settle a set before the drain gives up; `Db::run` reconnects within each.
const SETTLE_TRIES: u32 = 3;
/// Between two tries.
const SETTLE_PAUSE: Duration = Duration::from_millis(300);

/// After an idle poll that took t, wait this many times t, or `look_every` if that is longer.
const IDLE_POLL_PAUSES: u32 = 4;
/// The same after a poll for lost rows, which have been lost for a while anyway.
const LOST_POLL_PAUSES: u32 = 10;

/// Queues of ordered destinations that one sweep looks at.
const SWEEP_STEPS: u32 = 200;

/// An attempt that has ended.
struct Ended {
    parcel: Parcel,
    batch: u64,
    pushed: Pushed,
}

/// What a drain did, and whether it left something undone.
pub(crate) struct Drained {
    pub(crate) summary: Summary,
    pub(crate) more: bool,
    pub(crate) times: BatchTimes,
}

struct Drain<'r> {
    relay: &'r Relay,
    carrier: Arc<Carrier>,
    summary: Summary,
    lanes: Lanes,
    under_way: JoinSet<Ended>,
    settlements: Vec<Settlement>,
    watermarks: Watermarks,
    times: BatchTimes,
    /// What shops said their inventory items are, to be kept.
    learned: Vec<LearnedItem>,
    /// How far the sweep of ordered queues has come.
    swept: (Uuid, Uuid),
    /// Whether time was up before everything was done.
    more: bool,
    /// The destination served last.
    after: Uuid,
    /// Nothing is claimed from here on.
    last_claim: Instant,
    /// When to look for due rows: at once, until a claim comes back empty.
    look_at: Instant,
    /// Whether the last claim came back empty, and nothing has happened since that could have made rows due.
    idle: bool,
    /// When to look for lost rows, though other work be under way.
    lost_look_at: Instant,
    /// Whether there was no lost row due when last looked, and nothing was claimed since.
    none_lost: bool,
}

pub(crate) async fn drain(
    relay: &Relay,
    carrier: Carrier,
    watch: Duration,
    deadline: Instant,
) -> Result<Drained, DrainError> {
    let now = Instant::now();
    let limits = &relay.limits;
    let mut drain = Drain {
        relay,
        carrier: Arc::new(carrier),
        summary: Summary::default(),
        lanes: Lanes::new(limits.in_flight, limits.in_flight_each),
        under_way: JoinSet::new(),
        settlements: Vec::new(),
        watermarks: Watermarks::default(),
        times: BatchTimes::default(),
        learned: Vec::new(),
        swept: (Uuid::nil(), Uuid::nil()),
        more: false,
        after: Uuid::nil(),
        last_claim: deadline.checked_sub(limits.attempt + limits.settle).unwrap_or(now),
        look_at: now,
        idle: false,
        // Other work first: a lost row that kills this relay too must not keep it from ever doing any.
        lost_look_at: now + limits.look_every,
        none_lost: false,
    };
    let outcome = drain.turns(now + watch).await;
    // Whatever stopped the turns: what is under way is awaited and settled.
    drain.finish().await?;
    outcome?;
    Ok(Drained { summary: drain.summary, more: drain.more, times: drain.times })
}

impl Drain<'_> {
    async fn turns(&mut self, watch_until: Instant) -> Result<(), DrainError> {
        loop {
            self.collect_ended();
            self.settle().await?;
            let now = Instant::now();
            if now >= self.last_claim {
                // Where it only watched, or waited for a pace, another relay could do no more.
                self.more = !self.idle || self.lanes.any_full();
                return Ok(());
            }
            if now >= self.lost_look_at && self.lost_turn().await? {
                continue;
            }
            if now >= self.look_at && self.lanes.free() > 0 {
                self.claim().await?;
                continue;
            }
            let alone = self.lanes.in_flight() == 0;
            if alone && !self.none_lost {
                self.lost_turn().await?;
                continue;
            }
            let mut wake_at = self.lost_look_at.min(self.last_claim);
            if now < self.look_at {
                wake_at = wake_at.min(self.look_at);
            }
            if !alone {
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
        let (begun, db) = (Instant::now(), &self.relay.db);
        let (busy, watermarks) = (self.lanes.busy(), self.watermarks.current(begun));
        let request = ClaimRequest {
            slots: limits.batch.min(self.lanes.free()),
            after: self.after,
            busy: &busy,
            room_each: self.lanes.room_each(),
            watermarks: &watermarks,
            terms: self.terms(),
        };
        let (claimed, after) = outbox::claim(db, &request).await?;
        self.after = after;
        self.idle = claimed.is_empty();
        if self.idle {
            self.look_at = Instant::now() + limits.look_every.max(begun.elapsed() * IDLE_POLL_PAUSES);
            return Ok(());
        }
        self.watermarks.note(&claimed, begun);
        self.start(claimed, begun).await
    }

    /// The turn of the rows that were lost with a relay: one of them, alone, since it may be what killed it. Returns
    /// whether one was claimed. Other work then gets the next turn, and at least as much time as this one took.
    async fn lost_turn(&mut self) -> Result<bool, DbError> {
        let begun = Instant::now();
        self.none_lost = true;
        self.sweep_order().await?;
        let db = &self.relay.db;
        let lost = outbox::sweep_lost(db).await?;
        self.lost_look_at = begun + self.relay.limits.look_every.max(begun.elapsed() * LOST_POLL_PAUSES);
        self.summary.dead_lettered += u64::from(lost.dead_lettered.unsigned_abs());
        if !lost.lost_due {
            return Ok(false);
        }
        self.finish().await?;
        if Instant::now() >= self.last_claim {
            return Ok(false);
        }
        let suspect = outbox::claim_lost(db, &self.lanes.troubled(), self.terms()).await?;
        if suspect.is_empty() {
            return Ok(false);
        }
        self.start(suspect, begun).await?;
        self.finish().await?;
        self.look_now();
        let now = Instant::now();
        self.lost_look_at = now + (now - begun);
        Ok(true)
    }

    /// Looks at some ordered queues, going round: a head that nobody woke is woken.
    async fn sweep_order(&mut self) -> Result<(), DbError> {
        let (swept, woken) = outbox::sweep_order(&self.relay.db, self.swept, SWEEP_STEPS).await?;
        self.swept = swept.unwrap_or((Uuid::nil(), Uuid::nil()));
        if woken > 0 {
            self.look_now();
        }
        Ok(())
    }

    fn look_now(&mut self) {
        (self.look_at, self.idle) = (Instant::now(), false);
    }

    fn terms(&self) -> LeaseTerms {
        let limits = &self.relay.limits;
        LeaseTerms {
            lease: limits.lease,
            retry_unit: limits.retry_unit,
            jitter: (self.relay.ambient.jitter)(),
        }
    }

    /// Starts all that was claimed. What a push or a mail is made of is read now, when the claim has committed.
    async fn start(&mut self, claimed: Vec<Claimed>, claimed_at: Instant) -> Result<(), DbError> {
        self.summary.claimed += claimed.len() as u64;
        self.none_lost = false;
        let mut parcels = bundle(claimed);
        let asks: Vec<i64> = parcels.iter().filter_map(Parcel::asks).collect();
        if !asks.is_empty() {
            let mut facts = outbox::facts(&self.relay.db, &asks).await?;
            parcels.iter_mut().for_each(|parcel| parcel.inform(&mut facts));
        }
        let batch = self.times.begin(claimed_at, parcels.len());
        for parcel in parcels {
            self.lanes.start(parcel.newest.destination_id);
            let (carrier, now) = (Arc::clone(&self.carrier), self.relay.ambient.now);
            self.under_way.spawn(async move {
                let pushed = carrier.carry(&parcel, now()).await;
                Ended { parcel, batch, pushed }
            });
        }
        Ok(())
    }

    fn collect_ended(&mut self) {
        while let Some(ended) = self.under_way.try_join_next() {
            self.end(ended);
        }
    }

    fn end(&mut self, ended: Result<Ended, JoinError>) {
        let Ended { parcel, batch, pushed } = match ended {
            Ok(ended) => ended,
            // A panic in an attempt ends the relay, as it does where panics abort: its row is then claimed alone.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let newest = &parcel.newest;
        self.times.end(batch, Instant::now());
        let answered = !matches!(pushed.attempt, Attempt::NoAnswer { .. });
        // Changes of a SKU that came while it was being pushed were not claimable until now.
        let waited_for = newest.kind == DestinationKind::ShopifyInventory;
        if self.lanes.end(newest.destination_id, answered) || waited_for {
            self.look_now();
        }
        if let Some(item) = pushed.learned {
            self.learned.push(LearnedItem {
                tenant_id: newest.tenant_id,
                destination_id: newest.destination_id,
                sku_id: newest.aggregate_id,
                inventory_item_id: item,
            });
        }
        for id in &parcel.rows {
            let transition = self.transition(&pushed.attempt);
            self.settlements.push(Settlement { id: *id, token: newest.token, transition });
        }
    }

    fn transition(&self, attempt: &Attempt) -> Transition {
        let (error, retry_after, pause) = match attempt {
            Attempt::Delivered => return Transition::Delivered,
            Attempt::Gone { error } => return Transition::Gone { error: error.clone() },
            Attempt::Rejected { error } => return Transition::Rejected { error: error.clone() },
            Attempt::Refused { error, retry_after } => (error, *retry_after, None),
            Attempt::Throttled { error, wait } => (error, Some(*wait), Some(*wait)),
            Attempt::NoAnswer { error } | Attempt::Unsendable { error } => (error, None, None),
        };
        let jitter = (self.relay.ambient.jitter)();
        Transition::Failed { error: error.clone(), jitter, retry_after, pause }
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
        let (db, limits) = (&self.relay.db, &self.relay.limits);
        let settlements = std::mem::take(&mut self.settlements);
        let mut tries = 0;
        let settled = loop {
            tries += 1;
            match settlement::settle(db, &settlements, limits.retry_unit, limits.breaker).await {
                Ok(settled) => break settled,
                Err(error) if tries < SETTLE_TRIES => {
                    tracing::warn!(%error, rows = settlements.len(), "not settled; trying again");
                    tokio::time::sleep(SETTLE_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        };
        if settled.refused > 0 {
            tracing::warn!(rows = settled.refused, "results refused: the lease had run out");
        }
        if settled.woken {
            self.look_now();
        }
        self.summary.delivered += settled.delivered;
        self.summary.failed += settled.failed;
        self.summary.dead_lettered += settled.dead_lettered;
        self.summary.disabled += settled.disabled;
        self.summary.recovered += settled.recovered;
        self.keep_learned().await
    }

    /// Keeps what shops said their inventory items are.
    async fn keep_learned(&mut self) -> Result<(), DbError> {
        for item in std::mem::take(&mut self.learned) {
            shopify_items::learn(&self.relay.db, &item).await?;
        }
        Ok(())
    }
}
