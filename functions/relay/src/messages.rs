//! Turns claimed rows into messages, and sends each in the way of its destination's kind.

use std::collections::HashMap;

use aws::bus::{Buses, MAX_BYTES, MAX_ENTRIES};
use aws::mailer::Mailer;
use jiff::Timestamp;
use shared::delivery::address::Senders;
use shared::delivery::attempt::{Attempt, Sender};
use shared::delivery::email::mail_of;
use shared::delivery::outbox::{Claimed, DestinationKind};
use shared::delivery::shopify_push::{Pushed, push};
use uuid::Uuid;

/// One row; at a shop all claimed rows of one SKU, since a push sends its current ATS; of a bus or a queue up to ten rows, which one
/// call carries.
pub(crate) struct Message {
    /// Its newest row, whose id is the message id.
    pub(crate) newest: Claimed,
    /// The ids of all its rows.
    pub(crate) rows: Vec<i64>,
    /// The rows of a bus or a queue but for the newest.
    batched: Vec<Claimed>,
    /// The data for a push or a mail, and how often rows of a queue were sent again ([`shared::delivery::outbox::facts`]).
    facts: HashMap<i64, String>,
}

pub(crate) fn messages_of(claimed: Vec<Claimed>) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::with_capacity(claimed.len());
    // Of a destination's SKU or, of those that take batches, of the destination.
    let mut open: HashMap<(Uuid, Option<Uuid>), usize> = HashMap::new();
    for row in claimed {
        let key = (row.destination_id, (!is_batched(&row)).then_some(row.aggregate_id));
        if let Some(message) = open.get(&key).and_then(|index| messages.get_mut(*index))
            && message.takes(&row)
        {
            message.add(row);
            continue;
        }
        open.insert(key, messages.len());
        messages.push(Message {
            rows: vec![row.id],
            newest: row,
            batched: Vec::new(),
            facts: HashMap::new(),
        });
    }
    messages
}

fn is_batched(row: &Claimed) -> bool {
    matches!(row.kind, DestinationKind::Eventbridge | DestinationKind::Sqs)
}

impl Message {
    /// Whether a row goes out with these, which belong to the same destination and, at a shop, to the same SKU.
    fn takes(&self, row: &Claimed) -> bool {
        let bytes: usize = self.batch().map(|one| one.payload.len()).sum();
        match row.kind {
            DestinationKind::ShopifyInventory => true,
            _ if is_batched(row) => self.rows.len() < MAX_ENTRIES && bytes + row.payload.len() <= MAX_BYTES,
            _ => false,
        }
    }

    fn add(&mut self, mut row: Claimed) {
        self.rows.push(row.id);
        if row.id > self.newest.id {
            std::mem::swap(&mut row, &mut self.newest);
        }
        if is_batched(&row) {
            self.batched.push(row);
        }
    }

    fn batch(&self) -> impl Iterator<Item = &Claimed> {
        self.batched.iter().chain([&self.newest])
    }

    /// The rows whose facts it needs; a webhook and a bus need none.
    pub(crate) fn needs_facts_of(&self) -> Vec<i64> {
        match self.newest.kind {
            DestinationKind::Webhook | DestinationKind::Eventbridge => Vec::new(),
            DestinationKind::ShopifyInventory | DestinationKind::Email => vec![self.newest.id],
            DestinationKind::Sqs => self.rows.clone(),
        }
    }

    pub(crate) fn take_facts(&mut self, facts: &mut HashMap<i64, Option<String>>) {
        let of_rows = self.rows.iter().filter_map(|id| Some((*id, facts.remove(id)??)));
        self.facts = of_rows.collect();
    }
}

/// The result of an attempt.
pub(crate) struct Sent {
    /// Of the message.
    pub(crate) pushed: Pushed,
    /// Of its rows, where they differ.
    of_rows: HashMap<i64, Attempt>,
}

impl Sent {
    pub(crate) fn of(&self, row: i64) -> &Attempt {
        self.of_rows.get(&row).unwrap_or(&self.pushed.attempt)
    }
}

impl From<Pushed> for Sent {
    fn from(pushed: Pushed) -> Self {
        Self { pushed, of_rows: HashMap::new() }
    }
}

/// The clients of one invocation.
pub(crate) struct Clients {
    pub(crate) sender: Sender,
    pub(crate) mailer: Option<Mailer>,
    pub(crate) senders: Senders,
    pub(crate) buses: Option<Buses>,
}

impl Clients {
    /// Makes one attempt.
    pub(crate) async fn send(&self, message: &Message, now: Timestamp) -> Sent {
        let facts = message.facts.get(&message.newest.id).map(String::as_str);
        let pushed: Pushed = match message.newest.kind {
            DestinationKind::Webhook => self.sender.attempt(&message.newest, now).await.into(),
            DestinationKind::ShopifyInventory => push(&self.sender, &message.newest, facts, now).await,
            DestinationKind::Email => self.mail(message, facts).await.into(),
            DestinationKind::Eventbridge | DestinationKind::Sqs => return self.batch(message).await,
        };
        pushed.into()
    }

    async fn batch(&self, message: &Message) -> Sent {
        let rows: Vec<&Claimed> = message.batch().collect();
        let Some(buses) = &self.buses else {
            return Pushed::from(Attempt::Unsendable("this relay calls no AWS".into())).into();
        };
        let results = if message.newest.kind == DestinationKind::Sqs {
            let requeues =
                rows.iter().map(|row| message.facts.get(&row.id).and_then(|text| text.parse().ok()));
            let requeues: Vec<i32> = requeues.map(Option::unwrap_or_default).collect();
            self.sender.in_time(buses.send(&rows, &requeues)).await
        } else {
            self.sender.in_time(buses.put(&rows)).await
        };
        match results.and_then(|results| results) {
            Ok(results) => {
                let of_rows = rows.iter().map(|row| row.id).zip(results).collect();
                Sent { pushed: Attempt::Delivered.into(), of_rows }
            }
            Err(attempt) => Pushed::from(attempt).into(),
        }
    }

    async fn mail(&self, message: &Message, facts: Option<&str>) -> Attempt {
        let Some(facts) = facts else {
            return Attempt::Delivered; // no mail for this type of event
        };
        let mail = match mail_of(facts) {
            Ok(mail) => mail,
            Err(error) => return Attempt::Unsendable(format!("no mail: {error}")),
        };
        if self.senders == Senders::Allowed && !mail.sender_allowed {
            return Attempt::Rejected("the operator has not allowed this tenant the sender".into());
        }
        if let Some(why) = &mail.paused {
            return Attempt::Rejected(format!("nothing is sent to this address: {why}"));
        }
        match &self.mailer {
            Some(mailer) => self.sender.within(mailer.send(&mail, &message.newest)).await,
            None => Attempt::Unsendable("this relay sends no mails".into()),
        }
    }
}
