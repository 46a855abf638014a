//! Shares the relay's slots (attempts in flight) among destinations. Limit per destination: free slots / 8, at least 1. The
//! limit falls as slots fill, so destinations that begin to hang at the same moment leave slots for others. (About forty at
//! once, each with a backlog, would fill all slots for the time of one attempt.) A destination begins with one batch; one that
//! answers may have several in flight, so that claims and settlements overlap with sending.

use std::collections::HashMap;

use uuid::Uuid;

/// The part of the free slots that one destination may hold: one eighth.
const FREE_SLOTS_DIVISOR: usize = 8;

pub(crate) struct Slots {
    total: usize,
    max_each: usize,
    /// The same for a destination that answers.
    max_proven: usize,
    destinations: HashMap<Uuid, Usage>,
    in_flight: usize,
}

#[derive(Default)]
struct Usage {
    in_flight: usize,
    /// The last attempt of this drain got no answer. Until one does, the limit is 1.
    unresponsive: bool,
    /// Attempts answered one after the other.
    answered: usize,
}

impl Slots {
    pub(crate) fn new(total: usize, max_each: usize, max_proven: usize) -> Self {
        Self { total, max_each, max_proven, destinations: HashMap::new(), in_flight: 0 }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn free(&self) -> usize {
        self.total.saturating_sub(self.in_flight)
    }

    pub(crate) fn start(&mut self, destination: Uuid) {
        self.destinations.entry(destination).or_default().in_flight += 1;
        self.in_flight += 1;
    }

    /// Ends an attempt. Returns whether a full destination has room now: this one, or another since more slots are free.
    pub(crate) fn end(&mut self, destination: Uuid, answered: bool) -> bool {
        let full_before = self.full();
        let Some(usage) = self.destinations.get_mut(&destination) else {
            return false;
        };
        usage.in_flight -= 1;
        usage.unresponsive = !answered;
        usage.answered = if answered { usage.answered + 1 } else { 0 };
        if usage.in_flight == 0 && answered {
            self.destinations.remove(&destination);
        }
        self.in_flight -= 1;
        self.full() < full_before
    }

    fn full(&self) -> usize {
        self.destinations.values().filter(|usage| self.room(usage) == 0).count()
    }

    /// Whether a destination that answers is at its limit.
    pub(crate) fn any_full(&self) -> bool {
        self.destinations.values().any(|usage| !usage.unresponsive && self.room(usage) == 0)
    }

    /// Slots for a destination without attempts in flight.
    pub(crate) fn room_each(&self) -> usize {
        self.share(self.max_each)
    }

    /// Destinations with attempts in flight or without an answer, and how many slots each may still take.
    pub(crate) fn busy(&self) -> Vec<(Uuid, usize)> {
        self.destinations.iter().map(|(id, usage)| (*id, self.room(usage))).collect()
    }

    pub(crate) fn unresponsive(&self) -> Vec<Uuid> {
        self.destinations.iter().filter(|(_, usage)| usage.unresponsive).map(|(id, _)| *id).collect()
    }

    fn room(&self, usage: &Usage) -> usize {
        let limit = match usage {
            Usage { unresponsive: true, .. } => self.room_each().min(1),
            // Each answer earns a slot.
            Usage { answered, .. } => {
                self.share((self.max_each + answered).min(self.max_proven.max(self.max_each)))
            }
        };
        limit.saturating_sub(usage.in_flight)
    }

    fn share(&self, most: usize) -> usize {
        (self.free() / FREE_SLOTS_DIVISOR).max(1).min(most).min(self.free())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills the slots with attempts of `hanging` destinations, twenty at a time each, as far as the limits allow.
    fn hang(slots: &mut Slots, hanging: usize) {
        let ids: Vec<_> = (0..hanging).map(|n| Uuid::from_u128(n as u128 + 1)).collect();
        loop {
            let before = slots.in_flight();
            for id in &ids {
                let busy = slots.busy();
                let room = busy.iter().find(|(b, _)| b == id).map_or(slots.room_each(), |(_, room)| *room);
                (0..room.min(20)).for_each(|_| slots.start(*id));
            }
            if slots.in_flight() == before {
                return;
            }
        }
    }

    #[test]
    fn when_many_hang_at_once_others_find_free_slots() {
        for (hanging, free, for_another) in [(1, 236, 20), (5, 156, 19), (13, 56, 7), (30, 9, 1)] {
            let mut slots = Slots::new(256, 20, 20);
            hang(&mut slots, hanging);
            assert_eq!((slots.free(), slots.room_each()), (free, for_another), "{hanging} hang");
        }
    }

    #[test]
    fn a_destination_that_does_not_answer_gets_one_attempt_at_a_time_until_it_does() {
        let mut slots = Slots::new(256, 20, 20);
        let id = Uuid::from_u128(1);
        hang(&mut slots, 1);
        assert!(slots.any_full());
        let reopened: Vec<bool> = (0..20).map(|_| slots.end(id, false)).collect();
        assert_eq!(reopened.iter().position(|reopened| *reopened), Some(19), "the last one makes room");
        assert_eq!((slots.busy(), slots.unresponsive()), (vec![(id, 1)], vec![id]));
        slots.start(id);
        assert_eq!((slots.busy(), slots.any_full()), (vec![(id, 0)], false), "unresponsive, not full");
        assert!(slots.end(id, true));
        assert_eq!((slots.busy(), slots.room_each()), (vec![], 20));
    }

    #[test]
    fn a_destination_that_answers_earns_more_batches_in_flight_and_loses_them_with_an_answer() {
        let mut slots = Slots::new(1_024, 20, 80);
        let id = Uuid::from_u128(1);
        let room = |slots: &Slots| slots.busy()[0].1 + slots.in_flight();
        (0..20).for_each(|_| slots.start(id));
        for batches in [2, 3, 4, 4] {
            for _ in 0..20 {
                slots.end(id, true);
                slots.start(id);
            }
            assert_eq!(room(&slots), 20 * batches);
        }
        slots.end(id, false);
        assert_eq!(slots.busy(), [(id, 0)]);
        slots.end(id, true);
        assert_eq!(room(&slots), 21);
    }

    #[test]
    fn a_full_destination_has_room_again_when_another_one_frees_slots() {
        let mut slots = Slots::new(24, 20, 20);
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        (0..11).for_each(|_| slots.start(a));
        slots.start(b);
        assert_eq!((slots.free(), slots.room_each()), (12, 1));
        let reopened: Vec<bool> = (0..4).map(|_| slots.end(a, true)).collect();
        assert_eq!(reopened, [false, false, false, true], "16 are free: two for each, and b holds one");
    }
}
