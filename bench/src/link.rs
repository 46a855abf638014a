//! A TCP proxy before the database: makes every message late by half a round trip each way, and reads along.
//!
//! One thread of its own that waits in `ppoll`, whose time-out is in nanoseconds, with the thread's timer slack set to
//! one: tokio's timers are a millisecond coarse, four times the delay wanted. Its own cost is measured and taken off
//! the delay; how long messages were really held under load is measured as well.

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

use super::wire::{Seen, Wire};

/// The thread looks at its stop sign at least this often.
const LOOK_UP: Duration = Duration::from_millis(50);
/// Before a full socket is tried again.
const FULL: Duration = Duration::from_micros(100);

/// What went through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Messages, of both directions.
    pub seen: Seen,
    /// Pieces passed on.
    pub parcels: u64,
    /// Time that they were held, summed.
    pub held: Duration,
}

/// The proxy; ends when dropped.
pub struct Link {
    /// On 127.0.0.1.
    pub port: u16,
    totals: Arc<Mutex<Totals>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Link {
    /// Stands before `upstream` on 127.0.0.1, holding every message for `each_way`.
    ///
    /// # Errors
    /// When it cannot listen.
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

    /// What went through since the last time this was asked.
    pub fn take(&self) -> Totals {
        std::mem::take(&mut *self.totals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of it has shown itself as broken connections.
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
        go_first();
        let mut buffer = vec![0; 64 * 1024];
        while !stop.load(Ordering::Relaxed) {
            let ready = self.wait();
            let mut totals = Totals::default();
            for (pair, readable) in self.pairs.iter_mut().zip(ready) {
                pair.receive(readable, &mut buffer, self.each_way);
                pair.pass_on(&mut totals);
            }
            self.pairs.retain(|pair| !pair.is_over());
            while let Ok((client, _)) = self.listener.accept() {
                // Refused upstream, the client sees its connection end.
                self.pairs.extend(Pair::open(client, self.upstream).ok());
            }
            if totals.parcels > 0 {
                let mut sum = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
                sum.add(&totals);
            }
        }
    }

    /// Waits until something can be read or is due; tells for each pair whether client and server can be read.
    fn wait(&self) -> Vec<[bool; 2]> {
        let mut fds = Vec::with_capacity(1 + 2 * self.pairs.len());
        fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        for pair in &self.pairs {
            fds.push(PollFd::new(pair.client.as_fd(), PollFlags::POLLIN));
            fds.push(PollFd::new(pair.server.as_fd(), PollFlags::POLLIN));
        }
        let due = self.pairs.iter().filter_map(Pair::due).min();
        let patience = due.map_or(LOOK_UP, |due| due.saturating_duration_since(Instant::now()).min(LOOK_UP));
        if poll(&mut fds, patience).is_err() {
            return Vec::new();
        }
        // Ended and failed connections show when read.
        let readable = |fd: &PollFd<'_>| fd.any().unwrap_or(true);
        fds[1..].chunks_exact(2).map(|pair| [readable(&pair[0]), readable(&pair[1])]).collect()
    }
}

/// A network does not wait for a CPU: where it is allowed (to root), this thread goes before others, so that a busy
/// machine delays messages less. Refused, it is later, which is measured.
#[cfg(target_os = "linux")]
fn go_first() {
    let _ = nix::sys::prctl::set_timerslack(1);
    let thread = nix::unistd::gettid().to_string();
    let _ = std::process::Command::new("renice")
        .args(["-n", "-15", "-p", &thread])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status();
}

#[cfg(target_os = "linux")]
fn poll(fds: &mut [PollFd<'_>], patience: Duration) -> nix::Result<i32> {
    nix::poll::ppoll(fds, Some(patience.into()), None)
}

/// Elsewhere `poll` knows milliseconds only: it spins, which costs a core but keeps the delay.
#[cfg(not(target_os = "linux"))]
fn poll(fds: &mut [PollFd<'_>], patience: Duration) -> nix::Result<i32> {
    let whole_ms = u16::try_from(patience.as_millis()).unwrap_or(u16::MAX);
    nix::poll::poll(fds, whole_ms)
}

impl Totals {
    fn add(&mut self, more: &Self) {
        self.seen.requests += more.seen.requests;
        self.seen.replies += more.seen.replies;
        self.seen.commits += more.seen.commits;
        self.seen.turns += more.seen.turns;
        self.parcels += more.parcels;
        self.held += more.held;
    }
}

/// Bytes on their way.
struct Parcel {
    received: Instant,
    due: Instant,
    bytes: Vec<u8>,
    sent: usize,
}

/// A client's connection and the one to the server that belongs to it.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    asked: VecDeque<Parcel>,
    answered: VecDeque<Parcel>,
    wire: Wire,
    /// One side has ended; what is on its way still arrives.
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
            asked: VecDeque::new(),
            answered: VecDeque::new(),
            wire: Wire::new(),
            closing: false,
            broken: false,
        })
    }

    fn due(&self) -> Option<Instant> {
        let heads = [self.asked.front(), self.answered.front()];
        heads.into_iter().flatten().map(|parcel| parcel.due).min()
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
                        self.wire.client_sent(&bytes);
                    } else {
                        self.wire.server_sent(&bytes);
                    }
                    let queue = if is_client { &mut self.asked } else { &mut self.answered };
                    queue.push_back(Parcel { received, due: received + each_way, bytes, sent: 0 });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.closing = true,
            }
        }
    }

    fn pass_on(&mut self, totals: &mut Totals) {
        for (queue, stream) in [(&mut self.asked, &mut self.server), (&mut self.answered, &mut self.client)] {
            while let Some(parcel) = queue.front_mut() {
                let now = Instant::now();
                if parcel.due > now {
                    break;
                }
                match stream.write(&parcel.bytes[parcel.sent..]) {
                    Ok(length) => parcel.sent += length,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        parcel.due = now + FULL;
                        break;
                    }
                    Err(_) => {
                        self.broken = true;
                        break;
                    }
                }
                if parcel.sent == parcel.bytes.len() {
                    totals.parcels += 1;
                    totals.held += now - parcel.received;
                    queue.pop_front();
                }
            }
        }
        if totals.parcels > 0 {
            let seen = self.wire.take();
            totals.add(&Totals { seen, ..Totals::default() });
        }
    }

    fn is_over(&self) -> bool {
        self.broken || (self.closing && self.asked.is_empty() && self.answered.is_empty())
    }
}
