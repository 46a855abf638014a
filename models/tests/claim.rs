//! Every interleaving of requests under one key; and what the checker finds when a step is left out.

use models::claim::{Claim, Step};
use stateright::{Checker, Model};

/// Three clients of one request, or of two, with losses anywhere.
fn claims(without: Option<Step>) -> Vec<Claim> {
    let claim = |clients: &[u8], tries, losses| Claim { clients: clients.to_vec(), tries, losses, without };
    vec![claim(&[0], 3, 2), claim(&[0, 0], 2, 1), claim(&[0, 1], 2, 1), claim(&[0, 0, 1], 1, 0)]
}

/// The properties that do not hold, of any of the models.
fn broken(without: Option<Step>) -> Vec<&'static str> {
    let found = claims(without).into_iter().flat_map(|claim| {
        let checker = claim.checker().spawn_bfs().join();
        assert!(checker.is_done());
        checker.discoveries().into_keys().collect::<Vec<_>>()
    });
    let mut names: Vec<_> = found.filter(|name| *name != REACHED).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Its discovery is wanted.
const REACHED: &str = "a retry gets its answer after a loss";

#[test]
fn no_interleaving_executes_twice_or_answers_wrong() {
    for claim in claims(None) {
        let checker = claim.clone().checker().spawn_bfs().join();
        println!("{claim:?}: {} states", checker.unique_state_count());
        for property in claim.properties().iter().filter(|property| property.name != REACHED) {
            checker.assert_no_discovery(property.name);
        }
        if claim.losses > 0 && claim.clients.iter().all(|body| *body == 0) {
            checker.assert_any_discovery(REACHED);
        }
    }
}

#[test]
fn each_step_is_needed() {
    let needed = [
        (Step::RequestLock, "422 only where there was another request"),
        (Step::KeyLock, "works alone"),
        (Step::FreshSnapshot, "works alone"),
        (Step::LookAgain, "422 only where there was another request"),
        (Step::OneTransaction, "executed at most once"),
        (Step::LocksDieWithSession, "nothing is held when all is quiet"),
    ];
    for (step, breaks) in needed {
        let broken = broken(Some(step));
        assert!(broken.contains(&breaks), "without {step:?}: {broken:?}");
    }
}
