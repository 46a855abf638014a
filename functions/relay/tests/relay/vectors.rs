//! Signatures, `Retry-After` and addresses against published vectors, where they are at hand, and against the limits.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use jiff::Timestamp;
use relay::Limits;
use serde_json::Value;
use shared::delivery::address::Guard;
use shared::delivery::attempt::{retry_after, signature};
use shared::delivery::outbox::{self, ClaimRequest, LeaseTerms, OrderedQueue, Rearranged};
use shared::delivery::settlement::{Settled, Settlement, Transition, settle};
use shared::delivery::shopify_items::{Learned, LearnedItem, learn};
use testing::{Seed, TestDb, case};
use uuid::Uuid;

const SECOND: Duration = Duration::from_secs(1);

/// The vectors of one file, if it is there.
fn vectors(file: &str) -> Option<Vec<Value>> {
    case(file).map(|bytes| serde_json::from_slice(&bytes).unwrap())
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

#[tokio::test]
async fn the_backoff_doubles_spreads_and_ends_at_an_hour() {
    let db = TestDb::create().await;
    let mut owner = db.owner().await;
    // Attempts, jitter, Retry-After and the expected delay, in seconds.
    for (attempts, jitter, retry_after_secs, expected_secs) in [
        (1, 1.0, None, 2.0),
        (1, 1.5, None, 3.0),
        (5, 1.25, None, 40.0),
        (11, 1.0, None, 2048.0),
        (11, 1.8, None, 3600.0),
        (12, 1.0, None, 3600.0),
        (100, 1.5, None, 3600.0),
        (3, 1.0, Some(2.0), 8.0),
        (3, 1.0, Some(900.0), 900.0),
    ] {
        let delay_secs: f64 = sqlx::query_scalar("select holdfast.retry_delay_secs($1, $2, $3, $4)")
            .bind::<i32>(attempts)
            .bind::<f64>(SECOND.as_secs_f64())
            .bind::<f64>(jitter)
            .bind::<Option<f64>>(retry_after_secs)
            .fetch_one(&mut owner)
            .await
            .unwrap();
        assert_eq!(delay_secs, expected_secs, "{attempts} {jitter} {retry_after_secs:?}");
    }
}

#[test]
fn without_a_usable_secret_nothing_is_signed_and_no_secret_is_told() {
    assert!(signature(&[], "outbox-1", 0, "{}").unwrap_err().contains("no live secret"));
    let error = signature(&["whsec_?tell-nobody?".into()], "outbox-1", 0, "{}").unwrap_err();
    assert!(!error.contains("tell"), "{error}");
}

#[tokio::test]
async fn every_statement_of_the_outbox_runs_as_the_worker() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let destination = db.destination(&tenant, "http://127.0.0.1:9/", &["*"]).await;
    let worker = db.worker();
    let terms = LeaseTerms { lease: 30 * SECOND, retry_unit: SECOND, jitter: 1.0 };
    let request = ClaimRequest {
        slots: 20,
        after: Uuid::nil(),
        busy: &[(destination.id, 1)],
        room_each: 20,
        watermarks: &[(destination.id, 1.0)],
        terms,
    };
    assert!(outbox::claim(&worker, &request).await.unwrap().0.is_empty());
    assert!(outbox::claim_lost(&worker, &[destination.id], terms).await.unwrap().is_empty());
    let lost = outbox::sweep_lost(&worker).await.unwrap();
    assert_eq!((lost.dead_lettered, lost.lost_due), (0, false));
    assert!(outbox::facts(&worker, &[1]).await.unwrap().is_empty());
    let item = LearnedItem {
        tenant_id: tenant.id,
        destination_id: destination.id,
        sku_id: tenant.skus[0],
        outbox_id: 1,
        learned: Learned {
            inventory_item_id: Some("gid://shopify/InventoryItem/1".into()),
            instead_of: None,
        },
    };
    learn(&worker, &item).await.unwrap();
    let checked = outbox::check_waiting(&worker, OrderedQueue::default(), 10).await.unwrap();
    assert_eq!((checked.last, checked.woken, checked.more), (OrderedQueue::default(), 0, false));
    assert_eq!(outbox::rearrange(&worker, 10).await.unwrap(), Rearranged::Nothing);
    assert_eq!(outbox::backlog(&worker, 10).await.unwrap(), (0, 0.0));
    let transitions = [
        Transition::Delivered,
        Transition::Failed { error: "x".into(), jitter: 1.0, retry_after: Some(SECOND), unreachable: true },
        Transition::Throttled { error: "x".into(), pause: None },
        Transition::Rejected("x".into()),
        Transition::Gone("x".into()),
    ];
    let attempts = (1..).zip(transitions);
    let nobodys: Vec<_> =
        attempts.map(|(id, transition)| Settlement::new(id, Uuid::nil(), transition)).collect();
    let settled = settle(&worker, &nobodys, SECOND, Limits::default().breaker).await.unwrap();
    assert_eq!(settled, Settled { refused: vec![1, 2, 3, 4, 5], ..Settled::default() });
}
