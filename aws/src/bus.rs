//! Sends envelopes to EventBridge and SQS, up to ten in a call, and tells of each how it went. Region, credentials and endpoint come
//! from the SDK's own variables (`AWS_ENDPOINT_URL_EVENTBRIDGE`, `AWS_ENDPOINT_URL_SQS` for a stand-in); a bus or a queue in
//! another region is called there.
//!
//! Promises: the envelope is sent as it is stored. On a FIFO queue the messages of an aggregate are one group, so they stay in the
//! order in which they were sent, and a retry within five minutes is one message; what a person sends again is another one.
//! Relies on: the caller, which sends only to addresses that the operator allowed. The calls have the relay's own rights.

use aws_config::{Region, SdkConfig};
use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_sdk_sqs::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_sqs::types::{MessageAttributeValue, SendMessageBatchRequestEntry};
use serde::Deserialize;

use shared::delivery::attempt::{Attempt, message_id};
use shared::delivery::outbox::Claimed;

/// Most that one call takes, of either service.
pub const MAX_ENTRIES: usize = 10;
/// Half of what a call may carry in all, since what stands around a payload counts too.
pub const MAX_BYTES: usize = 128 * 1024;

const SOURCE: &str = "holdfast";

/// The parts of an envelope that are told beside it.
#[derive(Deserialize)]
struct Envelope {
    r#type: String,
}

/// Clients of both services.
#[derive(Clone, Debug)]
pub struct Buses {
    events: aws_sdk_eventbridge::Client,
    queues: aws_sdk_sqs::Client,
}

impl Buses {
    /// Makes no call.
    pub fn new(aws: &SdkConfig) -> Self {
        // No retries of the SDK: the outbox retries.
        let none = aws_sdk_sqs::config::retry::RetryConfig::disabled();
        let events = aws_sdk_eventbridge::config::Builder::from(aws).retry_config(none.clone()).build();
        let queues = aws_sdk_sqs::config::Builder::from(aws).retry_config(none).build();
        Self {
            events: aws_sdk_eventbridge::Client::from_conf(events),
            queues: aws_sdk_sqs::Client::from_conf(queues),
        }
    }

    /// Puts rows of one destination on its bus, whose ARN is its `url`: one request. The results are in the order of the rows; the
    /// error is that of the whole call.
    pub async fn put(&self, rows: &[&Claimed]) -> Result<Vec<Attempt>, Attempt> {
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let mut entries = Vec::with_capacity(rows.len());
        for row in rows {
            let Envelope { r#type } = envelope(row)?;
            let entry = PutEventsRequestEntry::builder().source(SOURCE).detail_type(r#type);
            entries.push(entry.detail(&row.payload).event_bus_name(&row.url).build());
        }
        let mut call = self.events.put_events().set_entries(Some(entries)).customize();
        if let Some(region) = first.url.split(':').nth(3).filter(|region| !region.is_empty()) {
            let region = Region::new(region.to_owned());
            call = call.config_override(aws_sdk_eventbridge::config::Builder::new().region(region));
        }
        let answer = call.send().await.map_err(|error| {
            let text = format!("EventBridge: {}", DisplayErrorContext(&error));
            failure(error.code(), text)
        })?;
        let results = answer.entries().iter().map(|entry| match entry.error_code() {
            None => Attempt::Delivered,
            code => {
                let told = entry.error_message().unwrap_or_default();
                failure(code, format!("EventBridge: {}: {told}", code.unwrap_or_default()))
            }
        });
        complete(results.collect(), rows.len())
    }

    /// Sends rows of one destination to its queue, whose URL is its `url`: one request. `requeues`: how often a person has sent each
    /// row again. The results are as those of [`Buses::put`].
    pub async fn send(&self, rows: &[&Claimed], requeues: &[i32]) -> Result<Vec<Attempt>, Attempt> {
        let Some(first) = rows.first() else { return Ok(Vec::new()) };
        let is_fifo = first.url.ends_with(".fifo");
        let mut entries = Vec::with_capacity(rows.len());
        for (index, (row, requeues)) in rows.iter().zip(requeues).enumerate() {
            let Envelope { r#type } = envelope(row)?;
            let id = message_id(row.id);
            let mut entry = SendMessageBatchRequestEntry::builder()
                .id(index.to_string())
                .message_body(&row.payload)
                .message_attributes("type", text(&r#type)?)
                .message_attributes("webhook-id", text(&id)?);
            if is_fifo {
                entry = entry
                    .message_group_id(row.aggregate_id.to_string())
                    .message_deduplication_id(format!("{id}-{requeues}"));
            }
            entries.push(entry.build().map_err(unsendable)?);
        }
        let call = self.queues.send_message_batch().queue_url(&first.url).set_entries(Some(entries));
        let mut call = call.customize();
        if let Some(region) = region_of_queue(&first.url) {
            call = call.config_override(aws_sdk_sqs::config::Builder::new().region(Region::new(region)));
        }
        let answer = call.send().await.map_err(|error| {
            let text = format!("SQS: {}", DisplayErrorContext(&error));
            failure(error.code(), text)
        })?;
        let place = |id: &str| id.parse::<usize>().ok().filter(|place| *place < rows.len());
        let mut results = vec![None; rows.len()];
        for sent in answer.successful() {
            if let Some(place) = place(sent.id()) {
                results[place] = Some(Attempt::Delivered);
            }
        }
        for failed in answer.failed() {
            if let Some(place) = place(failed.id()) {
                let told = failed.message().unwrap_or_default();
                let text = format!("SQS: {}: {told}", failed.code());
                results[place] = Some(failure(Some(failed.code()), text));
            }
        }
        complete(results.into_iter().flatten().collect(), rows.len())
    }
}

/// Of `https://sqs.eu-west-1.amazonaws.com/123456789012/name`.
fn region_of_queue(url: &str) -> Option<String> {
    let region = url.strip_prefix("https://sqs.")?.split('.').next()?;
    Some(region.to_owned())
}

fn envelope(row: &Claimed) -> Result<Envelope, Attempt> {
    serde_json::from_str(&row.payload).map_err(unsendable)
}

fn text(value: &str) -> Result<MessageAttributeValue, Attempt> {
    let value = MessageAttributeValue::builder().data_type("String").string_value(value);
    value.build().map_err(unsendable)
}

fn unsendable(error: impl std::fmt::Display) -> Attempt {
    Attempt::Unsendable(error.to_string())
}

fn complete(results: Vec<Attempt>, rows: usize) -> Result<Vec<Attempt>, Attempt> {
    if results.len() == rows {
        Ok(results)
    } else {
        Err(Attempt::NoAnswer(format!("an answer about {} of {rows} entries", results.len())))
    }
}

/// How a refusal counts, by its code; without one there was no answer.
fn failure(code: Option<&str>, error: String) -> Attempt {
    match code {
        None => Attempt::NoAnswer(error),
        Some(code) if code.contains("Throttl") || code == "OverLimit" => {
            Attempt::Throttled { error, wait: None }
        }
        Some(_) => Attempt::Failed { error, retry_after: None },
    }
}
