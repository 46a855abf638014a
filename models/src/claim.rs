//! The claim: several clients send requests under one key, and try again when they are told to or when they hear nothing.
//!
//! Steps are as coarse as PostgreSQL makes them under READ COMMITTED: a try-lock, a look at the key's row (a statement, with
//! a snapshot of its own), the work, the commit. A commit makes the row visible and then frees the two locks, one after the other. A
//! session can end at every point; its locks are freed one after the other, too.
//!
//! One thing is a matter of time and not of order: a session that ends frees both locks within 15 ms, that is, before anybody has
//! looked four times. (If the server took longer between the two, an equal retry could be told 422 after an attempt that
//! was rolled back. Nothing is recorded then, and the next try runs.)

use stateright::{Model, Property};

/// What a model can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// The lock of (tenant, key, fingerprint), which tells an equal request from another one.
    RequestLock,
    /// The lock of (tenant, key), without which two different requests run side by side.
    KeyLock,
    /// Looking in a statement that begins after the locks were tried: its snapshot must not be older than they are.
    FreshSnapshot,
    /// The further looks of a request that holds its own lock but not the key's.
    LookAgain,
    /// Recording the answer in the transaction of the work.
    OneTransaction,
    /// Locks that end with their session.
    LocksDieWithSession,
}

/// Which of two request bodies, that is, which fingerprint.
pub type Body = u8;

/// The clients' bodies, and how much may go wrong.
#[derive(Clone, Debug)]
pub struct Claim {
    /// One client per body.
    pub clients: Vec<Body>,
    /// Requests that each client sends at most.
    pub tries: u8,
    /// Sessions that may end before their work is done, and answers that may be lost.
    pub losses: u8,
    /// The step that is left out.
    pub without: Option<Step>,
}

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It ran: the recorded answer, or its replay.
    Done(Body),
    /// 409: an equal request runs.
    InUse,
    /// 422: the key belongs to another request.
    Reused,
}

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    TryRequestLock,
    TryKeyLock {
        looks: u8,
    },
    Look {
        looks: u8,
    },
    Work,
    Commit,
    /// Only without [`Step::OneTransaction`]: the work is committed, its answer is not.
    Record,
    /// The transaction is over, or the session is gone: what it holds is freed lock by lock.
    Ending {
        answer: Option<Answer>,
    },
}

/// One attempt of one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Session {
    client: usize,
    body: Body,
    phase: Phase,
    holds_request: bool,
    holds_key: bool,
    /// The row as it was when the session began. Only kept without [`Step::FreshSnapshot`].
    early: Option<Body>,
    lost: bool,
}

/// The database and everybody who talks to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    sessions: Vec<Session>,
    /// Tries that each client has left, and the last answer it got.
    clients: Vec<(u8, Option<Answer>)>,
    /// The key's row: the request whose answer is recorded.
    row: Option<Body>,
    /// How often the work was committed.
    executions: u8,
    /// The bodies for which work was ever committed or under way, as bits: what a 422 may refer to.
    worked: u8,
    losses: u8,
}

/// One step of one party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A client sends its request (again).
    Send(usize),
    /// The session takes its next step.
    Next(usize),
    /// The session's client is gone before the commit, or its answer is lost after it.
    Lose(usize),
    /// The session frees the lock of its request.
    FreeRequestLock(usize),
    /// The session frees the lock of the key.
    FreeKeyLock(usize),
}

/// Looks at the row before a request that holds only its own lock gives up.
const LOOKS: u8 = 4;

impl Claim {
    fn has(&self, step: Step) -> bool {
        self.without != Some(step)
    }

    fn next(&self, state: &mut State, at: usize) {
        let mut session = state.sessions[at].clone();
        let others =
            || state.sessions.iter().enumerate().filter(move |(other, _)| *other != at).map(|(_, s)| s);
        session.phase = match session.phase {
            Phase::TryRequestLock => {
                session.holds_request = self.has(Step::RequestLock)
                    && !others().any(|s| s.holds_request && s.body == session.body);
                // Without a lock of its own a request has to go by the key's alone.
                let goes_on = session.holds_request || !self.has(Step::RequestLock);
                if goes_on { Phase::TryKeyLock { looks: 1 } } else { Phase::Look { looks: 1 } }
            }
            Phase::TryKeyLock { looks } => {
                session.holds_key = !self.has(Step::KeyLock) || !others().any(|s| s.holds_key);
                Phase::Look { looks }
            }
            Phase::Look { looks } => {
                let row = if self.has(Step::FreshSnapshot) { state.row } else { session.early };
                let ending = |answer| Phase::Ending { answer: Some(answer) };
                match row {
                    Some(body) if body == session.body => ending(Answer::Done(body)),
                    Some(_) => ending(Answer::Reused),
                    None if session.holds_key => Phase::Work,
                    None if self.has(Step::RequestLock) && !session.holds_request => ending(Answer::InUse),
                    None if looks < LOOKS && self.has(Step::LookAgain) => {
                        Phase::TryKeyLock { looks: looks + 1 }
                    }
                    None => ending(Answer::Reused),
                }
            }
            Phase::Work => {
                state.worked |= 1 << session.body;
                Phase::Commit
            }
            Phase::Commit if self.has(Step::OneTransaction) => {
                state.executions += 1;
                state.row = Some(session.body);
                Phase::Ending { answer: Some(Answer::Done(session.body)) }
            }
            Phase::Commit => {
                state.executions += 1;
                Phase::Record
            }
            Phase::Record => {
                state.row = Some(session.body);
                Phase::Ending { answer: Some(Answer::Done(session.body)) }
            }
            Phase::Ending { answer } => {
                // Both locks are free: the answer leaves.
                state.clients[session.client].1 = answer;
                state.sessions.remove(at);
                return;
            }
        };
        state.sessions[at] = session;
    }

    /// Whether this session's last try has to wait, because another one is just ending: see the module's last paragraph.
    fn last_try_waits(state: &State, session: &Session) -> bool {
        let half_freed =
            |s: &Session| matches!(s.phase, Phase::Ending { .. }) && s.holds_key && !s.holds_request;
        session.phase == (Phase::TryKeyLock { looks: LOOKS }) && state.sessions.iter().any(half_freed)
    }

    /// Whether this client may send: no attempt of its own is alive, and it has no final answer.
    fn may_send(state: &State, client: usize) -> bool {
        let (tries, answer) = state.clients[client];
        tries > 0
            && matches!(answer, None | Some(Answer::InUse))
            && !state.sessions.iter().any(|s| s.client == client && !s.lost)
    }
}

impl Model for Claim {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            sessions: Vec::new(),
            clients: vec![(self.tries, None); self.clients.len()],
            row: None,
            executions: 0,
            worked: 0,
            losses: self.losses,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend((0..self.clients.len()).filter(|c| Self::may_send(state, *c)).map(Action::Send));
        for (at, session) in state.sessions.iter().enumerate() {
            let ending = matches!(session.phase, Phase::Ending { .. });
            let goes_on = !ending || !(session.holds_request || session.holds_key);
            if goes_on && !Self::last_try_waits(state, session) {
                actions.push(Action::Next(at));
            }
            if ending && (self.has(Step::LocksDieWithSession) || !session.lost) {
                actions.extend(session.holds_request.then_some(Action::FreeRequestLock(at)));
                actions.extend(session.holds_key.then_some(Action::FreeKeyLock(at)));
            }
            if state.losses > 0 && !session.lost {
                actions.push(Action::Lose(at));
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Send(client) => {
                let body = self.clients[client];
                let early = if self.has(Step::FreshSnapshot) { None } else { state.row };
                state.clients[client].0 -= 1;
                state.sessions.push(Session {
                    client,
                    body,
                    phase: Phase::TryRequestLock,
                    holds_request: false,
                    holds_key: false,
                    early,
                    lost: false,
                });
            }
            Action::Next(at) => self.next(&mut state, at),
            Action::Lose(at) => {
                state.losses -= 1;
                let session = &mut state.sessions[at];
                session.lost = true;
                session.phase = Phase::Ending { answer: None };
            }
            Action::FreeRequestLock(at) => state.sessions[at].holds_request = false,
            Action::FreeKeyLock(at) => state.sessions[at].holds_key = false,
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("executed at most once", |_, state: &State| state.executions <= 1),
            Property::always("works alone", |_, state: &State| {
                let working = |s: &&Session| matches!(s.phase, Phase::Work | Phase::Commit | Phase::Record);
                let workers = state.sessions.iter().filter(working).count();
                workers + usize::from(state.row.is_some()) <= 1
            }),
            Property::always("an answer is that of this request", |model: &Claim, state: &State| {
                let right = |(client, body): (usize, &Body)| match state.clients[client].1 {
                    Some(Answer::Done(done)) => done == *body && state.row == Some(done),
                    _ => true,
                };
                model.clients.iter().enumerate().all(right)
            }),
            Property::always("422 only where there was another request", |model: &Claim, state: &State| {
                let others = |body: Body| model.clients.iter().any(|other| *other != body);
                let told = |(client, body): (usize, &Body)| {
                    state.clients[client].1 != Some(Answer::Reused) || others(*body)
                };
                model.clients.iter().enumerate().all(told)
            }),
            Property::always("nothing is held when all is quiet", |model: &Claim, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                !actions.is_empty() || state.sessions.is_empty()
            }),
            // So that the others do not hold only because nothing happens.
            Property::sometimes("a retry gets its answer after a loss", |model: &Claim, state: &State| {
                let answered = |(_, answer): &(u8, _)| matches!(answer, Some(Answer::Done(_)));
                state.losses < model.losses && state.clients.iter().all(answered)
            }),
        ]
    }
}
