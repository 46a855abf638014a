//! The outbox: two events of one aggregate, owed to one ordered destination, and relays that come and go.
//!
//! Steps are transactions and calls. Where two transactions can miss each other's rows they are cut in two: what a
//! transaction has read, and its commit. A relay can die or freeze after every step; it never knows whether its lease still holds.

use stateright::{Model, Property};

/// What a model can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Writing the event in the transaction of the change.
    OneTransaction,
    /// Claiming rows whose lease ran out.
    ClaimLost,
    /// Settling only by the token of the claim, while the lease holds.
    CheckLease,
    /// The due time `infinity` of an event that is written behind another one.
    Wait,
    /// The sweep for heads that nobody woke. (Waking the next row when one has ended is for speed: the sweep alone would do.)
    Sweep,
    /// Counting the attempt when the row is claimed: an event that kills its relay has attempts, too.
    CountWhenClaimed,
}

/// How much happens.
#[derive(Clone, Debug)]
pub struct Outbox {
    /// Relays that work side by side.
    pub relays: usize,
    /// Attempts after which an event is a dead letter.
    pub max_attempts: u8,
    /// Relays that may die, and leases that may run out under a relay that is only slow.
    pub losses: u8,
    /// Whether the first event kills every relay that sends it.
    pub killer: bool,
    /// The step that is left out.
    pub without: Option<Step>,
}

/// The transaction of the change that an event tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Writer {
    Waiting,
    /// It holds the aggregate's row and has seen whether an earlier event is pending.
    Open {
        behind: bool,
    },
    /// Only without [`Step::OneTransaction`]: the change is committed, its event is not written.
    ChangeOnly {
        behind: bool,
    },
    Committed,
    RolledBack,
}

/// One row of the outbox. A lost row is a leased one whose lease is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Row {
    None,
    Free,
    Waits,
    Leased { token: u8, over: bool },
    Delivered,
    Dead,
}

impl Row {
    fn ended(self) -> bool {
        matches!(self, Self::Delivered | Self::Dead)
    }

    fn pending(self) -> bool {
        !self.ended() && self != Self::None
    }
}

/// What a relay does just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Relay {
    Idle,
    /// It has claimed the row and has not called yet.
    Claimed {
        event: usize,
        token: u8,
    },
    /// It has the destination's answer.
    Called {
        event: usize,
        token: u8,
        ok: bool,
    },
    /// Its settlement has ended the row and looked for a row to wake, and is not committed.
    Settling {
        event: usize,
        row: Row,
        wakes: bool,
    },
}

/// Events in the aggregate's order.
const EVENTS: usize = 2;

/// The database, the relays and the destination.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    writers: [Writer; EVENTS],
    rows: [Row; EVENTS],
    attempts: [u8; EVENTS],
    relays: Vec<Relay>,
    received: [bool; EVENTS],
    tokens: u8,
    losses: u8,
    /// Something that must never happen has happened.
    wrong: Option<&'static str>,
}

/// One step of one party.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The writer of this event begins.
    Write(usize),
    /// The writer commits; without [`Step::OneTransaction`] a change first and then its event.
    Commit(usize),
    /// The writer rolls back, or dies: what is not committed is gone.
    RollBack(usize),
    /// A relay claims this event.
    Claim(usize, usize),
    /// A relay calls the destination, which takes the event or fails.
    Call(usize, bool),
    /// A relay settles what it was answered.
    Settle(usize),
    /// A relay's settlement commits.
    CommitSettlement(usize),
    /// A relay dies.
    Die(usize),
    /// The lease of this event runs out.
    RunOut(usize),
    /// The sweep looks at the head of the queue.
    Sweep,
}

impl Outbox {
    fn has(&self, step: Step) -> bool {
        self.without != Some(step)
    }

    /// The first pending event: the head of the ordered queue.
    fn head(rows: &[Row; EVENTS]) -> Option<usize> {
        rows.iter().position(|row| row.pending())
    }

    fn commit(&self, state: &mut State, event: usize) {
        let event_row = |behind| if behind && self.has(Step::Wait) { Row::Waits } else { Row::Free };
        state.writers[event] = match state.writers[event] {
            Writer::Open { behind } if !self.has(Step::OneTransaction) => Writer::ChangeOnly { behind },
            Writer::Open { behind } | Writer::ChangeOnly { behind } => {
                state.rows[event] = event_row(behind);
                Writer::Committed
            }
            other => other,
        };
    }

    fn settle(&self, state: &mut State, relay: usize, event: usize, token: u8, ok: bool) {
        let held = state.rows[event] == (Row::Leased { token, over: false });
        if !held && self.has(Step::CheckLease) {
            state.relays[relay] = Relay::Idle;
            return;
        }
        if state.rows[event].ended() {
            state.wrong = Some("a result from an expired lease changed an event that had ended");
        }
        let last = state.attempts[event] >= self.max_attempts;
        let row = if ok {
            Row::Delivered
        } else if last {
            Row::Dead
        } else {
            Row::Free
        };
        // The row behind is woken if this transaction sees it.
        let wakes = row.ended() && state.rows[event + 1..].contains(&Row::Waits);
        state.relays[relay] = Relay::Settling { event, row, wakes };
    }

    fn wake(state: &mut State) {
        if let Some(head) = Self::head(&state.rows)
            && state.rows[head] == Row::Waits
        {
            state.rows[head] = Row::Free;
        }
    }

    fn claim(&self, state: &mut State, relay: usize, event: usize) {
        let counted = u8::from(self.has(Step::CountWhenClaimed));
        if matches!(state.rows[event], Row::Leased { .. }) && state.attempts[event] >= self.max_attempts {
            // Lost with its last attempt: the relay's sweep ends it and wakes the row behind.
            state.rows[event] = Row::Dead;
            Self::wake(state);
            return;
        }
        state.tokens += 1;
        state.attempts[event] += counted;
        state.rows[event] = Row::Leased { token: state.tokens, over: false };
        state.relays[relay] = Relay::Claimed { event, token: state.tokens };
    }

    fn call(&self, state: &mut State, relay: usize, ok: bool) {
        let Relay::Claimed { event, token } = state.relays[relay] else { return };
        if state.writers[event] != Writer::Committed {
            state.wrong = Some("an event arrived whose change did not commit");
        }
        if state.rows[..event].iter().any(|row| row.pending()) {
            state.wrong = Some("an event arrived before the one that it follows had ended");
        }
        state.received[event] |= ok;
        state.relays[relay] =
            if self.killer && event == 0 { Relay::Idle } else { Relay::Called { event, token, ok } };
    }
}

impl Model for Outbox {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            writers: [Writer::Waiting; EVENTS],
            rows: [Row::None; EVENTS],
            attempts: [0; EVENTS],
            relays: vec![Relay::Idle; self.relays],
            received: [false; EVENTS],
            tokens: 0,
            losses: self.losses,
            wrong: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        // The aggregate's row is locked: one writer after the other.
        let open = |w: &Writer| matches!(w, Writer::Open { .. } | Writer::ChangeOnly { .. });
        if !state.writers.iter().any(open) {
            actions.extend(state.writers.iter().position(|w| *w == Writer::Waiting).map(Action::Write));
        }
        for (event, _) in state.writers.iter().enumerate().filter(|(_, w)| open(w)) {
            actions.push(Action::Commit(event));
            // A change without its event: the writer may die between the two.
            actions.push(Action::RollBack(event));
        }
        let settling = |event| {
            state.relays.iter().any(|r| matches!(r, Relay::Settling { event: other, .. } if *other == event))
        };
        for (event, row) in state.rows.iter().enumerate().filter(|(event, _)| !settling(*event)) {
            let lost = matches!(row, Row::Leased { over: true, .. });
            if *row == Row::Free || (lost && self.has(Step::ClaimLost)) {
                let idle = state.relays.iter().position(|r| *r == Relay::Idle);
                actions.extend(idle.map(|relay| Action::Claim(relay, event)));
            }
            if let Row::Leased { token, over: false } = row {
                // Time passes for a lease whose relay is gone; one that is only slow costs a loss.
                let of_this = |r: &Relay| match r {
                    Relay::Claimed { token: t, .. } | Relay::Called { token: t, .. } => t == token,
                    _ => false,
                };
                if state.losses > 0 || !state.relays.iter().any(of_this) {
                    actions.push(Action::RunOut(event));
                }
            }
        }
        for (at, relay) in state.relays.iter().enumerate() {
            match relay {
                Relay::Idle => continue,
                Relay::Claimed { .. } => actions.extend([Action::Call(at, true), Action::Call(at, false)]),
                Relay::Called { event, .. } if !settling(*event) => actions.push(Action::Settle(at)),
                Relay::Called { .. } => {}
                Relay::Settling { .. } => actions.push(Action::CommitSettlement(at)),
            }
            if state.losses > 0 {
                actions.push(Action::Die(at));
            }
        }
        if self.has(Step::Sweep) && Self::head(&state.rows).is_some_and(|head| state.rows[head] == Row::Waits)
        {
            actions.push(Action::Sweep);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Write(event) => {
                let behind = state.rows[..event].iter().any(|row| row.pending());
                state.writers[event] = Writer::Open { behind };
            }
            Action::Commit(event) => self.commit(&mut state, event),
            Action::RollBack(event) => {
                if matches!(state.writers[event], Writer::ChangeOnly { .. }) {
                    state.wrong = Some("a change committed and its event did not");
                }
                state.writers[event] = Writer::RolledBack;
            }
            Action::Claim(relay, event) => self.claim(&mut state, relay, event),
            Action::Call(relay, ok) => self.call(&mut state, relay, ok),
            Action::Settle(at) => {
                if let Relay::Called { event, token, ok } = state.relays[at] {
                    self.settle(&mut state, at, event, token, ok);
                }
            }
            Action::CommitSettlement(at) => {
                if let Relay::Settling { event, row, wakes } = state.relays[at] {
                    state.rows[event] = row;
                    state.relays[at] = Relay::Idle;
                    if wakes {
                        Self::wake(&mut state);
                    }
                }
            }
            Action::Die(at) => {
                state.losses -= 1;
                state.relays[at] = Relay::Idle;
            }
            Action::RunOut(event) => {
                if let Row::Leased { token, .. } = state.rows[event] {
                    let slow = state.relays.iter().any(|r| match r {
                        Relay::Claimed { token: t, .. } | Relay::Called { token: t, .. } => *t == token,
                        _ => false,
                    });
                    state.losses -= u8::from(slow);
                    state.rows[event] = Row::Leased { token, over: true };
                }
            }
            Action::Sweep => Self::wake(&mut state),
        }
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        // Without a limit of attempts a killer goes on for ever.
        state.tokens <= 12
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing wrong was done", |_, state: &State| state.wrong.is_none()),
            Property::always("a committed event ends", |model: &Outbox, state: &State| {
                let mut actions = Vec::new();
                model.actions(state, &mut actions);
                let ended = |(writer, row): (&Writer, &Row)| *writer != Writer::Committed || row.ended();
                !actions.is_empty() || state.writers.iter().zip(&state.rows).all(ended)
            }),
            Property::always("a delivered event was received", |_, state: &State| {
                state
                    .rows
                    .iter()
                    .zip(&state.received)
                    .all(|(row, received)| *row != Row::Delivered || *received)
            }),
            Property::always("an event has at most its attempts", |model: &Outbox, state: &State| {
                state.tokens <= model.max_attempts * EVENTS as u8
            }),
            Property::sometimes("everything is delivered after a loss", |model: &Outbox, state: &State| {
                (state.losses < model.losses || model.losses == 0)
                    && state.rows.iter().all(|row| *row == Row::Delivered)
            }),
        ]
    }
}
