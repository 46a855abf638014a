//! What goes out as one: a row, or at a shop all due rows of one SKU; and how it goes, by the kind of its destination.

use std::collections::HashMap;

use aws::mailer::Mailer;
use jiff::Timestamp;
use shared::delivery::attempt::{Attempt, Sender};
use shared::delivery::email::confirmation;
use shared::delivery::outbox::{Claimed, DestinationKind};
use shared::delivery::shopify_push::{Pushed, push};
use uuid::Uuid;

/// One delivery.
pub(crate) struct Parcel {
    /// The newest of its rows: its id is the delivery's.
    pub(crate) newest: Claimed,
    /// All its rows.
    pub(crate) rows: Vec<i64>,
    /// What a push or a mail is made of.
    facts: Option<String>,
}

/// Makes parcels of claimed rows.
pub(crate) fn bundle(claimed: Vec<Claimed>) -> Vec<Parcel> {
    let mut parcels: Vec<Parcel> = Vec::with_capacity(claimed.len());
    let mut of_sku: HashMap<(Uuid, Uuid), usize> = HashMap::new();
    for row in claimed {
        let (sku, id) = ((row.destination_id, row.aggregate_id), row.id);
        if row.kind == DestinationKind::ShopifyInventory
            && let Some(parcel) = of_sku.get(&sku).and_then(|index| parcels.get_mut(*index))
        {
            parcel.rows.push(id);
            if row.id > parcel.newest.id {
                parcel.newest = row;
            }
            continue;
        }
        of_sku.insert(sku, parcels.len());
        parcels.push(Parcel { newest: row, rows: vec![id], facts: None });
    }
    parcels
}

impl Parcel {
    /// The row whose facts it needs.
    pub(crate) fn asks(&self) -> Option<i64> {
        (self.newest.kind != DestinationKind::Webhook).then_some(self.newest.id)
    }

    /// Takes its facts out of what was read.
    pub(crate) fn inform(&mut self, facts: &mut HashMap<i64, Option<String>>) {
        self.facts = facts.remove(&self.newest.id).flatten();
    }
}

/// Takes parcels to their destinations. One per invocation.
pub(crate) struct Carrier {
    pub(crate) sender: Sender,
    pub(crate) mailer: Option<Mailer>,
}

impl Carrier {
    /// Makes one attempt.
    pub(crate) async fn carry(&self, parcel: &Parcel, now: Timestamp) -> Pushed {
        let facts = parcel.facts.as_deref();
        match parcel.newest.kind {
            DestinationKind::Webhook => self.sender.attempt(&parcel.newest, now).await.into(),
            DestinationKind::ShopifyInventory => push(&self.sender, &parcel.newest, facts, now).await,
            DestinationKind::Email => self.mail(parcel, facts).await.into(),
        }
    }

    async fn mail(&self, parcel: &Parcel, facts: Option<&str>) -> Attempt {
        let Some(facts) = facts else {
            return Attempt::Delivered; // an event that nobody is told of by mail
        };
        let mail = match confirmation(facts) {
            Ok(mail) => mail,
            Err(error) => return Attempt::Unsendable { error: format!("no confirmation: {error}") },
        };
        match &self.mailer {
            Some(mailer) => self.sender.within(mailer.send(&mail, &parcel.newest)).await,
            None => Attempt::Unsendable { error: "this relay sends no mails".into() },
        }
    }
}
