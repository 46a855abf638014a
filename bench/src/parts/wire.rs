//! Messages between a warm function and the database, counted by a proxy without delay.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::link::Link;
use crate::product::{Events, Product};
use crate::report::{Measured, Target};
use crate::stage::Stage;
use crate::textbook::Textbook;
use crate::wire::Counts;
use crate::workload::Workload;
use xtask::process::Step;

/// Requests before messages are counted: by then connections, statements and plans are made.
const WARM_REQUESTS: usize = 20;
/// Requests whose messages are counted.
const COUNTED_REQUESTS: u32 = 100;

/// Messages of [`COUNTED_REQUESTS`] requests.
struct PerRequest(Counts);

impl PerRequest {
    fn take(link: &Link) -> Self {
        Self(link.take().counts)
    }

    fn mean(&self, which: impl Fn(&Counts) -> u64) -> f64 {
        which(&self.0) as f64 / f64::from(COUNTED_REQUESTS)
    }

    fn line(&self, name: &str) -> String {
        format!(
            "a warm request of {name} needs {:.2} round trips, {:.2} ReadyForQuery, {:.2} commits\n",
            self.mean(|c| c.round_trips),
            self.mean(|c| c.replies),
            self.mean(|c| c.commits)
        )
    }

    fn json(&self) -> Value {
        json!({"roundTrips": self.mean(|c| c.round_trips), "requests": self.mean(|c| c.requests),
               "readyForQuery": self.mean(|c| c.replies), "commits": self.mean(|c| c.commits)})
    }
}

pub async fn measure(stage: &Stage<'_>) -> Result<Measured> {
    let [allocate] = stage.build(["allocate"]).await?;
    let database = stage.seeded_database("wire").await?;
    let step = Step::begin("round trips of a warm request");
    let counter = Link::before(database.port, Duration::ZERO)?;
    let url = database.app_url(counter.port);
    let events = Events::new()?;
    let sandbox = Product::start(&events.function(&allocate, url.clone()), &events, 1).await?;
    sandbox.send(Workload::Spread, WARM_REQUESTS).await?;
    counter.take();
    sandbox.send(Workload::Spread, COUNTED_REQUESTS as usize).await?;
    let product = PerRequest::take(&counter);
    sandbox.end().await?;

    let connection = Textbook::connect(&url, 1).await?;
    connection.send(Workload::Spread, WARM_REQUESTS).await?;
    counter.take();
    connection.send(Workload::Spread, COUNTED_REQUESTS as usize).await?;
    let textbook = PerRequest::take(&counter);
    step.done();
    Ok(Measured {
        table: product.line("product") + &textbook.line("textbook"),
        targets: vec![Target::at_most(
            "round trips of a warm allocate",
            product.mean(|c| c.round_trips),
            "",
            1.0,
        )],
        json: json!({"product": product.json(), "textbook": textbook.json()}),
    })
}
