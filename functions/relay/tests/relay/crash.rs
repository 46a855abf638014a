//! Relays that die, freeze, or get an event that kills them. To kill means here to drop the relay's future: it runs no
//! further, and its sockets close. `runtime` kills the real process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use relay::Limits;
use testing::{Seed, TestDb};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::support::{PATIENCE, Partner, ToStatus, drain, eager, hasty, relay, relay_with, rows, until};

/// Runs a relay until `killed` is called or it has nothing left to do. Returns whether it was killed; then its leases have
/// expired.
async fn run_until_killed(db: &TestDb, killed: &Notify) -> bool {
    const ATTEMPTS: &str = "select sum(attempts) from outbox";
    let before: i64 = db.scalar(ATTEMPTS).await;
    let relay = relay_with(db, Limits { retry_unit: Duration::from_millis(1), ..eager() });
    let call = async {
        killed.notified().await;
        // A request of an earlier relay may have been on its way: it is not this one's.
        while db.scalar::<i64>(ATTEMPTS).await == before {
            killed.notified().await;
        }
    };
    tokio::select! {
        summary = relay.run_once(Duration::from_secs(1), Instant::now() + PATIENCE * 2) => {
            summary.unwrap();
            return false;
        }
        () = call => {}
        () = tokio::time::sleep(PATIENCE) => panic!("neither killed nor done"),
    }
    drop(relay);
    until(db, "select not exists (select from pg_stat_activity where datname = current_database() and usename = 'holdfast_worker')").await;
    db.execute(
        "update outbox set leased_until = leased_until - interval '1 h', next_attempt_at = next_attempt_at - interval '1 h'
         where lease_token is not null",
    )
    .await;
    true
}

#[tokio::test]
async fn a_relay_killed_twelve_times_in_mid_batch_dead_letters_nothing_that_is_deliverable() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let killed = Arc::new(Notify::new());
    let kill = Arc::clone(&killed);
    // Kills the calling relay as soon as one request of the batch has arrived.
    let partner = Partner::start(move |_| {
        kill.notify_one();
        std::future::pending::<axum::response::Response>()
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 20).await;
    for kill in 1..=12 {
        assert!(run_until_killed(&db, &killed).await, "kill {kill} did not come");
    }
    let attempts: Vec<i32> = rows(&db).await.iter().map(|row| row.attempts).collect();
    // The first kill cost all twenty an attempt, every later one a single row, never the same twice.
    assert_eq!(attempts.iter().sum::<i32>(), 20 + 11, "{attempts:?}");
    assert!(attempts.iter().all(|attempts| *attempts <= 2), "{attempts:?}");

    partner.answer(|_| async { 200.to_status() });
    let summary = drain(&relay(&db)).await;
    assert_eq!((summary.delivered, summary.dead_lettered), (20, 0));
}

#[tokio::test]
async fn an_event_that_kills_the_relay_each_time_is_dead_lettered_alone() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let killed = Arc::new(Notify::new());
    let kill = Arc::clone(&killed);
    let partner = Partner::start(move |received| {
        let kill = Arc::clone(&kill);
        async move {
            if received.n() == 7 {
                kill.notify_one();
                std::future::pending::<()>().await;
            }
            200.to_status()
        }
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.execute("update destination set max_attempts = 5").await;
    db.emit(&tenant, 20).await;
    let mut kills = 0;
    while run_until_killed(&db, &killed).await {
        kills += 1;
        assert!(kills <= 5, "still killed after its last attempt");
        db.emit(&tenant, 1).await; // there is always other work, and it is done
    }
    assert_eq!(kills, 5);
    let rows = rows(&db).await;
    let (dead, others): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.dead);
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].id, dead[0].attempts), (7, 5));
    assert!(dead[0].last_error.as_ref().unwrap().contains("did not survive"), "{dead:?}");
    assert_eq!(others.len(), 24);
    // The others of the first batch lost one attempt and nothing more.
    assert!(others.iter().all(|row| row.processed && row.attempts <= 2), "{others:?}");
}

#[tokio::test]
async fn a_lost_row_is_claimed_alone_and_other_work_goes_first() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::start(|_| async {
        tokio::time::sleep(Duration::from_millis(40)).await;
        200.to_status()
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 30).await;
    db.execute(
        "update outbox set attempts = 1, lease_token = gen_random_uuid(), leased_until = now() - interval '1 s',
         next_attempt_at = now() where id <= 3",
    )
    .await;
    assert_eq!(drain(&relay_with(&db, Limits::default())).await.delivered, 30);
    let received = partner.received();
    for (place, lost) in received.iter().enumerate().filter(|(_, received)| received.id() <= 3) {
        assert!(place >= 27, "row {} went as number {place}", lost.id());
        // Each request takes 40 ms: any that came within 40 ms of it was in flight with it.
        let beside = received.iter().filter(|other| {
            let apart = other.at.max(lost.at) - other.at.min(lost.at);
            other.id() != lost.id() && apart < Duration::from_millis(35)
        });
        assert_eq!(beside.count(), 0, "row {} was not alone", lost.id());
    }
}

#[tokio::test]
async fn lost_rows_and_new_work_take_turns() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let (under_way, accompanied) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let accompanied_seen = Arc::clone(&accompanied);
    let partner = Partner::start(move |received| {
        let (under_way, accompanied) = (Arc::clone(&under_way), Arc::clone(&accompanied));
        async move {
            let before = under_way.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(5)).await;
            let after = under_way.fetch_sub(1, Ordering::SeqCst);
            if received.id() <= 10 && (before, after) != (0, 1) {
                accompanied.fetch_add(1, Ordering::SeqCst);
            }
            200.to_status()
        }
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 600).await;
    db.execute(
        "update outbox set attempts = 1, lease_token = gen_random_uuid(), leased_until = now() - interval '1 s',
         next_attempt_at = now() where id <= 10",
    )
    .await;
    let limits = Limits { in_flight_each: 4, ..eager() };
    assert_eq!(drain(&relay_with(&db, limits)).await.delivered, 600);
    let order: Vec<bool> = partner.received().iter().map(|received| received.id() <= 10).collect();
    let first_lost = order.iter().position(|lost| *lost).unwrap();
    let last_lost = order.iter().rposition(|lost| *lost).unwrap();
    assert_eq!(accompanied_seen.load(Ordering::SeqCst), 0, "lost rows that were not alone");
    assert!(first_lost > 0, "other work goes first");
    assert!(last_lost < 599, "lost rows waited for all other work");
    assert!(
        order.windows(2).all(|pair| pair != [true, true]),
        "two lost rows without other work between them"
    );
}

#[tokio::test]
async fn a_relay_paused_past_its_lease_settles_nothing() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let partner = Partner::start(|_| async {
        tokio::time::sleep(Duration::from_millis(400)).await;
        200.to_status()
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 1).await;
    // The lease expires before the answer comes: for the outbox the same as a pause between answer and settlement.
    let paused = Limits { lease: Duration::from_millis(150), ..eager() };
    let summary = drain(&relay_with(&db, paused)).await;
    assert_eq!((summary.claimed, summary.delivered, summary.failed), (1, 0, 0));
    let row = &rows(&db).await[0];
    assert!(!row.processed && !row.dead && row.attempts == 1, "{row:?}");

    // Nor does it settle when another relay holds the row by then: the second delivery counts.
    db.execute("update outbox set next_attempt_at = now()").await;
    assert_eq!(drain(&relay(&db)).await.delivered, 1);
    let row = &rows(&db).await[0];
    assert!(row.processed && row.attempts == 2, "{row:?}");
    assert_eq!(partner.ids(), [1, 1]);
}

async fn told(notify: &Notify) {
    tokio::time::timeout(PATIENCE, notify.notified()).await.unwrap();
}

#[tokio::test]
async fn a_relay_that_wakes_up_while_another_holds_its_row_settles_nothing() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let (first_may_answer, second_came) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (may_answer, came) = (Arc::clone(&first_may_answer), Arc::clone(&second_came));
    let calls = Arc::new(AtomicUsize::new(0));
    // The first attempt is answered 200 during the second one; the second is answered 500 when the first relay is done.
    let (first_done, may_fail) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let fail = Arc::clone(&may_fail);
    let partner = Partner::start(move |_| {
        let (may_answer, came, fail) = (Arc::clone(&may_answer), Arc::clone(&came), Arc::clone(&fail));
        let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                may_answer.notified().await;
                return 200.to_status();
            }
            came.notify_one();
            fail.notified().await;
            500.to_status()
        }
    })
    .await;
    db.destination(&tenant, &partner.url, &["*"]).await;
    db.emit(&tenant, 1).await;
    let patient = Limits { attempt: PATIENCE, ..hasty() };
    let (sleeper, done) = (relay_with(&db, patient), Arc::clone(&first_done));
    let sleeper = tokio::spawn(async move {
        let summary = drain(&sleeper).await;
        done.notify_one();
        summary
    });
    until(&db, "select bool_and(attempts = 1 and leased_until < now()) from outbox").await;
    db.execute("update outbox set next_attempt_at = now()").await;
    let other = relay_with(&db, Limits { lease: PATIENCE, ..patient });
    let other = tokio::spawn(async move { drain(&other).await });
    told(&second_came).await;
    first_may_answer.notify_one();
    told(&first_done).await;
    assert!(!rows(&db).await[0].processed);
    may_fail.notify_one();
    assert_eq!(sleeper.await.unwrap().delivered, 0);
    assert_eq!(other.await.unwrap().failed, 1);
    let row = &rows(&db).await[0];
    assert!(!row.processed && !row.leased && row.attempts == 2, "{row:?}");
}

#[tokio::test]
async fn a_lost_row_of_a_destination_that_hangs_does_not_hold_up_the_lost_rows_of_others() {
    let db = TestDb::create().await;
    let tenant = db.seed(Seed::default()).await;
    let hanging = Partner::start(|_| std::future::pending::<axum::response::Response>()).await;
    let content = Partner::content().await;
    db.destination(&tenant, &hanging.url, &["*"]).await;
    db.emit(&tenant, 10).await;
    db.execute("update destination set event_types = '{none}'").await;
    db.destination(&tenant, &content.url, &["*"]).await;
    db.emit(&tenant, 5).await;
    db.execute(
        "update outbox set attempts = 1, lease_token = gen_random_uuid(), leased_until = now() - interval '1 s',
         next_attempt_at = now() - interval '1 s' + make_interval(secs => id / 100.0)",
    )
    .await;
    drain(&relay_with(&db, Limits { attempt: Duration::from_secs(1), ..eager() })).await;
    let before = hanging.received().iter().filter(|r| r.at < content.received()[4].at).count();
    assert_eq!(before, 1, "attempts at the hanging one before the others were through");
    assert!(rows(&db).await.iter().all(|row| !row.leased));
}
