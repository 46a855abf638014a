//! Clients that draw requests and repeat each under its key until they know its outcome, or give it up.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;
use testing::emulator::event;
use tokio::task::JoinSet;

use crate::fleet::{Fleet, Lost};
use crate::intent::{Intent, PATIENCE, Request, Told, Try};
use crate::requests::{Drawn, Numbers, Requests};
use crate::world::World;

/// The functions' time limit; the emulator kills a sandbox that exceeds it.
const TIMEOUT: Duration = Duration::from_secs(29);
/// Tries of one intention while there are faults.
const TRIES: usize = 8;

/// Everything that clients share.
pub struct Load {
    pub world: Arc<World>,
    pub fleet: Arc<Fleet>,
    pub seed: u64,
    pub start: Instant,
    asns: Numbers,
    channel_orders: Numbers,
    deliveries: Numbers,
    intents: Mutex<Vec<Intent>>,
    next_id: AtomicUsize,
    /// Set when no new intention is to begin.
    over: AtomicBool,
}

impl Load {
    pub fn new(world: Arc<World>, fleet: Arc<Fleet>, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            world,
            fleet,
            seed,
            start: Instant::now(),
            asns: Numbers::default(),
            channel_orders: Numbers::default(),
            deliveries: Numbers::default(),
            intents: Mutex::default(),
            next_id: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        })
    }

    /// No new intention begins.
    pub fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// Intentions so far.
    pub fn count(&self) -> usize {
        self.next_id.load(Ordering::SeqCst)
    }

    /// All intentions that have ended, in their order.
    pub fn intents(&self) -> Vec<Intent> {
        let mut intents = self.intents.lock().unwrap_or_else(PoisonError::into_inner).clone();
        intents.sort_by_key(|intent| intent.id);
        intents
    }

    /// One client's work until it is told to stop.
    pub async fn client(self: Arc<Self>, client: usize) -> Result<()> {
        let mut rng =
            StdRng::seed_from_u64(self.seed ^ (client as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        while !self.over.load(Ordering::SeqCst) {
            if let Some(request) = self.draw(&mut rng).await? {
                let intent = self.attempt(client, request, &mut rng).await;
                self.note(intent);
            }
            // People and systems pause; it also keeps a small machine from doing nothing but this.
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..30))).await;
        }
        Ok(())
    }

    fn note(&self, intent: Intent) {
        if let Some(order) =
            intent.answer().filter(|kept| intent.request.what == "create" && kept.status == 201)
            && let Some(id) = order.json()["id"].as_str().and_then(|id| id.parse().ok())
        {
            self.world.add_order(id);
        }
        self.intents.lock().unwrap_or_else(PoisonError::into_inner).push(intent);
    }

    async fn draw(&self, rng: &mut StdRng) -> Result<Option<Request>> {
        let requests = Requests {
            world: &self.world,
            seed: self.seed,
            asns: &self.asns,
            channel_orders: &self.channel_orders,
            deliveries: &self.deliveries,
        };
        let (function, path) = match requests.draw(rng)? {
            Drawn::Ready(request) => return Ok(Some(request)),
            Drawn::Save(order) => ("order-save", format!("/orders/{order}")),
            Drawn::SaveAt { read, function } => (function, read),
        };
        let token = format!("Bearer {}", self.world.tokens[0]);
        let read = event::http("GET", &path, &[("authorization", &token)], b"").to_string();
        let answer = tokio::time::timeout(PATIENCE, self.fleet.request("query", read, TIMEOUT)).await;
        Ok(match answer {
            Ok(Ok(answer)) if answer.status == 200 => {
                let document: Value = serde_json::from_slice(&answer.body)?;
                Some(requests.save(rng, function, path, &document))
            }
            _ => None,
        })
    }

    async fn attempt(&self, client: usize, request: Request, rng: &mut StdRng) -> Intent {
        let id = self.next_id.fetch_add(1, Ordering::SeqCst);
        let mut intent = Intent { id, client, request, tries: Vec::new(), given_up: false };
        for n in 0..TRIES {
            // A double click, or a proxy that repeats.
            let copies = if rng.random_bool(0.1) { 2 } else { 1 };
            intent.tries.extend(self.send(&intent.request, copies).await);
            if intent.answer().is_some() {
                // A repeat of what is done has to say the same.
                if rng.random_bool(0.1) {
                    intent.tries.extend(self.send(&intent.request, 1).await);
                }
                return intent;
            }
            if rng.random_bool(0.1) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(rng.random_range(20..200) << n.min(3))).await;
        }
        intent.given_up = true;
        intent
    }

    /// Sends equal requests side by side.
    async fn send(&self, request: &Request, copies: usize) -> Vec<Try> {
        let mut sent = JoinSet::new();
        for _ in 0..copies {
            let headers: Vec<_> =
                request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let event =
                event::http(request.method, &request.path, &headers, request.body.as_bytes()).to_string();
            let (fleet, function) = (self.fleet.clone(), request.function);
            sent.spawn(async move {
                let began = Instant::now();
                // The invocation goes on when the client no longer waits for it.
                let invoked = tokio::spawn(async move { fleet.request(function, event, TIMEOUT).await });
                let told = match tokio::time::timeout(PATIENCE, invoked).await {
                    Ok(Ok(Ok(answer))) => Told::of(&answer),
                    Ok(Ok(Err(Lost(why)))) => Told::Unknown(why),
                    Ok(Err(error)) => Told::Unknown(error.to_string()),
                    Err(_) => Told::Unknown("no answer in time".into()),
                };
                Try { sent: began, ended: Instant::now(), told }
            });
        }
        sent.join_all().await
    }

    /// Repeats every intention that was not given up until its outcome is known; the network is well again.
    pub async fn settle(self: &Arc<Self>) {
        let mut settling = JoinSet::new();
        let open: Vec<Intent> = {
            let mut intents = self.intents.lock().unwrap_or_else(PoisonError::into_inner);
            let (open, done) = std::mem::take(&mut *intents)
                .into_iter()
                // Senders of webhooks never give up.
                .partition(|intent: &Intent| {
                    intent.answer().is_none() && (!intent.given_up || intent.request.delivery.is_some())
                });
            *intents = done;
            open
        };
        for mut intent in open {
            let load = self.clone();
            settling.spawn(async move {
                for _ in 0..20 {
                    intent.tries.extend(load.send(&intent.request, 1).await);
                    if intent.answer().is_some() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                intent
            });
            if settling.len() >= 8
                && let Some(Ok(intent)) = settling.join_next().await
            {
                self.note(intent);
            }
        }
        while let Some(intent) = settling.join_next().await {
            if let Ok(intent) = intent {
                self.note(intent);
            }
        }
    }
}
