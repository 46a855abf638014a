//! Events on a bus of EventBridge and on queues of SQS, at another maker's AWS.

use std::collections::HashMap;

use aws::bus::Buses;
use aws_sdk_eventbridge::types::Target;
use aws_sdk_sqs::types::{MessageSystemAttributeName, QueueAttributeName};
use relay::Relay;
use serde_json::{Value, json};
use testing::{Moto, Seed, Tenant, TestDb};

use crate::standins::aws_at;
use crate::support::{drain, relay, rows};

struct Aws {
    moto: Moto,
    queues: aws_sdk_sqs::Client,
}

/// A message of a queue: its body, its group, what it was deduplicated by.
type Received = (Value, Option<String>, Option<String>);

impl Aws {
    async fn start() -> Option<Self> {
        let moto = Moto::start().await?;
        let queues = aws_sdk_sqs::Client::new(&aws_at(&moto.url));
        Some(Self { moto, queues })
    }

    fn relay(&self, db: &TestDb) -> Relay {
        let mut relay = relay(db);
        relay.buses = Some(Buses::new(&aws_at(&self.moto.url)));
        relay
    }

    async fn queue(&self, name: &str) -> String {
        let fifo = name
            .ends_with(".fifo")
            .then(|| HashMap::from([(QueueAttributeName::FifoQueue, "true".to_owned())]));
        let made = self.queues.create_queue().queue_name(name).set_attributes(fifo).send().await.unwrap();
        made.queue_url().unwrap().to_owned()
    }

    /// All that is in a queue, in its order; nothing is left there.
    async fn take(&self, queue: &str) -> Vec<Received> {
        let mut taken = Vec::new();
        loop {
            let call = self.queues.receive_message().queue_url(queue).max_number_of_messages(10);
            let call = call.message_system_attribute_names(MessageSystemAttributeName::All);
            let answer = call.send().await.unwrap();
            if answer.messages().is_empty() {
                return taken;
            }
            for message in answer.messages() {
                let of = |name| message.attributes().and_then(|all| all.get(&name)).cloned();
                let body = serde_json::from_str(message.body().unwrap()).unwrap();
                taken.push((
                    body,
                    of(MessageSystemAttributeName::MessageGroupId),
                    of(MessageSystemAttributeName::MessageDeduplicationId),
                ));
                let handle = message.receipt_handle().unwrap();
                self.queues.delete_message().queue_url(queue).receipt_handle(handle).send().await.unwrap();
            }
        }
    }
}

async fn connect(db: &TestDb, tenant: &Tenant, kind: &str, address: &str) {
    let made = db.destination(tenant, "http://127.0.0.1:9/", &["*"]).await;
    db.execute(format!("update destination set kind = '{kind}', url = '{address}' where id = '{}'", made.id))
        .await;
}

fn sequences(taken: &[Received]) -> Vec<i64> {
    taken.iter().map(|(body, ..)| body["aggregate"]["sequence"].as_i64().unwrap()).collect()
}

#[tokio::test]
async fn a_queue_gets_the_envelopes_ten_in_a_call() {
    let Some(aws) = Aws::start().await else { return };
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let queue = aws.queue("events").await;
    connect(&db, &tenant, "sqs", &queue).await;
    db.emit(&tenant, 25).await;
    let summary = drain(&aws.relay(&db)).await;
    assert_eq!((summary.claimed, summary.delivered), (25, 25));
    let mut taken = aws.take(&queue).await;
    taken.sort_by_key(|(body, ..)| body["aggregate"]["sequence"].as_i64());
    assert_eq!(sequences(&taken), (1..=25).collect::<Vec<_>>());
    let stored: String = db.scalar("select payload from outbox order by sequence limit 1").await;
    assert_eq!(taken[0].0, serde_json::from_str::<Value>(&stored).unwrap());
    // A queue that is gone is a failure of every one, and none of its neighbours'.
    aws.queues.delete_queue().queue_url(&queue).send().await.unwrap();
    db.emit(&tenant, 3).await;
    assert_eq!(drain(&aws.relay(&db)).await.failed, 3);
    assert!(rows(&db).await[27].last_error.as_ref().unwrap().contains("SQS"));
}

#[tokio::test]
async fn a_fifo_queue_keeps_the_order_of_an_aggregate_and_takes_a_retry_once_and_a_replay_again() {
    let Some(aws) = Aws::start().await else { return };
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let queue = aws.queue("events.fifo").await;
    connect(&db, &tenant, "sqs", &queue).await;
    db.execute("update destination set ordered = true").await;
    db.emit(&tenant, 12).await;
    let relay = aws.relay(&db);
    assert_eq!(drain(&relay).await.delivered, 12);
    // The answer was lost.
    db.execute("update outbox set processed_at = null, next_attempt_at = now() where sequence = 1").await;
    assert_eq!(drain(&relay).await.delivered, 1);
    let taken = aws.take(&queue).await;
    assert_eq!(sequences(&taken), (1..=12).collect::<Vec<_>>());
    let first: i64 = db.scalar("select min(id) from outbox").await;
    assert_eq!(taken[0].1, Some(tenant.id.to_string()));
    assert_eq!(taken[0].2, Some(format!("outbox-{first}-0")));
    // As `POST /admin/outbox/{id}/requeue` does.
    db.execute(format!("select holdfast.back_to_pending(array[{first}::bigint])")).await;
    assert_eq!(drain(&relay).await.delivered, 1);
    let again = aws.take(&queue).await;
    assert_eq!((sequences(&again), &again[0].2), (vec![1], &Some(format!("outbox-{first}-1"))));
}

#[tokio::test]
async fn a_bus_gets_the_envelopes_and_says_of_each_whether_it_took_it() {
    let Some(aws) = Aws::start().await else { return };
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let events = aws_sdk_eventbridge::Client::new(&aws_at(&aws.moto.url));
    let bus =
        events.create_event_bus().name("brand").send().await.unwrap().event_bus_arn().unwrap().to_owned();
    // A rule that puts all that is from here on a queue, where it can be seen.
    let queue = aws.queue("seen").await;
    let asked =
        aws.queues.get_queue_attributes().queue_url(&queue).attribute_names(QueueAttributeName::QueueArn);
    let arn = asked.send().await.unwrap().attributes().unwrap()[&QueueAttributeName::QueueArn].clone();
    let pattern = json!({"source": ["holdfast"]}).to_string();
    events.put_rule().name("all").event_bus_name("brand").event_pattern(pattern).send().await.unwrap();
    let target = Target::builder().id("queue").arn(arn).build().unwrap();
    events.put_targets().rule("all").event_bus_name("brand").targets(target).send().await.unwrap();
    connect(&db, &tenant, "eventbridge", &bus).await;
    db.emit(&tenant, 12).await;
    // A bus takes no event without a type.
    db.execute(r#"update outbox set payload = replace(payload, '"type":"inbox.exception"', '"type":""') where sequence = 3"#)
        .await;
    let summary = drain(&aws.relay(&db)).await;
    assert_eq!((summary.delivered, summary.failed), (11, 1));
    let failed = rows(&db).await.into_iter().find(|row| !row.processed).unwrap();
    assert!(failed.last_error.as_ref().unwrap().starts_with("EventBridge: "), "{failed:?}");
    assert_eq!(failed.attempts, 1);
    let seen = aws.take(&queue).await;
    assert_eq!(seen.len(), 11);
    let (event, ..) = &seen[0];
    assert_eq!((&event["source"], &event["detail-type"]), (&json!("holdfast"), &json!("inbox.exception")));
    assert_eq!(event["detail"]["tenantId"], json!(tenant.id));
}
