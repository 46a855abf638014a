//! Exceptions of all tenants, and of none, as the operator sees and ends them.

use serde_json::json;
use uuid::Uuid;

use super::*;

/// One exception of a tenant or of nobody, received that many minutes ago; returns its id.
async fn kept(db: &TestDb, tenant: Option<&str>, provider: &str, minutes: u32) -> String {
    let id = Uuid::new_v4().to_string();
    let tenant = tenant.map_or("null".to_owned(), |tenant| format!("'{tenant}'"));
    db.execute(format!(
        "insert into inbox_exception (id, tenant_id, provider, event_id, topic, reason, waits_for, body, received_at)
         values ('{id}', {tenant}, '{provider}', '{id}', 'orders/create', 'no tenant has this account', 'account',
           '{{\"id\":1}}', now() - make_interval(mins => {minutes}))"
    ))
    .await;
    id
}

fn listed(url: &str, more: &[&str]) -> Vec<String> {
    let ids = printed_lines(url, &[&["admin", "exceptions", "list"], more].concat());
    ids.iter().map(|line| line["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn exceptions_of_all_tenants_and_of_none_are_listed_and_ended() {
    let db = TestDb::create().await;
    let url = db.owner_url.as_str();
    let (birch, other) = (new_tenant(url), new_tenant(url));
    let (closed, also_closed) = ("shopify:closed.myshopify.com", "shopify:gone.myshopify.com");
    let mut ids = Vec::new();
    for (minutes, (tenant, provider)) in (1..).zip([
        (None, closed),
        (Some(&birch), "3pl:north"),
        (None, also_closed),
        (Some(&other), "stripe"),
        (None, "stripe"),
    ]) {
        ids.push(kept(&db, tenant.map(String::as_str), provider, minutes).await);
    }
    let [unknown, of_birch, gone, of_other, payment] = <[String; 5]>::try_from(ids.clone()).unwrap();
    assert_eq!(listed(url, &[]), ids, "newest first, of all tenants");
    assert_eq!(listed(url, &["--limit", "2"]), ids[..2]);
    assert_eq!(listed(url, &["--tenant", &birch]), [of_birch.as_str()]);
    assert_eq!(listed(url, &["--tenant", "none"]), [unknown.as_str(), &gone, &payment]);
    assert_eq!(listed(url, &["--tenant", "none", "--provider", "shopify"]), [unknown.as_str(), &gone]);
    let first = &printed_lines(url, &["admin", "exceptions", "list"])[..2];
    assert_eq!((&first[0]["tenantId"], &first[1]["tenantId"]), (&Value::Null, &json!(birch)));
    assert_eq!((&first[0]["provider"], &first[0]["excerpt"]), (&json!(closed), &json!("{\"id\":1}")));

    let dismiss = |more: &[&str]| printed_lines(url, &[&["admin", "exception", "dismiss"], more].concat());
    let reason = ["--reason", " the shop has closed "];
    let ended = dismiss(&[&["--id", &unknown, "--id", &of_birch], &reason[..]].concat());
    for (ended, (id, tenant)) in ended.iter().zip([(&unknown, Value::Null), (&of_birch, json!(birch))]) {
        assert_eq!((&ended["id"], &ended["tenantId"]), (&json!(id), &tenant));
        assert_eq!(
            (&ended["dismissReason"], &ended["resolvedBy"], &ended["waitsFor"]),
            (&json!("the shop has closed"), &json!("admin"), &Value::Null)
        );
    }
    assert_eq!(listed(url, &["--state", "resolved"]), [unknown.as_str(), &of_birch]);

    // By sender: only that tenant's, or only nobody's.
    let all = ["--provider", "stripe", "--tenant", "none"];
    assert_eq!(dismiss(&[&all, &reason[..]].concat()), [json!({"dismissed": 1})]);
    assert_eq!(listed(url, &[]), [gone.as_str(), &of_other]);
    assert_eq!(dismiss(&[&all, &reason[..]].concat()), [json!({"dismissed": 0})]);
}

#[tokio::test]
async fn exceptions_that_are_named_are_ended_all_or_none() {
    let db = TestDb::create().await;
    let url = db.owner_url.as_str();
    let (open, ended) = (kept(&db, None, "stripe", 1).await, kept(&db, None, "stripe", 2).await);
    let nobody = Uuid::new_v4().to_string();
    let dismiss = ["admin", "exception", "dismiss", "--reason", "a test of the sender's"];
    let with = |more: &[&'static str], ids: &[&str]| {
        let named: Vec<&str> = ids.iter().flat_map(|id| ["--id", id]).collect();
        [&dismiss[..], more, &named].concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let refuse = |args: Vec<String>, status| {
        refused(url, &args.iter().map(String::as_str).collect::<Vec<_>>(), status)
    };
    printed(url, &[&dismiss[..], &["--id", &ended]].concat());
    let told = refuse(with(&[], &[&open, &ended]), FAILED);
    assert!(told.starts_with(&format!("exception {ended}: It has been processed or dismissed")), "{told}");
    let told = refuse(with(&[], &[&open, &nobody]), FAILED);
    assert_eq!(told, format!("there is no exception with the id {nobody}\n"));
    refuse(with(&[], &[]), WRONG_ARGUMENTS);
    refuse(with(&["--provider", "stripe"], &[]), WRONG_ARGUMENTS);
    refuse(with(&["--provider", "stripe", "--tenant", "none"], &[&open]), WRONG_ARGUMENTS);
    refuse(with(&["--provider", "stripe", "--tenant", "nobody"], &[]), WRONG_ARGUMENTS);
    refused(url, &["admin", "exception", "dismiss", "--id", &open], WRONG_ARGUMENTS);
    refused(url, &["admin", "exception", "dismiss", "--id", &open, "--reason", " "], WRONG_ARGUMENTS);
    assert_eq!(listed(url, &[]), [open]);
}

#[tokio::test]
async fn all_that_a_sender_told_is_ended_in_steps() {
    let db = TestDb::create().await;
    let url = db.owner_url.as_str();
    db.execute(
        "insert into inbox_exception (provider, event_id, topic, reason, body)
         select 'shopify:a.myshopify.com', n, 'orders/create', 'no tenant has this shop', '' from generate_series(1, 2500) n",
    )
    .await;
    let dismiss =
        ["admin", "exception", "dismiss", "--tenant", "none", "--provider", "shopify:a.myshopify.com"];
    let ended = printed(url, &[&dismiss[..], &["--reason", "the shop has closed"]].concat());
    assert_eq!(ended, json!({"dismissed": 2500}));
    assert_eq!(db.count("inbox_exception where resolved_at is null").await, 0);
}
