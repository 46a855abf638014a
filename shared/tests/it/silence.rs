//! Sessions whose client falls silent, as a frozen sandbox does: its sockets stay open, and its kernel answers nothing.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testing::{TestDb, python};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/silent_client.py");
/// A retry is promised to run after 15 s; this leaves room for a slow machine.
const GONE_WITHIN: Duration = Duration::from_secs(40);
/// Longer than keepalives that are meant for vanished clients would let a session live.
const FROZEN_FOR: Duration = Duration::from_secs(15);

struct Client {
    process: Child,
    session: i32,
}

impl Client {
    /// Has fallen silent in this state; `None` without Python.
    fn silent(db: &TestDb, state: &str) -> Option<Self> {
        let url = reqwest::Url::parse(&db.app_url).unwrap();
        let (host, port) = (url.host_str().unwrap().to_owned(), url.port().unwrap_or(5432).to_string());
        let mut process = Command::new(python()?)
            .args([SCRIPT, &host, &port, "holdfast_app", db.name(), state])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let session = line(&mut process).parse().unwrap();
        Some(Self { process, session })
    }

    async fn is_connected(&self, db: &TestDb) -> bool {
        let sql = "select exists (select from pg_stat_activity where pid = $1)";
        sqlx::query_scalar(sql).bind(self.session).fetch_one(&mut db.owner().await).await.unwrap()
    }

    /// What a query gives once the client can be heard again.
    fn heard(mut self) -> String {
        self.process.stdin.take().unwrap().write_all(b"\n").unwrap();
        let said = line(&mut self.process);
        self.process.wait().unwrap();
        said
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// One line; the client prints one at a time.
fn line(process: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// The script speaks to servers that ask for no password, as the one of `cargo xtask test` does.
async fn takes_any_password(db: &TestDb) -> bool {
    let asks = "select exists (select from pg_hba_file_rules where auth_method <> 'trust' and type = 'host')";
    let asks: bool = db.scalar(asks).await;
    if asks {
        testing::left_out("the server asks for passwords, and the silent client knows none");
    }
    !asks
}

#[tokio::test]
async fn a_session_that_holds_something_ends_and_an_idle_one_lives_when_their_clients_fall_silent() {
    let db = TestDb::create().await;
    if !takes_any_password(&db).await {
        return;
    }
    let states = ["idle", "transaction", "message"];
    let [Some(idle), Some(transaction), Some(message)] = states.map(|state| Client::silent(&db, state))
    else {
        return;
    };
    let begun = Instant::now();
    for holding in [&transaction, &message] {
        while holding.is_connected(&db).await {
            assert!(begun.elapsed() < GONE_WITHIN, "session {} lives on", holding.session);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    tokio::time::sleep(FROZEN_FOR.saturating_sub(begun.elapsed())).await;
    assert!(idle.is_connected(&db).await, "an idle session ended with its sandbox's freeze");
    assert_eq!(idle.heard(), "heard");
    assert_ne!(transaction.heard(), "heard");
    assert_ne!(message.heard(), "heard");
}
