//! Confirmations by mail, sent through a stand-in of SES.

use aws::mailer::Mailer;
use axum::Json;
use serde_json::{Value, json};
use shared::delivery::address::Senders;
use testing::{Seed, Tenant, TestDb};

use crate::standins::aws_at;
use crate::support::{Partner, ToStatus, drain, relay, rows};

/// Allocates the first order's first SKU: line, ledger and event.
async fn allocate(db: &TestDb, tenant: &Tenant, qty: i64) {
    let (tenant, order, sku) = (tenant.id, tenant.orders[0], tenant.skus[0]);
    db.execute(format!(
        "select holdfast.move('{tenant}', '{order}', (select customer_id from wholesale_order where id = '{order}'),
           array['{sku}'::uuid], array[{qty}::bigint], 'allocate', 'test')"
    ))
    .await;
}

async fn mail_destination(db: &TestDb, tenant: &Tenant, url: &str) {
    let mail = db.destination(tenant, url, &["*"]).await;
    db.execute(format!("update destination set kind = 'email' where id = '{}'", mail.id)).await;
}

#[tokio::test]
async fn a_sender_that_the_operator_took_back_writes_no_more_and_its_own_always_may() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { skus: 1, ..Seed::default() }).await;
    let ses = Partner::start(|_| async { Json(json!({"MessageId": "1"})) }).await;
    mail_destination(&db, &tenant, "mailto:Orders@brand.example").await;
    let mut relay = relay(&db);
    relay.mailer =
        Some(Mailer::new(&aws_at(&ses.url.replace("/hook", "")), Some("us@operator.example".into())));
    relay.guard.senders = Senders::Allowed;
    // Neither another of its senders nor another tenant's permission is enough.
    db.execute(format!(
        "insert into aws_target values ('{}', 'email', 'mailto:sales@brand.example');
         with other as (insert into tenant (name) values ('other') returning id)
         insert into aws_target select id, 'email', 'mailto:orders@brand.example' from other",
        tenant.id
    ))
    .await;
    let senders = || {
        let sent = ses.received();
        let from = |body: &[u8]| serde_json::from_slice::<Value>(body).unwrap()["FromEmailAddress"].clone();
        sent.iter().map(|request| from(&request.body)).collect::<Vec<_>>()
    };
    allocate(&db, &tenant, 1).await;
    drain(&relay).await;
    assert_eq!(senders(), Vec::<Value>::new());
    let dead = "outbox where dead_lettered_at is not null and last_error like '%has not allowed this tenant the sender%'";
    assert_eq!(db.count(dead).await, 1);
    db.execute(format!(
        "insert into aws_target values ('{}', 'email', 'mailto:orders@brand.example')",
        tenant.id
    ))
    .await;
    allocate(&db, &tenant, 1).await;
    drain(&relay).await;
    assert_eq!(senders(), [json!("Orders@brand.example")]);
    db.execute("delete from aws_target; update destination set url = ''").await;
    allocate(&db, &tenant, 1).await;
    drain(&relay).await;
    assert_eq!(senders(), [json!("Orders@brand.example"), json!("us@operator.example")]);
    assert_eq!(db.count(dead).await, 1);
}

#[tokio::test]
async fn the_account_manager_is_told_what_was_allocated_and_what_is_left() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { skus: 2, ..Seed::default() }).await;
    let ses = Partner::start(|_| async { Json(json!({"MessageId": "1"})) }).await;
    mail_destination(&db, &tenant, "mailto:orders@brand.example").await;
    allocate(&db, &tenant, 4).await;
    let mut relay = relay(&db);
    relay.mailer = Some(Mailer::new(&aws_at(&ses.url.replace("/hook", "")), None));
    // The allocation's other event, that of the SKU, is settled without a mail.
    assert_eq!(drain(&relay).await.delivered, 2);
    let received = ses.received();
    assert_eq!(received.len(), 1);
    let mail: Value = serde_json::from_slice(&received[0].body).unwrap();
    assert_eq!(mail["FromEmailAddress"], "orders@brand.example");
    assert_eq!(mail["Destination"]["ToAddresses"], json!(["ann@tenant.test"]));
    let tags: Vec<_> =
        mail["EmailTags"].as_array().unwrap().iter().map(|tag| (&tag["Name"], &tag["Value"])).collect();
    let destination: uuid::Uuid = db.scalar("select id from destination").await;
    assert_eq!(tags[1], (&json!("destination"), &json!(destination)));
    assert_eq!((tags.len(), tags[0].0), (2, &json!("outbox")));
    let simple = &mail["Content"]["Simple"];
    assert_eq!(simple["Subject"]["Data"], "Allocated: 4 × SKU-0001 for order SO-1");
    let text = simple["Body"]["Text"]["Data"].as_str().unwrap();
    for part in [
        "Hello Ann",
        "4 × SKU-0001 (Parka)",
        "Boutique",
        "2 left available",
        "8 units of the order are left",
        "SKU-0001: 2 of 6",
        "SKU-0002: 6 of 6",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        simple["Body"]["Html"]["Data"].as_str().unwrap().contains("<td>SKU-0002</td><td>6</td><td>6</td>")
    );
}

#[tokio::test]
async fn one_mail_confirms_all_that_an_allocation_promised() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed { skus: 3, ..Seed::default() }).await;
    let ses = Partner::start(|_| async { Json(json!({"MessageId": "1"})) }).await;
    mail_destination(&db, &tenant, "mailto:orders@brand.example").await;
    let skus: Vec<String> = tenant.skus.iter().map(|sku| format!("'{sku}'")).collect();
    let order = tenant.orders[0];
    for entries in [&skus[..], &skus[..2]] {
        let (skus, qtys) = (entries.join(","), vec!["2"; entries.len()].join(","));
        db.execute(format!(
            "begin; select from sku_position order by sku_id for no key update;
             select holdfast.move('{}', '{order}', (select customer_id from wholesale_order where id = '{order}'),
               array[{skus}]::uuid[], array[{qtys}]::bigint[], 'allocate', 'test'); commit",
            tenant.id
        ))
        .await;
    }
    let mut relay = relay(&db);
    relay.mailer = Some(Mailer::new(&aws_at(&ses.url.replace("/hook", "")), None));
    // The first of its events fails and is tried again; the others have no mail of their own meanwhile.
    ses.answer(|_| async { (503.to_status(), Json(json!({"message": "later"}))) });
    let failed = drain(&relay).await;
    assert_eq!((failed.failed, failed.delivered), (2, 3 + 5));
    ses.answer(|_| async { (200.to_status(), Json(json!({"MessageId": "1"}))) });
    db.execute("update outbox set next_attempt_at = now()").await;
    assert_eq!(drain(&relay).await.delivered, 2);
    let received = ses.received();
    let mails: Vec<Value> = received[received.len() - 2..]
        .iter()
        .map(|mail| serde_json::from_slice(&mail.body).unwrap())
        .collect();
    let mut subjects: Vec<_> =
        mails.iter().map(|mail| mail["Content"]["Simple"]["Subject"]["Data"].as_str().unwrap()).collect();
    subjects.sort_unstable();
    assert_eq!(
        subjects,
        ["Allocated: 4 units of 2 SKUs for order SO-1", "Allocated: 6 units of 3 SKUs for order SO-1"]
    );
    assert_eq!(drain(&relay).await.claimed, 0);
}

#[tokio::test]
async fn a_test_goes_to_who_asked_for_it() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let ses = Partner::start(|_| async { Json(json!({"MessageId": "1"})) }).await;
    mail_destination(&db, &tenant, "mailto:orders@brand.example").await;
    let data = json!({"userId": tenant.users[1]});
    db.execute(format!(
        "select holdfast.emit_destination_event(id, 'destination.test', '{data}', id, null) from destination"
    ))
    .await;
    let mut relay = relay(&db);
    relay.mailer = Some(Mailer::new(&aws_at(&ses.url.replace("/hook", "")), None));
    assert_eq!(drain(&relay).await.delivered, 1);
    let received = ses.received();
    let mail: Value = serde_json::from_slice(&received[0].body).unwrap();
    assert_eq!(mail["Destination"]["ToAddresses"], json!(["ben@tenant.test"]));
    let subject = mail["Content"]["Simple"]["Subject"]["Data"].as_str().unwrap();
    assert!(subject.starts_with("Test of "), "{subject}");
}

#[tokio::test]
async fn a_mail_that_cannot_be_sent_waits_and_one_that_is_refused_for_good_is_a_dead_letter() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let ses = Partner::start(|_| async { (503.to_status(), Json(json!({"message": "later"}))) }).await;
    mail_destination(&db, &tenant, "").await;
    db.execute("update destination set event_types = '{order.line_allocated}'").await;
    allocate(&db, &tenant, 1).await;
    let mut relay = relay(&db);
    assert_eq!(drain(&relay).await.failed, 1);
    assert!(rows(&db).await[0].last_error.as_ref().unwrap().contains("sends no mails"));
    for (from, error) in [(None, "EMAIL_FROM"), (Some("a@brand.example".to_owned()), "SES")] {
        relay.mailer = Some(Mailer::new(&aws_at(&ses.url.replace("/hook", "")), from));
        db.execute("update outbox set next_attempt_at = now()").await;
        let summary = drain(&relay).await;
        assert_eq!((summary.failed, summary.dead_lettered), (1, 0));
        let row = &rows(&db).await[0];
        assert!(row.last_error.as_ref().unwrap().contains(error), "{row:?}");
    }
    assert_eq!(ses.received().len(), 1, "one attempt is one request");
    ses.answer(|_| async {
        let headers = [("x-amzn-errortype", "TooManyRequestsException")];
        (429.to_status(), headers, Json(json!({"message": "Maximum sending rate exceeded."})))
    });
    db.execute("update outbox set next_attempt_at = now()").await;
    assert_eq!(drain(&relay).await.failed, 1);
    assert_eq!(db.count("destination_health where throttled_until > now() and failures = 1").await, 1);
    db.execute("update destination_health set throttled_until = null").await;
    ses.answer(|_| async {
        let headers = [("x-amzn-errortype", "MessageRejected")];
        (400.to_status(), headers, Json(json!({"message": "Email address is not verified."})))
    });
    db.execute("update outbox set next_attempt_at = now()").await;
    assert_eq!(drain(&relay).await.dead_lettered, 1);
    let row = &rows(&db).await[0];
    assert!(row.last_error.as_ref().unwrap().contains("not verified"), "{row:?}");
}

#[tokio::test]
async fn nothing_is_sent_to_an_address_that_bounced_and_a_person_sees_why() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let ses = Partner::start(|_| async { Json(json!({"MessageId": "1"})) }).await;
    mail_destination(&db, &tenant, "mailto:orders@brand.example").await;
    db.execute("update destination set event_types = '{order.line_allocated}'").await;
    let bounced = json!({"addresses": ["ANN@tenant.test", "bo@elsewhere.test"], "kind": "bounce",
        "reason": "a mail bounced for good (General)", "at": "2026-11-30T10:00:00Z"});
    db.worker().call(&shared::db::call::Statement::new("holdfast.pause_addresses", bounced)).await.unwrap();
    allocate(&db, &tenant, 1).await;
    let mut relay = relay(&db);
    relay.mailer = Some(Mailer::new(&aws_at(&ses.url.replace("/hook", "")), None));
    assert_eq!(drain(&relay).await.dead_lettered, 1);
    assert!(ses.received().is_empty());
    let row = &rows(&db).await[0];
    assert_eq!(
        row.last_error.as_deref(),
        Some("nothing is sent to this address: a mail bounced for good (General) on 2026-11-30")
    );
    // An operator lets it, and a person sends it again.
    db.execute("update paused_address set resumed_at = now(); update outbox set dead_lettered_at = null, attempts = 0, next_attempt_at = now()").await;
    assert_eq!(drain(&relay).await.delivered, 1);
    assert_eq!(ses.received().len(), 1);
}
