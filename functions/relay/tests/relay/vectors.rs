//! Signatures and waits against vectors of other makers, where those are at hand, and against the limits.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;
use shared::delivery::address::Guard;
use shared::delivery::attempt::{retry_after, retry_delay, signature};
use shared::delivery::outbox;
use shared::delivery::settlement;
use sqlx::{Connection, Executor, SqlSafeStr};
use testing::TestDb;

const SECOND: Duration = Duration::from_secs(1);

/// The vectors of one file, or `None` with a note where they are not there.
fn vectors(file: &str) -> Option<Vec<Value>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/cases").join(file);
    if let Ok(text) = std::fs::read_to_string(&path) {
        return Some(serde_json::from_str(&text).unwrap());
    }
    println!("left out: no vectors at {}", path.display());
    None
}

#[test]
fn signatures_equal_the_published_ones() {
    let mut checked = 0;
    for case in vectors("standard-webhooks/published-signatures.json").into_iter().flatten() {
        // `secret_key_b64` marks the asymmetric scheme, which is not used here.
        let Some(secret) = case["secret"].as_str() else {
            continue;
        };
        let (id, body) = (case["id"].as_str().unwrap(), case["body"].as_str().unwrap());
        let signed = signature(&[secret.into()], id, case["timestamp"].as_i64().unwrap(), body).unwrap();
        assert_eq!(signed, case["signature"].as_str().unwrap(), "{}", case["name"]);
        checked += 1;
    }
    for case in
        vectors("standard-webhooks/verify-cases.json").into_iter().flatten().filter(|c| c["expect"] == "ok")
    {
        let headers = &case["headers"];
        let timestamp = headers["webhook-timestamp"].as_str().unwrap().parse().unwrap();
        let (secret, id) = (case["secret"].as_str().unwrap(), headers["webhook-id"].as_str().unwrap());
        let signed = signature(&[secret.into()], id, timestamp, case["body"].as_str().unwrap()).unwrap();
        assert!(
            headers["webhook-signature"].as_str().unwrap().split(' ').any(|s| s == signed),
            "{}",
            case["name"]
        );
        checked += 1;
    }
    println!("{checked} signatures compared");
}

#[test]
fn retry_after_is_read_as_others_read_it() {
    let now = Timestamp::from_second(1_445_412_420).unwrap(); // a minute before the date in the vectors
    for case in vectors("backoff/retry-after.json").into_iter().flatten() {
        let Some(header) = case["header"].as_str() else {
            continue;
        };
        let expected = match case["expect_s"].as_u64() {
            Some(secs) => Some(Duration::from_secs(secs)),
            None if case["expect"].as_str().unwrap().starts_with("that instant") => Some(60 * SECOND),
            None => None,
        };
        assert_eq!(retry_after(header, now), expected, "{header}");
    }
}

#[test]
fn addresses_are_admitted_as_others_admit_them_when_called_and_when_saved() {
    let guard = Guard::default();
    for case in vectors("ssrf/addresses.json").into_iter().flatten() {
        let (ip, allowed): (IpAddr, _) =
            (case["ip"].as_str().unwrap().parse().unwrap(), case["allowed"].as_bool().unwrap());
        assert_eq!(guard.admits(ip), allowed, "{ip}");
        assert_eq!(guard.url(&format!("https://{}/", SocketAddr::new(ip, 8443))).is_ok(), allowed, "{ip}");
    }
}

#[test]
fn retry_after_takes_seconds_and_dates_up_to_an_hour_and_ignores_the_rest() {
    let now = Timestamp::from_second(784_111_777).unwrap(); // Sun, 06 Nov 1994 08:49:37 GMT
    let hour = Some(3600 * SECOND);
    for (value, expected) in [
        ("0", Some(Duration::ZERO)),
        (" 7 ", Some(7 * SECOND)),
        ("7.2", Some(8 * SECOND)),
        ("3600", hour),
        ("3601", hour),
        ("99999999999999999999999999999999999999999", hour),
        ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30 * SECOND)),
        ("Sun, 06 Nov 1994 08:49:07 GMT", Some(Duration::ZERO)),
        ("Sun, 07 Nov 2094 08:49:37 GMT", hour),
        ("-1", None),
        ("1e3", None),
        ("inf", None),
        ("NaN", None),
        ("1.2.3", None),
        ("", None),
        ("soon", None),
    ] {
        assert_eq!(retry_after(value, now), expected, "{value}");
    }
}

#[test]
fn the_backoff_doubles_spreads_and_ends_at_an_hour() {
    let delay = |attempts, jitter, after| retry_delay(attempts, jitter, SECOND, after);
    assert_eq!(delay(1, 1.0, None), 2 * SECOND);
    assert_eq!(delay(1, 1.5, None), 3 * SECOND);
    assert_eq!(delay(5, 1.25, None), 40 * SECOND);
    assert_eq!(delay(11, 1.0, None), 2048 * SECOND);
    assert_eq!(delay(11, 1.8, None), 3600 * SECOND);
    assert_eq!(delay(12, 1.0, None), 3600 * SECOND);
    assert_eq!(delay(100, 1.5, None), 3600 * SECOND);
    assert_eq!(delay(3, 1.0, Some(2 * SECOND)), 8 * SECOND);
    assert_eq!(delay(3, 1.0, Some(900 * SECOND)), 900 * SECOND);
}

#[test]
fn without_a_usable_secret_nothing_is_signed_and_no_secret_is_told() {
    assert!(signature(&[], "outbox-1", 0, "{}").unwrap_err().contains("no live secret"));
    let error = signature(&["whsec_?tell-nobody?".into()], "outbox-1", 0, "{}").unwrap_err();
    assert!(!error.contains("tell"), "{error}");
}

#[tokio::test]
async fn every_statement_of_the_outbox_prepares_as_the_worker() {
    let db = TestDb::create().await;
    let mut worker = sqlx::PgConnection::connect(&db.worker_url).await.unwrap();
    for sql in [
        outbox::CLAIM_SQL,
        outbox::CLAIM_LOST_SQL,
        outbox::SWEEP_LOST_SQL,
        outbox::FACTS_SQL,
        outbox::LEARN_SQL,
        outbox::SWEEP_ORDER_SQL,
        outbox::BACKLOG_SQL,
        settlement::SETTLE_SQL,
        outbox::REAP_SQL,
    ] {
        (&mut worker).prepare(sql.into_sql_str()).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}
