//! A proxy in front of the database that reads the messages of the PostgreSQL protocol: it counts them and lets a fault
//! strike at a certain message. Faults of the whole network are [`super::Proxy`]'s.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::TestDb;
use shared::idempotency::endpoint::Endpoint;
use shared::runtime::config::DatabaseConfig;

/// A message's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Toward {
    /// From the function: `Q` Query, `P` Parse, `B` Bind, `E` Execute, `S` Sync.
    Server,
    /// From the server: `Z` ReadyForQuery, `D` DataRow, `C` CommandComplete.
    Client,
}

/// What a fault does to its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The message does not arrive, and both sides see the connection closed.
    WithholdAndClose,
    /// The message arrives, and then both sides see the connection closed.
    ForwardAndClose,
    /// Neither the message arrives nor anything after it, in either direction; both sides see the connection open.
    Withhold,
}

#[derive(Clone, Copy, Debug)]
struct Fault {
    toward: Toward,
    message: u8,
    /// Messages of this kind that pass before it strikes.
    after: usize,
    action: Action,
}

const POSTGRES_PORT: u16 = 5432;

/// State of all connections.
struct Shared {
    upstream: String,
    fault: Mutex<Option<Fault>>,
    queries: AtomicUsize,
    syncs: AtomicUsize,
    ready: AtomicUsize,
    struck: watch::Sender<bool>,
}

/// Accepts no more connections once it is dropped.
pub struct Wire {
    shared: Arc<Shared>,
    port: u16,
    task: JoinHandle<()>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wire {
    /// Starts a proxy in front of the server that functions connect to: the test server, or the pooler under test.
    pub async fn before(db: &TestDb) -> Self {
        let url = reqwest::Url::parse(db.app_config().url.given().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            upstream: format!("{}:{}", url.host_str().unwrap(), url.port().unwrap_or(POSTGRES_PORT)),
            fault: Mutex::new(None),
            queries: AtomicUsize::new(0),
            syncs: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
            struck: watch::Sender::new(false),
        });
        let task = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { shared, port, task }
    }

    /// A sandbox that connects through this proxy.
    pub fn endpoint(&self, db: &TestDb) -> Endpoint {
        self.endpoint_with(db, db.app_config().idle_check_secs)
    }

    /// The same; `idle_check_secs` is how long its connection may be idle before the next request checks that it is alive.
    pub fn endpoint_with(&self, db: &TestDb, idle_check_secs: u64) -> Endpoint {
        let mut url = reqwest::Url::parse(&db.app_url).unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(self.port)).unwrap();
        // The messages must be readable.
        url.query_pairs_mut().append_pair("sslmode", "disable");
        let config = DatabaseConfig { url: url.as_str().into(), idle_check_secs, ..db.app_config() };
        Endpoint::new(&super::auth_config(), &config).unwrap()
    }

    /// Sets a fault that strikes once: at the `nth` (from 1) message of this kind, counted over all connections from now on.
    pub fn strike(&self, toward: Toward, message: char, nth: usize, action: Action) {
        self.shared.struck.send_replace(false);
        let message = u8::try_from(message).unwrap();
        *self.shared.fault.lock().unwrap() = Some(Fault { toward, message, after: nth - 1, action });
    }

    /// Waits for the fault.
    pub async fn struck(&self) {
        self.shared.struck.subscribe().wait_for(|struck| *struck).await.unwrap();
    }

    /// Whether the fault has struck.
    pub fn has_struck(&self) -> bool {
        *self.shared.struck.borrow()
    }

    /// Returns the counts since the last call.
    pub fn take_counts(&self) -> Counts {
        Counts {
            asked: self.shared.queries.swap(0, Ordering::SeqCst)
                + self.shared.syncs.swap(0, Ordering::SeqCst),
            answered: self.shared.ready.swap(0, Ordering::SeqCst),
        }
    }
}

/// Counted messages; equal numbers mean that every request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Query and Sync: each asks for one ReadyForQuery.
    pub asked: usize,
    /// ReadyForQuery.
    pub answered: usize,
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(connection(client, Arc::clone(&shared)));
    }
}

async fn connection(client: TcpStream, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(&shared.upstream).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Set by `Action::Withhold`: nothing passes any more, and the sockets stay open.
    let silent = watch::Sender::new(false);
    tokio::select! {
        () = pump(from_client, to_server, Toward::Server, &shared, &silent) => {}
        () = pump(from_server, to_client, Toward::Client, &shared, &silent) => {}
    }
}

/// Passes messages on until one side closes or a fault strikes.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    toward: Toward,
    shared: &Shared,
    silent: &watch::Sender<bool>,
) {
    let mut startup = toward == Toward::Server;
    let mut silenced = silent.subscribe();
    loop {
        let frame = tokio::select! {
            biased;
            _ = async { silenced.wait_for(|silent| *silent).await.is_ok() } => return std::future::pending().await,
            frame = read_frame(&mut from, startup) => frame,
        };
        let Ok(frame) = frame else { return };
        let message = if startup { 0 } else { frame[0] };
        startup = false;
        match (toward, message) {
            (Toward::Server, b'Q') => shared.queries.fetch_add(1, Ordering::SeqCst),
            (Toward::Server, b'S') => shared.syncs.fetch_add(1, Ordering::SeqCst),
            (Toward::Client, b'Z') => shared.ready.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
        let action = shared.due(toward, message);
        if matches!(action, None | Some(Action::ForwardAndClose)) && to.write_all(&frame).await.is_err() {
            return;
        }
        match action {
            None => {}
            Some(Action::Withhold) => {
                silent.send_replace(true);
                shared.struck.send_replace(true);
                return std::future::pending().await;
            }
            Some(Action::WithholdAndClose | Action::ForwardAndClose) => {
                shared.struck.send_replace(true);
                return;
            }
        }
    }
}

impl Shared {
    /// The action of the fault, if it strikes at this message.
    fn due(&self, toward: Toward, message: u8) -> Option<Action> {
        let mut waiting = self.fault.lock().unwrap();
        let fault = waiting.as_mut().filter(|f| f.toward == toward && f.message == message)?;
        if fault.after > 0 {
            fault.after -= 1;
            return None;
        }
        waiting.take().map(|fault| fault.action)
    }
}

/// One whole message with its header: a type byte, which a client's first message does not have, and four bytes of length.
async fn read_frame(from: &mut OwnedReadHalf, startup: bool) -> std::io::Result<Vec<u8>> {
    let mut frame = vec![0; if startup { 4 } else { 5 }];
    from.read_exact(&mut frame).await?;
    let at = frame.len() - 4;
    let length = u32::from_be_bytes(frame[at..].try_into().unwrap());
    let body = usize::try_from(length).unwrap() - 4;
    let start = frame.len();
    frame.resize(start + body, 0);
    from.read_exact(&mut frame[start..]).await?;
    Ok(frame)
}
