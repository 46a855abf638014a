//! The loop of a relay: settle finished attempts, claim rows into free slots, wait. One task owns the database connection;
//! attempts run as tasks beside it.

use std::sync::Arc;
use std::time::Duration;

use shared::db::error::DbError;
use shared::delivery::attempt::Attempt;
use shared::delivery::outbox::{
    self, ClaimRequest, Claimed, DestinationKind, LeaseTerms, OrderedQueue, Rearranged,
};
use shared::delivery::settlement::{self, Settlement, Transition};
use shared::delivery::shopify_items::{self, LearnedItem};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};
use uuid::Uuid;

use crate::messages::{Clients, Message, Sent, messages_of};
use crate::questions::Questions;
use crate::slots::Slots;
use crate::times::BatchTimes;
use crate::watermarks::Watermarks;
use crate::{DrainError, Relay, Summary, Watch};

/// Tries to settle a set before the drain gives up; `Db::run` reconnects within each.
const SETTLE_TRIES: u32 = 3;
/// Events that one log line names at most.
const NAMED: usize = 20;
/// Time to another connection, well within `Limits::settle`.
const SETTLE_PAUSE: Duration = Duration::from_millis(300);

/// After an idle poll that took t, wait 4 t, or `poll_interval` if that is longer: polling takes a fifth of the time at most.
const IDLE_POLL_PAUSES: u32 = 4;
/// The same after a poll for lost rows, which are less urgent.
const LOST_POLL_PAUSES: u32 = 10;

/// Batches of one claim where there is a backlog.
const MAX_BATCHES: usize = 4;

/// Ordered queues and rows of one look for heads that nobody woke, and rows of one step of a rearrangement: some ten
/// milliseconds' work.
const QUEUE_STEPS: u32 = 500;

struct Ended {
    message: Message,
    batch: u64,
    sent: Sent,
    took: Duration,
}

pub(crate) struct Drained {
    pub(crate) summary: Summary,
    /// Time was up before everything was done.
    pub(crate) work_left: bool,
    pub(crate) times: BatchTimes,
}

struct Drain<'r> {
    relay: &'r Relay,
    clients: Arc<Clients>,
    summary: Summary,
    slots: Slots,
    attempts: JoinSet<Ended>,
    settlements: Vec<Settlement>,
    watermarks: Watermarks,
    times: BatchTimes,
    /// Inventory items to be stored.
    learned: Vec<LearnedItem>,
    /// The ordered queue whose rows were checked last.
    checked: OrderedQueue,
    questions: Questions,
    work_left: bool,
    /// The destination served last.
    after: Uuid,
    /// Batches of the next claim.
    batches: usize,
    /// No claim from here on.
    claim_deadline: Instant,
    next_poll: Instant,
    /// The last claim was empty, and nothing has made rows due since.
    idle: bool,
    /// When to poll for lost rows, whatever else is in flight.
    next_lost_poll: Instant,
    /// The last poll found no lost row, and nothing was claimed since.
    none_lost: bool,
}

pub(crate) async fn drain(
    relay: &Relay,
    clients: Clients,
    watch: Watch,
    deadline: Instant,
) -> Result<Drained, DrainError> {
    let now = Instant::now();
    let limits = &relay.limits;
    let mut drain = Drain {
        relay,
        clients: Arc::new(clients),
        summary: Summary::default(),
        slots: Slots::new(limits.in_flight, limits.in_flight_each, limits.in_flight_proven),
        attempts: JoinSet::new(),
        settlements: Vec::new(),
        watermarks: Watermarks::default(),
        times: BatchTimes::default(),
        learned: Vec::new(),
        checked: OrderedQueue::default(),
        questions: Questions::new(now),
        work_left: false,
        after: Uuid::nil(),
        batches: 1,
        claim_deadline: deadline.checked_sub(limits.last_attempt()).unwrap_or(now),
        next_poll: now,
        idle: false,
        // Other work first: a lost row may kill this relay too.
        next_lost_poll: now + limits.poll_interval,
        none_lost: false,
    };
    let outcome = drain.run(watch).await;
    // Also after an error: attempts in flight are awaited and settled.
    drain.finish().await?;
    drain.questions.finish(relay).await;
    outcome?;
    Ok(Drained { summary: drain.summary, work_left: drain.work_left, times: drain.times })
}

impl Drain<'_> {
    async fn run(&mut self, watch: Watch) -> Result<(), DrainError> {
        let db = &self.relay.db;
        let (id, began) = (Uuid::new_v4(), Instant::now());
        if matches!(watch, Watch::UntilFollowed(_)) {
            outbox::begin_watch(db, id).await?;
        }
        loop {
            self.collect_ended();
            self.settle().await?;
            let now = Instant::now();
            if now >= self.claim_deadline {
                // A relay that was idle, or waited for a rate limit, needs no helpers: they could do no more.
                self.work_left = !self.idle || self.slots.any_full();
                return Ok(());
            }
            self.questions.step(self.relay, &self.clients).await;
            if now >= self.next_lost_poll && self.recover_lost().await? {
                continue;
            }
            if now >= self.next_poll && self.slots.free() > 0 {
                self.claim().await?;
                continue;
            }
            let nothing_in_flight = self.slots.in_flight() == 0;
            if nothing_in_flight && !self.none_lost {
                self.recover_lost().await?;
                continue;
            }
            let mut wake_at = self.next_lost_poll.min(self.claim_deadline);
            if now < self.next_poll {
                wake_at = wake_at.min(self.next_poll);
            }
            if !nothing_in_flight {
                if let Ok(Some(ended)) = timeout_at(wake_at, self.attempts.join_next()).await {
                    self.end(ended);
                }
                continue;
            }
            let elapsed = now - began;
            let followed = watch.asks_for_another(elapsed) && outbox::is_followed(db, id).await?;
            if watch.is_over(elapsed, followed) {
                return Ok(());
            }
            sleep_until(wake_at).await;
        }
    }

    /// Claims a batch and starts its attempts. After an empty claim the next poll comes after a pause.
    async fn claim(&mut self) -> Result<(), DbError> {
        let limits = &self.relay.limits;
        let (begun, db) = (Instant::now(), &self.relay.db);
        let (busy, watermarks) = (self.slots.busy(), self.watermarks.current(begun));
        let request = ClaimRequest {
            slots: (limits.batch * self.batches).min(self.slots.free()),
            after: self.after,
            busy: &busy,
            room_each: self.slots.room_each(),
            watermarks: &watermarks,
            terms: self.terms(),
        };
        let (claimed, after) = outbox::claim(db, &request).await?;
        self.after = after;
        // A full claim stands for a backlog: the next takes more at once, which costs the database less.
        self.batches = if claimed.len() >= request.slots { (self.batches + 1).min(MAX_BATCHES) } else { 1 };
        self.idle = claimed.is_empty();
        if self.idle {
            self.next_poll = Instant::now() + limits.poll_interval.max(begun.elapsed() * IDLE_POLL_PAUSES);
            return Ok(());
        }
        self.watermarks.note(&claimed, begun);
        self.start(claimed, begun).await
    }

    /// Delivers one row whose lease expired, with nothing else in flight, since it may be what killed its relay. Returns
    /// whether there was one. Other work then gets at least as much time as this took.
    async fn recover_lost(&mut self) -> Result<bool, DbError> {
        let begun = Instant::now();
        let more_waits = self.tend_queues().await?;
        self.none_lost = !more_waits;
        let db = &self.relay.db;
        let lost = outbox::sweep_lost(db).await?;
        let pause = self.relay.limits.poll_interval.max(begun.elapsed() * LOST_POLL_PAUSES);
        // Other work gets as much time as this.
        self.next_lost_poll = if more_waits { begun + begun.elapsed() * 2 } else { begun + pause };
        self.summary.dead_lettered += u64::from(lost.dead_lettered.unsigned_abs());
        if !lost.lost_due {
            return Ok(false);
        }
        self.finish().await?;
        if Instant::now() >= self.claim_deadline {
            return Ok(false);
        }
        let suspect = outbox::claim_lost(db, &self.slots.unresponsive(), self.terms()).await?;
        if suspect.is_empty() {
            return Ok(false);
        }
        self.start(suspect, begun).await?;
        self.finish().await?;
        self.poll_now();
        let now = Instant::now();
        self.next_lost_poll = now + (now - begun);
        Ok(true)
    }

    /// A bounded step of what is left to do at destinations that were deleted, and of what ordered queues need: their rows in
    /// their places, and heads that no settlement woke made due.
    /// Returns whether there is more to do at once.
    async fn tend_queues(&mut self) -> Result<bool, DbError> {
        let db = &self.relay.db;
        let ending = outbox::end_destination(db, QUEUE_STEPS).await?;
        let rearranged = outbox::rearrange(db, QUEUE_STEPS).await?;
        let checked = outbox::check_waiting(db, self.checked, QUEUE_STEPS).await?;
        self.checked = checked.last;
        if checked.woken > 0 || rearranged == Rearranged::Done {
            self.poll_now();
        }
        Ok(ending || rearranged == Rearranged::More || checked.more)
    }

    fn poll_now(&mut self) {
        (self.next_poll, self.idle) = (Instant::now(), false);
    }

    fn terms(&self) -> LeaseTerms {
        let limits = &self.relay.limits;
        LeaseTerms {
            lease: limits.lease,
            retry_unit: limits.retry_unit,
            jitter: (self.relay.ambient.jitter)(),
        }
    }

    /// Starts the attempts of claimed rows. Facts are read here, after the claim has committed.
    async fn start(&mut self, mut claimed: Vec<Claimed>, claimed_at: Instant) -> Result<(), DbError> {
        claimed.iter_mut().for_each(|row| row.open_secrets(self.relay.sealer.as_ref()));
        self.summary.claimed += claimed.len() as u64;
        self.none_lost = false;
        let mut messages = messages_of(claimed);
        let ids: Vec<i64> = messages.iter().flat_map(Message::needs_facts_of).collect();
        if !ids.is_empty() {
            let mut facts = outbox::facts(&self.relay.db, &ids).await?;
            messages.iter_mut().for_each(|message| message.take_facts(&mut facts));
        }
        let batch = self.times.begin(claimed_at, messages.len());
        for message in messages {
            self.slots.start(message.newest.destination_id);
            let (clients, now) = (Arc::clone(&self.clients), self.relay.ambient.now);
            self.attempts.spawn(async move {
                let begun = Instant::now();
                let sent = clients.send(&message, now()).await;
                Ended { message, batch, sent, took: begun.elapsed() }
            });
        }
        Ok(())
    }

    fn collect_ended(&mut self) {
        while let Some(ended) = self.attempts.try_join_next() {
            self.end(ended);
        }
    }

    fn end(&mut self, ended: Result<Ended, JoinError>) {
        let Ended { message, batch, sent, took } = match ended {
            Ok(ended) => ended,
            // A panic ends the relay, as in release builds, where panics abort. The row's lease expires; then it is claimed
            // alone.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        };
        let (newest, pushed) = (&message.newest, &sent.pushed);
        self.times.end(batch, Instant::now());
        let answered = !matches!(pushed.attempt, Attempt::NoAnswer { .. });
        // Rows of this SKU that came during the push become claimable now.
        let unblocks_sku = newest.kind == DestinationKind::ShopifyInventory;
        if self.slots.end(newest.destination_id, answered) || unblocks_sku {
            self.poll_now();
        }
        if let Some(learned) = pushed.learned.clone() {
            self.learned.push(LearnedItem {
                tenant_id: newest.tenant_id,
                destination_id: newest.destination_id,
                sku_id: newest.aggregate_id,
                outbox_id: newest.id,
                learned,
            });
        }
        for id in &message.rows {
            let transition = self.transition(sent.of(*id), pushed.status);
            let (status, token) = (pushed.status, newest.token);
            self.settlements.push(Settlement { id: *id, token, transition, status, took });
        }
    }

    fn transition(&self, attempt: &Attempt, status: Option<u16>) -> Transition {
        let (error, retry_after, unreachable) = match attempt {
            Attempt::Delivered => return Transition::Delivered,
            Attempt::Passed(why) => return Transition::Passed(why.clone()),
            Attempt::Gone(error) => return Transition::Gone(error.clone()),
            Attempt::Rejected(error) => return Transition::Rejected(error.clone()),
            Attempt::Throttled { error, wait } => {
                return Transition::Throttled { error: error.clone(), pause: *wait };
            }
            Attempt::Failed { error, retry_after } => {
                (error, *retry_after, status.is_some_and(|status| status >= 500))
            }
            Attempt::NoAnswer(error) => (error, None, true),
            Attempt::Unsendable(error) => (error, None, false),
        };
        let jitter = (self.relay.ambient.jitter)();
        Transition::Failed { error: error.clone(), jitter, retry_after, unreachable }
    }

    /// Waits for all attempts in flight and settles them as they end.
    async fn finish(&mut self) -> Result<(), DbError> {
        while let Some(ended) = self.attempts.join_next().await {
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
        if !settled.refused.is_empty() {
            let (count, events) =
                (settled.refused.len(), &settled.refused[..settled.refused.len().min(NAMED)]);
            tracing::warn!(
                count,
                ?events,
                "results refused: the lease had expired, or the event was discarded"
            );
        }
        if settled.woken {
            self.poll_now();
        }
        self.summary.delivered += settled.delivered;
        self.summary.failed += settled.failed;
        self.summary.dead_lettered += settled.dead_lettered;
        self.summary.disabled += settled.disabled;
        self.summary.recovered += settled.recovered;
        self.store_learned().await
    }

    async fn store_learned(&mut self) -> Result<(), DbError> {
        for item in std::mem::take(&mut self.learned) {
            shopify_items::learn(&self.relay.db, &item).await?;
        }
        Ok(())
    }
}
