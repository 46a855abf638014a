//! What a tenant may use of the operator's: buses, queues, senders of mail; and addresses to which no mail is sent.

use serde_json::json;
use testing::Seed;

use super::*;

const BUS: &str = "arn:aws:events:eu-west-1:123456789012:event-bus/brand";
const QUEUE: &str = "https://sqs.eu-west-1.amazonaws.com/123456789012/events";

#[tokio::test]
async fn what_is_allowed_is_listed_and_taking_it_back_disables_who_uses_it() {
    let db = TestDb::create().await;
    let url = db.owner_url.as_str();
    let (tenant, other) = (db.seed(Seed::default()).await, new_tenant(&db.owner_url));
    let id = tenant.id.to_string();
    let target = |verb: &'static str, tenant: &str, kind: &str, address: &str| {
        ["admin", "target", verb, "--tenant", tenant, "--kind", kind, "--address", address].map(str::to_owned)
    };
    let run = |args: [String; 9]| printed(url, &args.each_ref().map(String::as_str));
    let fails = |args: [String; 9]| refused(url, &args.each_ref().map(String::as_str), FAILED);

    for (kind, given, stored) in [
        ("eventbridge", BUS, BUS),
        ("sqs", QUEUE, QUEUE),
        ("email", "Orders@Brand.example", "mailto:orders@brand.example"),
    ] {
        let wanted = json!({"tenantId": id, "kind": kind, "address": stored});
        assert_eq!(run(target("allow", &id, kind, given)), wanted);
        assert_eq!(run(target("allow", &id, kind, given)), wanted, "again");
        run(target("allow", &other, kind, given));

        // As its owner wrote it: a mail address is the same in any case.
        let named = if kind == "email" { "mailto:ORDERS@brand.example" } else { stored };
        let destination = db.destination(&tenant, named, &["*"]).await.id;
        let bystander = db.destination(&tenant, "https://partner.example/hook", &["*"]).await.id;
        db.execute(format!("update destination set kind = '{kind}' where id = '{destination}'")).await;
        let listed = printed_lines(url, &["admin", "target", "list", "--tenant", &id]);
        assert_eq!(listed, std::slice::from_ref(&wanted));
        let revoked = run(target("revoke", &id, kind, given));
        assert_eq!(revoked["disabled"], json!([destination]));
        let states = format!(
            "select string_agg(state, ' ' order by state) from destination where id in ('{destination}', '{bystander}')"
        );
        assert_eq!(db.text(states).await, "active disabled");
        assert!(fails(target("revoke", &id, kind, given)).contains("is not allowed this address"));
    }
    // Another tenant's stay.
    assert_eq!(printed_lines(url, &["admin", "target", "list"]).len(), 3);
}

#[tokio::test]
async fn an_address_that_is_none_of_its_kind_is_refused_with_its_form() {
    let db = TestDb::create().await;
    let tenant = new_tenant(&db.owner_url);
    for (kind, address, form) in [
        ("eventbridge", QUEUE, "the ARN of a bus"),
        ("eventbridge", "arn:aws:sqs:eu-west-1:123456789012:events", "the ARN of a bus"),
        ("sqs", BUS, "the URL of a queue"),
        ("sqs", "http://sqs.eu-west-1.amazonaws.com/123456789012/events", "the URL of a queue"),
        ("email", "not-an-address", "name@domain"),
        ("email", "Brand <orders@brand.example>", "name@domain"),
    ] {
        let args = ["admin", "target", "allow", "--tenant", &tenant, "--kind", kind, "--address", address];
        let told = refused(&db.owner_url, &args, FAILED);
        assert!(told.contains(form), "{kind} {address}: {told}");
    }
    assert_eq!(db.count("aws_target").await, 0);
}

#[tokio::test]
async fn a_paused_address_is_listed_with_its_reason_until_it_is_resumed() {
    let db = TestDb::create().await;
    let url = db.owner_url.as_str();
    assert_eq!(printed_lines(url, &["admin", "mail", "paused"]), Vec::<Value>::new());
    db.execute(
        r#"select holdfast.pause_addresses('{"addresses": ["Ana@brand.example"], "kind": "bounce", "reason": "no such mailbox", "at": "2026-01-02T03:04:05Z"}');
           select holdfast.pause_addresses('{"addresses": ["ben@brand.example"], "kind": "complaint", "reason": "called spam", "at": "2026-01-03T03:04:05Z"}')"#,
    )
    .await;
    let listed = printed_lines(url, &["admin", "mail", "paused"]);
    let addresses: Vec<_> = listed.iter().map(|line| &line["address"]).collect();
    assert_eq!(addresses, ["ben@brand.example", "ana@brand.example"], "newest first");
    assert_eq!((&listed[1]["kind"], &listed[1]["reason"]), (&json!("bounce"), &json!("no such mailbox")));
    assert!(listed[1]["at"].as_str().unwrap().starts_with("2026-01-02T03:04:05"), "{listed:?}");

    let resume = ["admin", "mail", "resume", "--address", " ANA@brand.example "];
    assert_eq!(printed(url, &resume), json!({"address": "ana@brand.example", "paused": false}));
    assert!(refused(url, &resume, FAILED).contains("ANA@brand.example is not paused"));
    assert_eq!(printed_lines(url, &["admin", "mail", "paused"]).len(), 1);
}
