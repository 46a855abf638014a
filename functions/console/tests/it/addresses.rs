//! Addresses of destinations that are refused at saving.

use serde_json::{Value, json};
use shared::delivery::address::Guard;

use crate::Desk;

#[tokio::test]
async fn an_address_that_is_not_public_is_refused_where_it_stands() {
    let desk = Desk::open().await;
    let mut urls: Vec<String> = [
        "https://localhost/",
        "https://127.2/",
        "https://169.254.169.254/latest/meta-data/",
        "https://[::ffff:10.0.0.1]/",
        "https://[64:ff9b::a00:1]/",
        "https://user:pass@example.com/",
        "http://example.com/",
        "ftp://example.com/",
        "http://127.0.0.2/",
    ]
    .map(str::to_owned)
    .to_vec();
    if let Some(cases) = testing::case("ssrf/addresses.json") {
        let cases: Vec<Value> = serde_json::from_slice(&cases).unwrap();
        let refused = cases.iter().filter(|case| case["allowed"] == false && case["ip"] != "127.0.0.1");
        urls.extend(
            refused
                .map(|case| literal(case["ip"].as_str().unwrap()))
                .filter(|url| !url.contains("ffff:127.0.0.1")),
        );
        for case in cases.iter().filter(|case| case["allowed"] == true) {
            let url = literal(case["ip"].as_str().unwrap());
            assert_eq!(save(&desk, &url).await.0, 201, "{url}");
        }
    }
    for url in urls {
        assert_eq!(save(&desk, &url).await, (400, Some("/url".into())), "{url}");
    }
}

/// A name other than `localhost` that resolves to an address of this machine, if there is one.
async fn local_name() -> Option<String> {
    let hostname = std::fs::read_to_string("/etc/hostname").unwrap_or_default();
    for name in ["ip6-localhost", hostname.trim()] {
        if let Ok(mut found) = tokio::net::lookup_host((name, 443)).await
            && found.any(|address| !Guard::default().admits(address.ip()))
        {
            return Some(name.to_ascii_lowercase());
        }
    }
    testing::left_out("no name but localhost stands for an address of this machine");
    None
}

#[tokio::test]
async fn a_name_of_an_address_that_is_not_public_is_refused_but_an_answered_request_keeps_its_answer() {
    let Some(name) = local_name().await else { return };
    let mut desk = Desk::open().await;
    let url = format!("https://{name}/");
    desk.console.guard = Guard::default();
    assert_eq!(save(&desk, &url).await, (400, Some("/url".into())));
    assert_eq!(desk.shop.db.count("idempotency_key").await + desk.shop.db.count("destination").await, 0);
    let body = json!({"name": "x", "kind": "webhook", "url": url, "eventTypes": ["*"]});
    let request = desk.posting("/admin/destinations", &body);
    desk.console.guard = Guard::allowing(&name).unwrap();
    let answered = desk.send(&request).await;
    assert_eq!(answered.status, 201);
    // As if the name had got another address meanwhile.
    desk.console.guard = Guard::default();
    assert_eq!(desk.send(&request).await.body, answered.body);
    let id = answered.json()["id"].as_str().unwrap().to_owned();
    let changed = desk.patch(&format!("/admin/destinations/{id}"), &json!({ "url": url })).await;
    assert_eq!((changed.status, changed.error().as_deref()), (400, Some("invalid_body")));
}

fn literal(ip: &str) -> String {
    if ip.contains(':') { format!("https://[{ip}]/") } else { format!("https://{ip}/") }
}

async fn save(desk: &Desk, url: &str) -> (u16, Option<String>) {
    let body = json!({"name": "x", "kind": "webhook", "url": url, "eventTypes": ["*"]});
    let reply = desk.post("/admin/destinations", &body).await;
    (reply.status, reply.json()["errors"][0]["path"].as_str().map(str::to_owned))
}
