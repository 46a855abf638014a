//! The partner as the relay sees it.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::HashMap;

use aws_sdk_sesv2::config::{Credentials, SharedCredentialsProvider};
use relay::Relay;
use serde_json::json;
use testing::{Seed, Tenant, TestDb};

use super::*;

fn signed(secret: &str, body: &[u8]) -> HeaderMap {
    let now = jiff::Timestamp::now().as_second();
    let signature = Webhook::new(secret).unwrap().sign("outbox-7", now, body).unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("webhook-id", "outbox-7".parse().unwrap());
    headers.insert("webhook-timestamp", now.to_string().parse().unwrap());
    headers.insert("webhook-signature", signature.parse().unwrap());
    headers
}

#[test]
fn only_the_right_secret_and_the_sent_bytes_count_as_signed() {
    let secret = holdfast::secrets::webhook_secret();
    let headers = signed(&secret, b"{}");
    assert!(signed_with(&secret, &headers, b"{}"));
    assert!(!signed_with(&secret, &headers, b"{ }"));
    assert!(!signed_with(&holdfast::secrets::webhook_secret(), &headers, b"{}"));
    assert!(!signed_with("no base64", &headers, b"{}"));
}

#[test]
fn a_header_sent_twice_is_joined() {
    let mut headers = HeaderMap::new();
    headers.append("X-Twice", "a".parse().unwrap());
    headers.append("x-twice", "b".parse().unwrap());
    assert_eq!(joined(&headers)["x-twice"], "a, b");
}

/// A destination of each kind at the partner: webhook, shop, mail.
async fn add_destinations(db: &TestDb, tenant: &Tenant, partner_url: &str) -> [Uuid; 3] {
    let mut ids = Vec::new();
    for (kind, url) in [
        ("webhook", String::new()),
        ("shopify_inventory", shopify::url(partner_url)),
        ("email", "mailto:orders@brand.example".into()),
    ] {
        let id = db.destination(tenant, &url, &["*"]).await.id;
        ids.push(id);
        db.execute(format!("update destination set kind = '{kind}' where id = '{id}'")).await;
    }
    let url = webhook_url(partner_url, ids[0]);
    db.execute(format!("update destination set url = '{url}' where id = '{}'", ids[0])).await;
    ids.try_into().unwrap()
}

/// A relay with the settings that `dev` gives it.
async fn relay_to(partner_url: &str, db: &TestDb) -> Relay {
    let environment: HashMap<_, _> = ses::environment(partner_url).into_iter().collect();
    let key = environment["AWS_ACCESS_KEY_ID"].as_str();
    let aws = aws_config::SdkConfig::builder()
        .behavior_version(aws_config::BehaviorVersion::latest())
        .region(aws_config::Region::new(environment["AWS_REGION"].clone()))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new(key, key, None, None, "test")))
        .endpoint_url(&environment["AWS_ENDPOINT_URL_SESV2"])
        .build();
    let mut relay = Relay::with(db.worker(), relay::Limits::default(), relay::Ambient::default());
    relay.guard = shared::delivery::address::Guard::allowing("127.0.0.1").unwrap();
    relay.mailer = Some(aws::mailer::Mailer::new(&aws, None));
    relay
}

async fn behave(url: &str, status: u16) {
    let body = json!({ "status": status }).to_string();
    let answer = reqwest::Client::new().post(format!("{url}/behave")).body(body).send().await.unwrap();
    assert_eq!(answer.status(), 200);
}

#[tokio::test]
async fn an_event_a_push_and_a_mail_arrive_and_are_shown() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let port = xtask::ports::any_free().unwrap();
    let url = format!("http://127.0.0.1:{port}");
    let _serving = serve(xtask::ports::local(port), &db.owner_url, testing::sealer()).await.unwrap();
    let ids = add_destinations(&db, &tenant, &url).await;
    let (order, sku) = (tenant.orders[0], tenant.skus[0]);
    db.execute(format!(
        "select holdfast.move('{0}', '{order}', '{1}', array['{sku}'::uuid], array[4::bigint], 'allocate', 'test')",
        tenant.id, tenant.customer
    ))
    .await;

    let relay = relay_to(&url, &db).await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(60);
    let summary = relay.run_once(std::time::Duration::ZERO, deadline).await.unwrap();
    // An allocation has two events and each goes to three destinations; the shop and the mail ignore one of the two.
    assert_eq!((summary.delivered, summary.failed), (6, 0));

    let received: Vec<serde_json::Value> =
        reqwest::get(format!("{url}/received")).await.unwrap().json().await.unwrap();
    let of = |id: Uuid| {
        received.iter().filter(move |one| one["destinationId"] == id.to_string()).collect::<Vec<_>>()
    };
    assert!(
        received.iter().all(|one| one["signatureValid"] == true && one["headers"].is_object()),
        "{received:?}"
    );
    assert_eq!(
        ids.iter().map(|id| of(*id).len()).collect::<Vec<_>>(),
        [2, 2, 1],
        "a look-up precedes the push"
    );
    let push: serde_json::Value = serde_json::from_str(of(ids[1])[1]["body"].as_str().unwrap()).unwrap();
    let set = &push["variables"]["input"]["quantities"][0];
    assert_eq!(
        (&set["inventoryItemId"], &set["quantity"]),
        (&"gid://shopify/InventoryItem/SKU-0001".into(), &2.into())
    );
    let mail: serde_json::Value = serde_json::from_str(of(ids[2])[0]["body"].as_str().unwrap()).unwrap();
    assert_eq!(mail["Destination"]["ToAddresses"][0], "ann@tenant.test");

    db.execute("update outbox set processed_at = null, attempts = 0, next_attempt_at = now()").await;
    behave(&url, 503).await;
    let summary = relay.run_once(std::time::Duration::ZERO, deadline).await.unwrap();
    assert_eq!((summary.delivered, summary.failed), (2, 4), "the two that are ignored are not sent");
    behave(&url, 200).await;
    let refused = reqwest::Client::new()
        .post(shopify::url(&url))
        .header("idempotency-key", of(ids[1])[0]["headers"]["idempotency-key"].as_str().unwrap())
        .header("x-shopify-access-token", "wrong")
        .body(of(ids[1])[1]["body"].as_str().unwrap().to_owned())
        .send()
        .await
        .unwrap();
    assert_eq!(refused.status(), 401);
}

#[test]
fn the_shop_refuses_what_the_real_one_would() {
    let push = json!({"query": "mutation { inventorySetQuantities(input: $input) @idempotent(key: $key) { userErrors { code } } }",
        "variables": {"key": "k", "input": {"quantities": [{"inventoryItemId": "i", "locationId": "l", "quantity": 1,
            "changeFromQuantity": null}]}}});
    assert!(shopify::answer(&push)["data"].is_object());
    let mut keyless = push.clone();
    keyless["variables"]["key"] = json!(null);
    let mut comparing = push.clone();
    comparing["variables"]["input"]["quantities"][0].as_object_mut().unwrap().remove("changeFromQuantity");
    for refused in [keyless, comparing, json!({"query": "{ shop { name } }"}), json!(null)] {
        assert!(shopify::answer(&refused)["errors"].is_array(), "{refused}");
    }
}

/// One page of an account's report, by its token.
async fn page(partner_url: &str, token: &str, query: &str) -> (u16, serde_json::Value) {
    let url = format!("{}/inventory{query}", inventory::url(partner_url, "north"));
    let answer = reqwest::Client::new().get(url).bearer_auth(token).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

#[tokio::test]
async fn an_account_reports_forty_thousand_skus_page_by_page_and_only_to_who_has_its_token() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let address = xtask::ports::local(xtask::ports::any_free().unwrap());
    serve(address, &db.owner_url, testing::sealer()).await.unwrap();
    let partner_url = format!("http://{address}");
    let mut owner = db.owner().await;
    holdfast::master_data::add_threepl_account(&mut owner, tenant.id, "north", "whsec_eA==").await.unwrap();
    let url = inventory::url(&partner_url, "north");
    let stored = testing::sealer().seal("inventory north", "token").unwrap();
    holdfast::master_data::set_threepl_inventory(&mut owner, tenant.id, "north", &url, &stored)
        .await
        .unwrap();
    assert_eq!(page(&partner_url, "token", "").await, (200, json!({"items": [], "next": null})));

    let items: Vec<_> = (0..40_000).map(|n| json!({"sku": format!("SKU-{n:05}"), "onHand": n})).collect();
    let told = json!({"account": "north", "items": items}).to_string();
    let set =
        reqwest::Client::new().post(format!("{partner_url}/inventory")).body(told).send().await.unwrap();
    assert!(set.status().is_success());
    let (mut query, mut seen) = ("?limit=500".to_owned(), 0);
    loop {
        let (status, page) = page(&partner_url, "token", &query).await;
        assert_eq!(status, 200);
        for item in page["items"].as_array().unwrap() {
            assert_eq!(item["onHand"], seen);
            assert!(item["asOf"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
            seen += 1;
        }
        let Some(next) = page["next"].as_str() else { break };
        query = format!("?limit=500&cursor={next}");
    }
    assert_eq!(seen, 40_000);
    assert_eq!(page(&partner_url, "guessed", "").await.0, 401);
    assert_eq!(page(&partner_url, "token", "?cursor=x").await.0, 400);
}
