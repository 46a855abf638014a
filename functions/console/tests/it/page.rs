//! The console's page.

use testing::Event;

use crate::Desk;

#[tokio::test]
async fn the_page_is_one_file_that_runs_its_own_script_and_calls_its_own_origin_only() {
    let desk = Desk::open().await;
    let first = desk.send(&Event::get("/console")).await;
    assert_eq!((first.status, first.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let policy = first.header("content-security-policy").unwrap();
    let nonce = policy.split("script-src 'nonce-").nth(1).unwrap().split('\'').next().unwrap();
    let page = String::from_utf8(first.body.clone()).unwrap();
    assert_eq!(page.matches(&format!("nonce=\"{nonce}\"")).count(), 2);
    assert!(!page.contains("{nonce}"));
    assert!(policy.starts_with("default-src 'none'") && policy.contains("connect-src 'self'"), "{policy}");
    for outside in ["http://", "https://fonts", "src=", "href=", "innerHTML", " style=\"", "onclick=\""] {
        assert!(!page.contains(outside), "{outside}");
    }
    let second = desk.send(&Event::get("/console")).await;
    assert_ne!(second.header("content-security-policy"), first.header("content-security-policy"));
    assert_eq!(desk.send(&Event::post("/console")).await.status, 405);
}
