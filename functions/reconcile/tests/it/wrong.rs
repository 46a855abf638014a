//! Warehouses that fail, or do not keep to what they promised.

use std::time::Duration;

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use reconcile::{Limits, Request, Summary};
use tokio::time::Instant;

use crate::support::{ANY, PATIENCE, Stage, hasty};

const N: usize = 12;
/// Three pages.
const LIMITS: fn() -> Limits = || Limits { page: 4, ..hasty() };

fn status(status: u16) -> Response {
    StatusCode::from_u16(status).unwrap().into_response()
}

impl Stage {
    /// Twelve SKUs of ten units, of which eleven are counted.
    async fn counted_anew() -> Self {
        let stage = Self::open(N, 10).await;
        stage.counts(&[11; N]);
        stage
    }

    async fn walked(&self) -> Summary {
        self.reconcile_with(LIMITS(), ANY).await
    }

    async fn all_are_booked(&self) {
        assert_eq!(self.on_hand().await, [11; N]);
        assert_eq!(self.shop.db.count("stock_ledger where entry_type = 'reconcile'").await, N as i64);
        self.shop.db.assert_consistent().await;
    }
}

#[tokio::test]
async fn a_token_that_cannot_be_opened_ends_the_run_in_words_without_a_request_and_one_that_can_is_used() {
    let stage = Stage::counted_anew().await;
    stage.seal_token().await;
    let request = Request { tenant: Some(stage.shop.tenant.id), resume: false };
    let mut reconciler = stage.reconciler(LIMITS(), ANY);
    let summary = reconciler.run_once(request, Instant::now() + PATIENCE).await.unwrap();
    let error = &summary.errors[0].error;
    assert!(error.contains("account wms") && error.contains("which SECRETS_KEYS does not hold"), "{error}");
    assert_eq!((summary.failed, stage.warehouse.asked().len()), (1, 0));
    reconciler.sealer = testing::sealer();
    let summary = reconciler.run_once(request, Instant::now() + PATIENCE).await.unwrap();
    assert_eq!((summary.completed, &summary.errors), (1, &vec![]));
    stage.all_are_booked().await;
}

#[tokio::test]
async fn passing_failures_are_asked_again() {
    let stage = Stage::counted_anew().await;
    stage.warehouse.answer(|n, _, page| match n {
        0 => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response(),
        1 | 3 => status(500 + u16::try_from(n).unwrap()),
        4 => "<html>busy</html>".into_response(),
        _ => Json(page).into_response(),
    });
    let summary = stage.walked().await;
    assert_eq!((summary.completed, summary.pages), (1, 3));
    assert_eq!(stage.warehouse.asked().len(), 7);
    assert!(summary.seconds >= 1.0, "Retry-After was not heeded: {summary:?}");
    stage.all_are_booked().await;
}

#[tokio::test]
async fn an_answer_that_never_comes_is_given_up_in_time_and_asked_again() {
    let stage = Stage::counted_anew().await;
    // The connection stays open without an answer: its body never ends.
    stage.warehouse.answer(|n, _, page| match n {
        1 => {
            axum::body::Body::from_stream(futures_util::stream::pending::<Result<Vec<u8>, std::io::Error>>())
                .into_response()
        }
        _ => Json(page).into_response(),
    });
    let summary = stage.reconcile_with(Limits { request: Duration::from_secs(2), ..LIMITS() }, ANY).await;
    assert_eq!((summary.completed, stage.warehouse.asked().len()), (1, 4));
    stage.all_are_booked().await;
}

#[tokio::test]
async fn a_failure_that_stays_ends_the_run_and_the_next_goes_on_at_the_checkpoint() {
    for (name, answer) in [
        ("HTTP 503", (|_| status(503)) as fn(Value) -> Response),
        ("HTTP 401", |_| status(401)),
        ("not a page", |_| "nonsense".into_response()),
        ("not a page", |_| Json(json!({"lines": []})).into_response()),
        ("its cursor repeats", |mut page| {
            page["next"] = "4".into();
            Json(page).into_response()
        }),
        ("lines on a page", |mut page| {
            page["items"] = vec![page["items"][0].clone(); 6_000].into();
            Json(page).into_response()
        }),
        ("larger than", |_| vec![b' '; 9 << 20].into_response()),
        ("no answer", |_| {
            // A page that breaks off.
            let broken = futures_util::stream::iter([Ok(vec![b'{']), Err(std::io::Error::other("gone"))]);
            axum::body::Body::from_stream(broken).into_response()
        }),
    ] {
        let stage = Stage::counted_anew().await;
        stage.warehouse.answer(move |_, asked, page| match asked.cursor.as_deref() {
            Some("8") => answer(page),
            _ => Json(page).into_response(),
        });
        let summary = stage.walked().await;
        assert_eq!((summary.completed, summary.failed), (0, 1), "{name}");
        let error = &summary.errors[0].error;
        assert!(error.contains("account wms") && error.contains(name), "{name}: {error}");
        assert_eq!(stage.on_hand().await, [10; N], "nothing is booked of a walk that has not ended");
        let run = &stage.rows("select state, error, leased_until from reconcile_run").await[0];
        assert_eq!((&run["state"], &run["leased_until"]), (&json!("walking"), &json!(null)), "{run}");
        assert_eq!(run["error"].as_str(), Some(error.as_str()));
        let cursor: String = stage.shop.db.scalar("select cursor from sync_checkpoint").await;
        assert_eq!(serde_json::from_str::<Value>(&cursor).unwrap()["after"], "8");

        stage.warehouse.answer(|_, _, page| Json(page));
        let summary = stage.walked().await;
        assert_eq!((summary.completed, summary.failed), (1, 0), "{name}");
        let asked: Vec<_> = stage.warehouse.asked().into_iter().map(|asked| asked.cursor).collect();
        assert_eq!(asked, [Some("8".to_owned())], "{name}: what was walked is not walked again");
        stage.all_are_booked().await;
    }
}

#[tokio::test]
async fn a_partner_that_asks_for_a_long_pause_gets_it() {
    let stage = Stage::counted_anew().await;
    stage.warehouse.answer(|_, _, _| (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "3000")]));
    let summary = stage.walked().await;
    assert_eq!((summary.failed, stage.warehouse.asked().len()), (1, 1));
    assert!(summary.seconds < 60.0);
}

#[tokio::test]
async fn a_cursor_that_the_partner_has_forgotten_begins_the_account_anew() {
    let stage = Stage::counted_anew().await;
    stage.warehouse.answer(|n, asked, page| match (n, asked.cursor.as_deref()) {
        (2, Some("8")) => status(410),
        _ => Json(page).into_response(),
    });
    let summary = stage.walked().await;
    assert_eq!((summary.completed, stage.warehouse.asked().len()), (1, 6));
    stage.all_are_booked().await;
}

#[tokio::test]
async fn pages_of_other_sizes_empty_ones_and_repeated_lines_end_in_the_same_numbers() {
    let stage = Stage::counted_anew().await;
    let codes = stage.codes.clone();
    let at = jiff::Timestamp::now().to_string();
    let line = move |index: usize, count: i64| json!({"sku": codes[index], "onHand": count, "asOf": at});
    let older = move |mut line: Value| {
        line["asOf"] = "2000-01-01T00:00:00Z".into();
        line
    };
    // Out of order, twice on one page, again on the next one with an older count, with a byte order mark.
    stage.warehouse.answer(move |n, asked, _| {
        let pages = [
            (vec![line(7, 11), line(3, 11), line(7, 11)], Some("b")),
            (vec![], Some("c")),
            (
                (0..N).filter(|index| ![3, 7].contains(index)).map(|index| line(index, 11)).collect(),
                Some("d"),
            ),
            (vec![line(0, 11), older(line(1, 99))], None),
        ];
        assert_eq!(asked.limit, 4);
        let (items, next) = pages[n].clone();
        format!("\u{feff}{}", json!({"items": items, "next": next}))
    });
    let limits = Limits { max_age: Duration::from_secs(3600 * 24 * 365 * 100), ..LIMITS() };
    let summary = stage.reconcile_with(limits, ANY).await;
    let told = (summary.completed, summary.pages, summary.lines, summary.skus, summary.duplicates);
    assert_eq!(told, (1, 4, 15, 12, 3));
    stage.all_are_booked().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_line_is_told_and_loses_no_other() {
    let stage = Stage::counted_anew().await;
    stage.warehouse.answer(|_, _, mut page| {
        page["items"][1]["onHand"] = (-3).into();
        page["items"][2]["onHand"] = 2.5.into();
        page["items"][3]["asOf"] = "2199-01-01T00:00:00Z".into();
        Json(page)
    });
    let summary = stage.walked().await;
    assert_eq!((summary.completed, summary.invalid, summary.missing, summary.booked), (1, 9, 9, 3));
    let reasons =
        stage.rows("select distinct reason from reconcile_finding where kind = 'invalid' order by 1").await;
    let reasons: Vec<_> = reasons.iter().map(|row| row["reason"].as_str().unwrap()).collect();
    assert_eq!(
        reasons,
        ["asOf is in the future", "onHand is below 0", "onHand is not a whole number of units"]
    );
    let on_hand = stage.on_hand().await;
    assert_eq!(on_hand, [11, 10, 10, 10, 11, 10, 10, 10, 11, 10, 10, 10]);
}

#[tokio::test]
async fn an_inventory_at_an_address_of_our_own_network_is_not_asked_for() {
    let stage = Stage::counted_anew().await;
    let mut reconciler = stage.reconciler(hasty(), ANY);
    reconciler.guard = shared::delivery::address::Guard::default();
    let deadline = tokio::time::Instant::now() + crate::support::PATIENCE;
    let summary = reconciler.run_once(reconcile::Request::default(), deadline).await.unwrap();
    assert!(summary.errors[0].error.contains("the address must be"), "{summary:?}");
    assert_eq!(stage.warehouse.asked(), []);
}
