//! The page and its files.

use std::collections::BTreeSet;
use std::path::Path;

use console::{Page, SignIn};
use testing::{Event, Reply};

use crate::Desk;

/// Bytes of the page and of all its files together, as they are sent.
const MOST_BYTES: usize = 150_000;

async fn document(desk: &Desk) -> (Reply, String) {
    let reply = desk.send(&Event::get("/console")).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = String::from_utf8(reply.body.clone()).unwrap();
    (reply, text)
}

/// The address of the page's files, `/console/<version>`.
fn folder(document: &str) -> String {
    let path = document.split("src=\"").nth(1).unwrap().split("/app.js").next().unwrap();
    format!("/{path}")
}

fn files() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let names =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != "index.html").collect()
}

#[tokio::test]
async fn the_page_runs_its_own_files_only_and_calls_its_own_origin_only() {
    let desk = Desk::open().await;
    let (reply, text) = document(&desk).await;
    let policy = reply.header("content-security-policy").unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'self';",
        "style-src 'self';",
        "connect-src 'self';",
        "trusted-types 'none'",
    ] {
        assert!(policy.contains(rule), "{rule}: {policy}");
    }
    assert!(!policy.contains("unsafe") && !policy.contains("nonce"), "{policy}");
    let mut bytes = text.len();
    let mut everything = vec![("index.html".to_owned(), text.clone())];
    for name in files() {
        let file = desk.send(&Event::get(&format!("{}/{name}", folder(&text)))).await;
        assert_eq!(file.status, 200, "{name} is not compiled in");
        bytes += file.body.len();
        everything.push((name, String::from_utf8(file.body).unwrap()));
    }
    for (name, text) in everything {
        for markup in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "eval(",
            " style=\"",
            "onclick=\"",
            "src=\"http",
            "url(http",
        ] {
            assert!(!text.contains(markup), "{name}: {markup}");
        }
    }
    assert!(bytes < MOST_BYTES, "{bytes} bytes");
}

#[tokio::test]
async fn a_file_is_kept_for_a_year_under_its_version_and_the_document_is_asked_for_each_time() {
    let desk = Desk::open().await;
    let (reply, text) = document(&desk).await;
    assert_eq!(reply.header("cache-control"), Some("no-cache"));
    let tag = reply.header("etag").unwrap();
    let again =
        desk.send(&Event::get("/console").header("If-None-Match", &format!("\"other\", W/{tag}"))).await;
    assert_eq!((again.status, again.body.len(), again.header("etag")), (304, 0, Some(tag)));

    let path = format!("{}/client.js", folder(&text));
    let file = desk.send(&Event::get(&path)).await;
    assert_eq!(file.header("content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(file.header("cache-control"), Some("public, max-age=31536000, immutable"));
    let known = desk.send(&Event::get(&path).header("If-None-Match", file.header("etag").unwrap())).await;
    assert_eq!((known.status, known.body.len()), (304, 0));

    let other_release = desk.send(&Event::get("/console/0123456789abcdef/client.js")).await;
    assert_eq!((other_release.status, other_release.header("cache-control")), (200, Some("no-store")));
    for absent in ["index.html", "console.html", "..%2Findex.html"] {
        assert_eq!(
            desk.send(&Event::get(&format!("{}/{absent}", folder(&text)))).await.status,
            404,
            "{absent}"
        );
    }
    assert_eq!(desk.send(&Event::post("/console")).await.status, 405);
}

#[tokio::test]
async fn a_configured_issuer_is_named_to_the_page_and_only_its_token_endpoint_is_let_through() {
    let mut desk = Desk::open().await;
    let (plain, _) = document(&desk).await;
    desk.console.page = Page {
        scope_claim: "scope".into(),
        sign_in: Some(SignIn {
            authorize_url: "https://issuer.example/authorize?audience=a&b=%22".parse().unwrap(),
            token_url: "https://tokens.example/oauth/token".parse().unwrap(),
            client_id: "\"><script>".into(),
            scope: "openid".into(),
            token: "access_token".into(),
        }),
    };
    let (reply, text) = document(&desk).await;
    assert!(
        reply
            .header("content-security-policy")
            .unwrap()
            .contains("connect-src 'self' https://tokens.example;")
    );
    assert!(text.contains("https://issuer.example/authorize?audience=a&amp;b=%22"), "{text}");
    assert!(!text.contains("\"><script>"), "{text}");
    assert_ne!(reply.header("etag"), plain.header("etag"));
}

#[test]
fn no_text_in_a_script_goes_over_several_lines() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    for name in files().iter().filter(|name| name.ends_with(".js")) {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let is_comment =
            |line: &str| ["//", "*", "/*"].iter().any(|begin| line.trim_start().starts_with(begin));
        let open = text.lines().find(|line| !is_comment(line) && line.matches('`').count() % 2 == 1);
        assert_eq!(open, None, "{name}");
    }
}
