//! Asks shops what webhooks do not say, and again what they did not know, beside the deliveries of a drain. A failure is only logged: no delivery depends on it,
//! and the lease of a question that was not settled expires.

use std::sync::Arc;
use std::time::Duration;

use shared::delivery::attempt::Attempt;
use shared::delivery::shopify_items;
use shared::delivery::shopify_questions::{self, Disposed, Question};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::Relay;
use crate::messages::Clients;

/// Questions in flight. They are few, and nobody waits for an answer.
const IN_FLIGHT: usize = 4;
/// Between two looks for questions, while there are none.
const POLL: Duration = Duration::from_secs(5);
/// Pushes that are made due again at once, of SKUs that their shops did not carry a day ago.
const ASKED_AGAIN: u32 = 100;

pub(crate) struct Questions {
    asked: JoinSet<(Question, Result<Disposed, Attempt>)>,
    next_poll: Instant,
}

impl Questions {
    pub(crate) fn new(now: Instant) -> Self {
        Self { asked: JoinSet::new(), next_poll: now }
    }

    /// Settles what was answered and, when it is time, asks what is due.
    pub(crate) async fn step(&mut self, relay: &Relay, clients: &Arc<Clients>) {
        while let Some(ended) = self.asked.try_join_next() {
            settle(relay, ended).await;
        }
        let room = IN_FLIGHT - self.asked.len();
        if room == 0 || Instant::now() < self.next_poll {
            return;
        }
        let due = shopify_questions::claim(&relay.db, room, relay.limits.lease, relay.sealer.as_ref()).await;
        let due = due.unwrap_or_else(|error| {
            tracing::warn!(%error, "no questions to shops were claimed");
            Vec::new()
        });
        if due.is_empty() {
            self.next_poll = Instant::now() + POLL;
            shopify_items::ask_again(&relay.db, ASKED_AGAIN).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "shops were not asked again for what they do not carry");
            });
        }
        for question in due {
            let (clients, now) = (Arc::clone(clients), relay.ambient.now);
            self.asked.spawn(async move {
                let answer = shopify_questions::ask(&clients.sender, &question, now()).await;
                (question, answer)
            });
        }
    }

    /// Waits for all answers and settles them.
    pub(crate) async fn finish(&mut self, relay: &Relay) {
        while let Some(ended) = self.asked.join_next().await {
            settle(relay, ended).await;
        }
    }
}

type Ended = Result<(Question, Result<Disposed, Attempt>), tokio::task::JoinError>;

async fn settle(relay: &Relay, ended: Ended) {
    // As with deliveries, a panic ends the relay.
    let (question, answer) = ended.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
    let (unit, jitter) = (relay.limits.retry_unit, (relay.ambient.jitter)());
    match shopify_questions::settle(&relay.db, &question, answer, unit, jitter).await {
        Ok(done) => tracing::info!(%question.shop_domain, %done, "a shop was asked about a return"),
        Err(error) => tracing::warn!(%error, %question.shop_domain, "a shop's answer was not settled"),
    }
}
