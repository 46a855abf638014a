//! A TCP proxy in front of the database that delays every message by half of the wanted round-trip time, and counts
//! messages.
//!
//! It runs on a thread of its own that waits in `ppoll`, whose timeout is in nanoseconds, with a timer slack of 1 ns:
//! tokio's timers have a resolution of a millisecond, four times the delay. The caller subtracts the proxy's own cost from
//! the delay. How long messages are really held under load is measured.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags};

use super::wire::{Counts, MessageCounter};

/// The thread checks at least this often whether it should stop.
const CHECK_STOP_EVERY: Duration = Duration::from_millis(50);
const FULL_PAUSE: Duration = Duration::from_micros(100);
const BUFFER_BYTES: usize = 64 * 1024;
/// Scheduling priority of the thread: well above normal (0), below the highest (-20).
#[cfg(target_os = "linux")]
const NICE: &str = "-15";

#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    pub counts: Counts,
    pub chunks: u64,
    /// Sum of the times that they were held.
    pub held: Duration,
}

/// Ends the proxy when dropped.
pub struct Link {
    /// On 127.0.0.1.
    pub port: u16,
    totals: Arc<Mutex<Totals>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Starts a proxy in front of port `upstream` of 127.0.0.1 that holds every message for `each_way`.
    pub fn before(upstream: u16, each_way: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let totals = Arc::new(Mutex::new(Totals::default()));
        let stop = Arc::new(AtomicBool::new(false));
        let proxy = Proxy { listener, upstream, each_way, pairs: Vec::new(), totals: totals.clone() };
        let stopped = stop.clone();
        let thread = std::thread::Builder::new()
            .name("link".into())
            .spawn(move || proxy.run(&stopped))
            .context("cannot start a thread")?;
        Ok(Self { port, totals, stop, thread: Some(thread) })
    }

    /// Returns the totals since the last call.
    pub fn take(&self) -> Totals {
        std::mem::take(&mut *self.totals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // After a panic its connections were broken, and the measurement has failed already.
            let _ = thread.join();
        }
    }
}

struct Proxy {
    listener: TcpListener,
    upstream: u16,
    each_way: Duration,
    pairs: Vec<Pair>,
    totals: Arc<Mutex<Totals>>,
}

impl Proxy {
    fn run(mut self, stop: &AtomicBool) {
        #[cfg(target_os = "linux")]
        raise_priority();
        let mut buffer = vec![0; BUFFER_BYTES];
        while !stop.load(Ordering::Relaxed) {
            let ready = self.wait();
            let mut totals = Totals::default();
            for (pair, readable) in self.pairs.iter_mut().zip(ready) {
                pair.receive(readable, &mut buffer, self.each_way);
                pair.pass_on(&mut totals);
            }
            self.pairs.retain(|pair| !pair.is_over());
            while let Ok((client, _)) = self.listener.accept() {
                // If the server refuses, the client sees its connection closed.
                self.pairs.extend(Pair::open(client, self.upstream).ok());
            }
            if totals.chunks > 0 {
                let mut sum = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
                sum.add(&totals);
            }
        }
    }

    /// Waits until something can be read or is due. Returns for each pair whether client and server can be read.
    fn wait(&self) -> Vec<[bool; 2]> {
        let mut fds = Vec::with_capacity(1 + 2 * self.pairs.len());
        fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        for pair in &self.pairs {
            fds.push(PollFd::new(pair.client.as_fd(), PollFlags::POLLIN));
            fds.push(PollFd::new(pair.server.as_fd(), PollFlags::POLLIN));
        }
        let due = self.pairs.iter().filter_map(Pair::due).min();
        let timeout = due.map_or(CHECK_STOP_EVERY, |due| {
            due.saturating_duration_since(Instant::now()).min(CHECK_STOP_EVERY)
        });
        if poll(&mut fds, timeout).is_err() {
            return Vec::new();
        }
        // Closed and failed connections count as readable: the read reports their state.
        let readable = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        fds[1..].chunks_exact(2).map(|pair| [readable(&pair[0]), readable(&pair[1])]).collect()
    }
}

/// Lets this thread run before others, as a network does not wait for a CPU. Only root may do that; otherwise messages are
/// held longer under load, which is measured.
#[cfg(target_os = "linux")]
fn raise_priority() {
    let _ = nix::sys::prctl::set_timerslack(1);
    let thread = nix::unistd::gettid().to_string();
    let _ = std::process::Command::new("renice")
        .args(["-n", NICE, "-p", &thread])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
}

#[cfg(target_os = "linux")]
fn poll(fds: &mut [PollFd<'_>], timeout: Duration) -> nix::Result<i32> {
    nix::poll::ppoll(fds, Some(timeout.into()), None)
}

/// Other systems have only `poll`, with milliseconds rounded down: it spins, which costs a core but keeps the delay.
#[cfg(not(target_os = "linux"))]
fn poll(fds: &mut [PollFd<'_>], timeout: Duration) -> nix::Result<i32> {
    let whole_ms = u16::try_from(timeout.as_millis()).unwrap_or(u16::MAX);
    nix::poll::poll(fds, whole_ms)
}

impl Totals {
    fn add(&mut self, more: &Self) {
        self.counts.requests += more.counts.requests;
        self.counts.replies += more.counts.replies;
        self.counts.commits += more.counts.commits;
        self.counts.round_trips += more.counts.round_trips;
        self.chunks += more.chunks;
        self.held += more.held;
    }
}

struct Chunk {
    received: Instant,
    due: Instant,
    bytes: Vec<u8>,
    sent: usize,
}

/// A client's connection and its connection to the server.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    to_server: VecDeque<Chunk>,
    to_client: VecDeque<Chunk>,
    counter: MessageCounter,
    /// One side is closed; what is in the queues is still passed on.
    closing: bool,
    broken: bool,
}

impl Pair {
    fn open(client: TcpStream, upstream: u16) -> std::io::Result<Self> {
        let server = TcpStream::connect(("127.0.0.1", upstream))?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
        }
        Ok(Self {
            client,
            server,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            counter: MessageCounter::new(),
            closing: false,
            broken: false,
        })
    }

    fn due(&self) -> Option<Instant> {
        let heads = [self.to_server.front(), self.to_client.front()];
        heads.into_iter().flatten().map(|chunk| chunk.due).min()
    }

    fn receive(&mut self, [from_client, from_server]: [bool; 2], buffer: &mut [u8], each_way: Duration) {
        for (readable, is_client) in [(from_client, true), (from_server, false)] {
            if !readable {
                continue;
            }
            let stream = if is_client { &mut self.client } else { &mut self.server };
            match stream.read(buffer) {
                Ok(0) => self.closing = true,
                Ok(length) => {
                    let bytes = buffer[..length].to_vec();
                    let received = Instant::now();
                    if is_client {
                        self.counter.client_sent(&bytes);
                    } else {
                        self.counter.server_sent(&bytes);
                    }
                    let queue = if is_client { &mut self.to_server } else { &mut self.to_client };
                    queue.push_back(Chunk { received, due: received + each_way, bytes, sent: 0 });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.closing = true,
            }
        }
    }

    fn pass_on(&mut self, totals: &mut Totals) {
        let to_server = (&mut self.to_server, &mut self.server);
        let to_client = (&mut self.to_client, &mut self.client);
        for (queue, stream) in [to_server, to_client] {
            while let Some(chunk) = queue.front_mut() {
                let now = Instant::now();
                if chunk.due > now {
                    break;
                }
                match stream.write(&chunk.bytes[chunk.sent..]) {
                    Ok(length) => chunk.sent += length,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        chunk.due = now + FULL_PAUSE;
                        break;
                    }
                    Err(_) => {
                        self.broken = true;
                        break;
                    }
                }
                if chunk.sent == chunk.bytes.len() {
                    totals.chunks += 1;
                    totals.held += now - chunk.received;
                    queue.pop_front();
                }
            }
        }
        if totals.chunks > 0 {
            let counts = self.counter.take();
            totals.add(&Totals { counts, ..Totals::default() });
        }
    }

    fn is_over(&self) -> bool {
        self.broken || (self.closing && self.to_server.is_empty() && self.to_client.is_empty())
    }
}
