//! A small TCP proxy before the database, for faults on the wire: cut, refuse, go silent, lose an answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::TestDb;
use shared::idempotency::endpoint::Endpoint;
use shared::runtime::config::DatabaseConfig;

/// What the proxy does with connections, old and new.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    /// Passes bytes on.
    Pass,
    /// Closes at once.
    Refuse,
    /// Accepts, and passes nothing on in either direction.
    Silent,
}

struct Shared {
    upstream: String,
    mode: watch::Sender<Mode>,
    /// Counts cuts: a connection ends when it changes.
    cuts: watch::Sender<u32>,
    /// Answers until one is lost; 0 loses none.
    until_lost: AtomicU32,
    /// Whether that one takes its connection with it, or the whole network falls silent.
    then_silent: AtomicBool,
}

/// The proxy; ends when dropped.
pub struct Proxy {
    shared: Arc<Shared>,
    port: u16,
    task: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
        self.task.abort();
    }
}

impl Proxy {
    /// Stands before the test server.
    pub async fn before(db: &TestDb) -> Self {
        let url = reqwest::Url::parse(&db.app_url).unwrap();
        let upstream = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            upstream,
            mode: watch::Sender::new(Mode::Pass),
            cuts: watch::Sender::new(0),
            until_lost: AtomicU32::new(0),
            then_silent: AtomicBool::new(false),
        });
        let task = tokio::spawn(serve(listener, shared.clone()));
        Self { shared, port, task }
    }

    /// A sandbox whose connection goes through here.
    pub fn endpoint(&self, db: &TestDb) -> Endpoint {
        let mut url = reqwest::Url::parse(&db.app_url).unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(self.port)).unwrap();
        Endpoint::new(&super::auth_config(), &DatabaseConfig { url: url.into(), ..db.app_config() }).unwrap()
    }

    /// Ends every connection that stands.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The server went away: connections end, new ones are closed at once.
    pub fn refuse(&self) {
        self.shared.mode.send_replace(Mode::Refuse);
        self.cut();
    }

    /// The network went silent: nothing arrives, nothing is refused.
    pub fn fall_silent(&self) {
        self.shared.mode.send_replace(Mode::Silent);
    }

    /// All is well again.
    pub fn recover(&self) {
        self.shared.mode.send_replace(Mode::Pass);
    }

    /// The `nth` answer of the server from now on is lost, and its connection with it: what it committed stands.
    pub fn lose_answer(&self, nth: u32) {
        self.shared.then_silent.store(false, Ordering::SeqCst);
        self.shared.until_lost.store(nth, Ordering::SeqCst);
    }

    /// The `nth` answer of the server from now on is the last that arrives; then the network is silent, and the server
    /// is told nothing. What arrived after that arrives when it recovers.
    pub fn fall_silent_after(&self, nth: u32) {
        self.shared.then_silent.store(true, Ordering::SeqCst);
        self.shared.until_lost.store(nth, Ordering::SeqCst);
    }

    /// Whether the answer asked for in [`Proxy::lose_answer`] was lost.
    pub fn lost_it(&self) -> bool {
        self.shared.until_lost.load(Ordering::SeqCst) == 0
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        if *shared.mode.borrow() != Mode::Refuse {
            tokio::spawn(connection(client, shared.clone()));
        }
    }
}

async fn connection(mut client: TcpStream, shared: Arc<Shared>) {
    let (mut cuts, mut mode) = (shared.cuts.subscribe(), shared.mode.subscribe());
    let mut server = TcpStream::connect(&shared.upstream).await.unwrap();
    let (mut asked, mut answered) = (vec![0; 16 * 1024], vec![0; 16 * 1024]);
    loop {
        let silent = *mode.borrow_and_update() == Mode::Silent;
        tokio::select! {
            _ = cuts.changed() => return,
            _ = mode.changed() => {}
            read = client.read(&mut asked), if !silent => match read {
                Ok(n) if n > 0 && server.write_all(&asked[..n]).await.is_ok() => {}
                _ => return,
            },
            read = server.read(&mut answered), if !silent => match read {
                Ok(n) if n > 0 => {
                    let left = shared.until_lost.load(Ordering::SeqCst);
                    shared.until_lost.store(left.saturating_sub(1), Ordering::SeqCst);
                    let silent = left == 1 && shared.then_silent.load(Ordering::SeqCst);
                    if (left == 1 && !silent) || client.write_all(&answered[..n]).await.is_err() {
                        return;
                    }
                    if silent {
                        shared.mode.send_replace(Mode::Silent);
                    }
                }
                _ => return,
            },
        }
    }
}
