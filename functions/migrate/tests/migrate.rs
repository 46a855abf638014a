//! The function that a deploy invokes, on an empty and on a filled database.
#![expect(clippy::unwrap_used, reason = "in a test, a missing value is a failure")]

use std::time::Duration;

use holdfast::migrate::last_carried;
use migrate::{Config, Request, Summary, handle};
use testing::TestDb;
use testing::emulator::{Function, Sandbox};

fn config(db: &TestDb) -> Config {
    let roles = [db.app_url.as_str().into(), db.worker_url.as_str().into()];
    Config { owner: db.owner_url.as_str().into(), roles: Some(roles) }
}

/// A database that nothing was done to yet.
async fn empty() -> TestDb {
    let db = TestDb::create().await;
    db.execute("drop schema public cascade; drop schema holdfast cascade; create schema public").await;
    db
}

#[tokio::test]
async fn an_empty_database_is_told_of_and_then_migrated_and_a_second_time_nothing_happens() {
    let db = empty().await;
    let ask = async |request| handle(&config(&db), request).await.unwrap();
    let told = ask(Request { dry_run: true, ..Request::default() }).await;
    assert_eq!((told.from, told.to, told.migrated), (0, last_carried(), false));
    assert!(told.max_connections > 0);
    let done = ask(Request { set_passwords: true, ..Request::default() }).await;
    assert_eq!(done, Summary { migrated: true, ..told });
    let again = ask(Request::default()).await;
    assert_eq!((again.from, again.to, again.migrated), (last_carried(), last_carried(), true));
    assert_eq!(db.scalar::<i64>("select count(*) from position_audit").await, 0);
}

#[tokio::test]
async fn a_migration_that_somebody_stands_in_the_way_of_steps_back_and_is_done_when_they_are_gone() {
    let db = TestDb::create().await;
    let mut other = db.owner().await;
    const HELD: &str = "begin; select pg_advisory_xact_lock(hashtextextended('holdfast/functions', 0))";
    sqlx::raw_sql(HELD).execute(&mut other).await.unwrap();
    // Not pg_stat_activity: there a session that looks for a deadlock is, for a moment, not waiting.
    const WAITING: &str = "select from pg_locks where locktype = 'advisory' and not granted
        and database = (select oid from pg_database where datname = current_database())";
    let config = config(&db);
    let (done, ()) = tokio::join!(handle(&config, Request::default()), async {
        // It waits and gives up: while it pauses it holds nothing, so that requests pass.
        db.until(&format!("exists ({WAITING})")).await;
        db.until(&format!("not exists ({WAITING})")).await;
        sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    });
    let done = done.unwrap();
    assert!(done.migrated && done.retries >= 1, "{done:?}");
}

/// The deployed program, invoked as a deploy does.
#[tokio::test]
async fn the_program_answers_with_its_summary_and_fails_the_invocation_where_it_cannot() {
    let db = TestDb::create().await;
    let start = async |url: &str| {
        let function = Function::new("migrate", env!("CARGO_BIN_EXE_migrate")).env("OWNER_DATABASE_URL", url);
        Sandbox::start(&function).await.unwrap()
    };
    const AMPLE: Duration = Duration::from_secs(60);
    let answer = start(&db.owner_url).await.invoke("{}", AMPLE).await.unwrap();
    let answer = String::from_utf8(answer.payload.to_vec()).unwrap();
    assert!(answer.contains(r#""migrated":true"#), "{answer}");
    let nowhere = start("postgres://owner:secret@127.0.0.1:1/none").await.invoke("{}", AMPLE).await;
    let told = nowhere.unwrap_err().to_string();
    assert!(told.contains("cannot connect to the database") && !told.contains("secret"), "{told}");
}
