//! A TCP proxy in front of the database, for network faults: connections that are cut or refused, a network that drops
//! everything, a lost answer. Faults at a certain message of the protocol are [`super::Wire`]'s.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::TestDb;
use shared::idempotency::endpoint::Endpoint;
use shared::runtime::config::DatabaseConfig;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Pass,
    /// Closes new connections at once.
    Refuse,
    /// Accepts connections and passes nothing on, in either direction.
    Silent,
}

/// State of all connections.
struct Shared {
    upstream: String,
    mode: watch::Sender<Mode>,
    /// Number of cuts; existing connections end when it changes.
    cuts: watch::Sender<u32>,
    /// The fault strikes at this answer from now on; 0 for never.
    until_lost: AtomicU32,
    /// The fault: the answer passes and then the network is silent; otherwise the answer and its connection are lost.
    then_silent: AtomicBool,
}

const BUFFER_BYTES: usize = 16 * 1024;
const POSTGRES_PORT: u16 = 5432;

/// Ends its connections when dropped.
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
    /// Starts a proxy in front of the test server.
    pub async fn before(db: &TestDb) -> Self {
        let url = reqwest::Url::parse(&db.app_url).unwrap();
        let upstream = format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(POSTGRES_PORT));
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

    /// A sandbox that connects through this proxy.
    pub fn endpoint(&self, db: &TestDb) -> Endpoint {
        let mut url = reqwest::Url::parse(&db.app_url).unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(self.port)).unwrap();
        Endpoint::new(&super::auth_config(), &DatabaseConfig { url: url.as_str().into(), ..db.app_config() })
            .unwrap()
    }

    /// Closes every existing connection.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// The server is down: connections are closed, new ones too.
    pub fn refuse(&self) {
        self.shared.mode.send_replace(Mode::Refuse);
        self.cut();
    }

    /// The network drops everything: nothing arrives, nothing is refused.
    pub fn fall_silent(&self) {
        self.shared.mode.send_replace(Mode::Silent);
    }

    /// Ends [`Proxy::refuse`] and [`Proxy::fall_silent`]; what was withheld arrives.
    pub fn recover(&self) {
        self.shared.mode.send_replace(Mode::Pass);
    }

    /// The server's `nth` answer from now on is lost together with its connection; what was committed stays committed.
    pub fn lose_answer(&self, nth: u32) {
        self.shared.then_silent.store(false, Ordering::SeqCst);
        self.shared.until_lost.store(nth, Ordering::SeqCst);
    }

    /// The server's `nth` answer from now on is the last that arrives; then the network drops everything, as by
    /// [`Proxy::fall_silent`].
    pub fn fall_silent_after(&self, nth: u32) {
        self.shared.then_silent.store(true, Ordering::SeqCst);
        self.shared.until_lost.store(nth, Ordering::SeqCst);
    }

    /// Whether the fault of [`Proxy::lose_answer`] has struck.
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
    let (mut asked, mut answered) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
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
