//! Every interleaving of writers, relays and an ordered destination; and what the checker finds when a step is left out.

use models::outbox::{Outbox, Step};
use stateright::{Checker, Model};

/// Its discovery is wanted.
const REACHED: &str = "everything is delivered after a loss";

/// A loss under two relays; a killer; a quiet day.
fn outboxes(without: Option<Step>) -> Vec<Outbox> {
    let outbox = |relays, losses, killer| Outbox { relays, max_attempts: 3, losses, killer, without };
    vec![outbox(2, 0, false), outbox(2, 2, false), outbox(1, 0, true)]
}

#[test]
fn no_interleaving_loses_an_event_or_breaks_its_order() {
    for outbox in outboxes(None) {
        let checker = outbox.clone().checker().spawn_bfs().join();
        println!("{outbox:?}: {} states", checker.unique_state_count());
        for property in outbox.properties().iter().filter(|property| property.name != REACHED) {
            checker.assert_no_discovery(property.name);
        }
        if !outbox.killer {
            checker.assert_any_discovery(REACHED);
        }
    }
}

#[test]
fn each_step_is_needed() {
    let needed = [
        (Step::OneTransaction, "nothing wrong was done"),
        (Step::ClaimLost, "a committed event ends"),
        (Step::CheckLease, "nothing wrong was done"),
        (Step::Wait, "nothing wrong was done"),
        (Step::Sweep, "a committed event ends"),
        (Step::CountWhenClaimed, "an event has at most its attempts"),
    ];
    for (step, breaks) in needed {
        let broken = outboxes(Some(step)).into_iter().flat_map(|outbox| {
            outbox.checker().spawn_bfs().join().discoveries().into_keys().collect::<Vec<_>>()
        });
        let broken: Vec<_> = broken.collect();
        assert!(broken.contains(&breaks), "without {step:?}: {broken:?}");
    }
}
