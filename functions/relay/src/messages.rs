//! Turns claimed rows into messages, and sends each in the way of its destination's kind.

use std::collections::HashMap;

use aws::mailer::Mailer;
use jiff::Timestamp;
use shared::delivery::attempt::{Attempt, Sender};
use shared::delivery::email::mail_of;
use shared::delivery::outbox::{Claimed, DestinationKind};
use shared::delivery::shopify_push::{Pushed, push};
use uuid::Uuid;

/// One row; at a shop all claimed rows of one SKU, since a push sends its current ATS.
pub(crate) struct Message {
    /// Its newest row, whose id is the message id.
    pub(crate) newest: Claimed,
    /// The ids of all its rows.
    pub(crate) rows: Vec<i64>,
    /// The data for a push or a mail ([`shared::delivery::outbox::facts`]).
    facts: Option<String>,
}

pub(crate) fn messages_of(claimed: Vec<Claimed>) -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::with_capacity(claimed.len());
    let mut of_sku: HashMap<(Uuid, Uuid), usize> = HashMap::new();
    for row in claimed {
        let (sku, id) = ((row.destination_id, row.aggregate_id), row.id);
        if row.kind == DestinationKind::ShopifyInventory
            && let Some(message) = of_sku.get(&sku).and_then(|index| messages.get_mut(*index))
        {
            message.rows.push(id);
            if row.id > message.newest.id {
                message.newest = row;
            }
            continue;
        }
        of_sku.insert(sku, messages.len());
        messages.push(Message { newest: row, rows: vec![id], facts: None });
    }
    messages
}

impl Message {
    /// The row whose facts it needs; a webhook needs none.
    pub(crate) fn needs_facts_of(&self) -> Option<i64> {
        (self.newest.kind != DestinationKind::Webhook).then_some(self.newest.id)
    }

    pub(crate) fn take_facts(&mut self, facts: &mut HashMap<i64, Option<String>>) {
        self.facts = facts.remove(&self.newest.id).flatten();
    }
}

/// The clients of one invocation.
pub(crate) struct Clients {
    pub(crate) sender: Sender,
    pub(crate) mailer: Option<Mailer>,
}

impl Clients {
    /// Makes one attempt.
    pub(crate) async fn send(&self, message: &Message, now: Timestamp) -> Pushed {
        let facts = message.facts.as_deref();
        match message.newest.kind {
            DestinationKind::Webhook => self.sender.attempt(&message.newest, now).await.into(),
            DestinationKind::ShopifyInventory => push(&self.sender, &message.newest, facts, now).await,
            DestinationKind::Email => self.mail(message, facts).await.into(),
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
        match &self.mailer {
            Some(mailer) => self.sender.within(mailer.send(&mail, &message.newest)).await,
            None => Attempt::Unsendable("this relay sends no mails".into()),
        }
    }
}
