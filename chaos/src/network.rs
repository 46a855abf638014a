//! The network between the functions and PostgreSQL: a TCP proxy whose connections are cut, delayed or fall silent, one by
//! one or all at once.

use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

const BUFFER_BYTES: usize = 64 * 1024;
/// How long a connection of a silent network stays open at most; the kernel of a real one waits far longer.
const SILENT_FOR: Duration = Duration::from_secs(40);

/// What happens to one connection. A chunk is what one read brings: mostly one message, or several that were sent together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is closed at once.
    Cut,
    /// The next chunk towards the server is lost, and the connection.
    LoseRequest,
    /// Half of the next chunk towards the server arrives, then the connection is closed.
    HalfRequest,
    /// The next chunk towards the client is lost, and the connection.
    LoseAnswer,
    /// Half of the next chunk towards the client arrives, then the connection is closed.
    HalfAnswer,
    /// From now on nothing passes, and both sockets stay open.
    Silence,
    /// The next chunk towards the client is lost, and both sockets stay open.
    SilentAnswer,
    /// The next chunk towards the client arrives late.
    Delay(Duration),
}

struct Link {
    fault: Mutex<Option<Fault>>,
    struck: Notify,
}

impl Link {
    /// Takes the fault if it is one of these.
    fn take(&self, of: impl Fn(Fault) -> bool) -> Option<Fault> {
        let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if fault.is_some_and(of) { fault.take() } else { None }
    }
}

struct Shared {
    upstream: AtomicU16,
    links: Mutex<Vec<Weak<Link>>>,
    healthy: AtomicBool,
}

/// Ends its connections when dropped.
pub struct Network {
    shared: Arc<Shared>,
    /// Where the functions connect to.
    pub port: u16,
    task: JoinHandle<()>,
}

impl Drop for Network {
    fn drop(&mut self) {
        self.task.abort();
        self.strike_all(Fault::Cut);
    }
}

impl Network {
    /// A network in front of the server on this port of loopback.
    pub async fn before(server: u16) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            upstream: AtomicU16::new(server),
            links: Mutex::default(),
            healthy: AtomicBool::new(false),
        });
        let task = tokio::spawn(accept(listener, shared.clone()));
        Ok(Self { shared, port, task })
    }

    /// Strikes the connection that `choose` picks of those that are open, by their number.
    pub fn strike(&self, choose: impl FnOnce(usize) -> usize, fault: Fault) {
        let open = self.open();
        if !open.is_empty() && !self.shared.healthy.load(Ordering::SeqCst) {
            put(&open[choose(open.len()) % open.len()], fault);
        }
    }

    /// Strikes all connections.
    pub fn strike_all(&self, fault: Fault) {
        self.open().iter().for_each(|link| put(link, fault));
    }

    /// Ends all faults: connections that were struck are closed, new ones are left alone.
    pub fn heal(&self) {
        self.shared.healthy.store(true, Ordering::SeqCst);
        self.strike_all(Fault::Cut);
    }

    fn open(&self) -> Vec<Arc<Link>> {
        let mut links = self.shared.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| link.strong_count() > 0);
        links.iter().filter_map(Weak::upgrade).collect()
    }
}

fn put(link: &Link, fault: Fault) {
    *link.fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(fault);
    link.struck.notify_one();
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let link = Arc::new(Link { fault: Mutex::default(), struck: Notify::new() });
        shared.links.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&link));
        let upstream = shared.upstream.load(Ordering::SeqCst);
        tokio::spawn(async move {
            // A server that is down refuses the connection, as it would directly.
            if let Ok(server) = TcpStream::connect(("127.0.0.1", upstream)).await {
                let _ = pass(client, server, &link).await;
            }
        });
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, link: &Link) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut asked, mut answered) = (vec![0; BUFFER_BYTES], vec![0; BUFFER_BYTES]);
    loop {
        tokio::select! {
            () = link.struck.notified() => {
                if link.take(|fault| fault == Fault::Cut).is_some() {
                    return Ok(());
                }
                if link.take(|fault| fault == Fault::Silence).is_some() {
                    return silence(link).await;
                }
            }
            read = client.read(&mut asked) => {
                let n = read?;
                let fault = link.take(|fault| matches!(fault, Fault::LoseRequest | Fault::HalfRequest));
                if n == 0 || fault == Some(Fault::LoseRequest) {
                    return Ok(());
                }
                server.write_all(&asked[..if fault.is_some() { n / 2 } else { n }]).await?;
                if fault.is_some() {
                    return Ok(());
                }
            }
            read = server.read(&mut answered) => {
                let n = read?;
                if n == 0 {
                    return Ok(());
                }
                match link.take(|fault| !matches!(fault, Fault::LoseRequest | Fault::HalfRequest)) {
                    Some(Fault::LoseAnswer | Fault::Cut) => return Ok(()),
                    Some(Fault::SilentAnswer | Fault::Silence) => return silence(link).await,
                    Some(Fault::HalfAnswer) => {
                        client.write_all(&answered[..n / 2]).await?;
                        return Ok(());
                    }
                    Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
                    _ => {}
                }
                client.write_all(&answered[..n]).await?;
            }
        }
    }
}

/// Keeps both sockets open and passes nothing, until the network is healed.
async fn silence(link: &Link) -> std::io::Result<()> {
    let healed = async {
        loop {
            link.struck.notified().await;
            if link.take(|fault| fault == Fault::Cut).is_some() {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(SILENT_FOR, healed).await;
    Ok(())
}
