//! Which destinations have how much room. None may hold more than a part of the slots that are free: the more of them are
//! taken, the less anybody may have, so that destinations that begin to hang at the same time, as nobody can foresee,
//! leave slots for the others. (Some forty at once, each with a backlog, would fill them all, for one attempt's time.)

use std::collections::HashMap;

use uuid::Uuid;

/// Limit per destination: free slots / 8, at least 1 while any is free.
const FREE_FOR_EACH: usize = 8;

/// What is under way, by destination.
pub(crate) struct Lanes {
    slots: usize,
    each: usize,
    lanes: HashMap<Uuid, Lane>,
    in_flight: usize,
}

#[derive(Default)]
struct Lane {
    in_flight: usize,
    /// Its last attempt in this drain got no answer: it gets one at a time until one does, so that a destination
    /// that hangs holds one slot and not all of its lane.
    troubled: bool,
}

impl Lanes {
    /// So many slots in all, and at most `each` of them for one destination.
    pub(crate) fn new(slots: usize, each: usize) -> Self {
        Self { slots, each, lanes: HashMap::new(), in_flight: 0 }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn free(&self) -> usize {
        self.slots.saturating_sub(self.in_flight)
    }

    pub(crate) fn start(&mut self, destination: Uuid) {
        self.lanes.entry(destination).or_default().in_flight += 1;
        self.in_flight += 1;
    }

    /// An attempt ended. Returns whether a lane that was full has room now: this one's, or another's now that more slots
    /// are free.
    pub(crate) fn end(&mut self, destination: Uuid, answered: bool) -> bool {
        let closed_before = self.closed();
        let Some(lane) = self.lanes.get_mut(&destination) else {
            return false;
        };
        lane.in_flight -= 1;
        lane.troubled = !answered;
        if lane.in_flight == 0 && answered {
            self.lanes.remove(&destination);
        }
        self.in_flight -= 1;
        self.closed() < closed_before
    }

    fn closed(&self) -> usize {
        self.lanes.values().filter(|lane| self.room(lane) == 0).count()
    }

    /// Whether a destination that answers holds all it may.
    pub(crate) fn any_full(&self) -> bool {
        self.lanes.values().any(|lane| !lane.troubled && self.room(lane) == 0)
    }

    /// What a destination may get of which nothing is under way.
    pub(crate) fn room_each(&self) -> usize {
        (self.free() / FREE_FOR_EACH).max(1).min(self.each).min(self.free())
    }

    /// The destinations that have less room than the others, and their room.
    pub(crate) fn busy(&self) -> Vec<(Uuid, usize)> {
        self.lanes.iter().map(|(id, lane)| (*id, self.room(lane))).collect()
    }

    /// The destinations whose last attempt got no answer.
    pub(crate) fn troubled(&self) -> Vec<Uuid> {
        self.lanes.iter().filter(|(_, lane)| lane.troubled).map(|(id, _)| *id).collect()
    }

    fn room(&self, lane: &Lane) -> usize {
        let most = if lane.troubled { self.room_each().min(1) } else { self.room_each() };
        most.saturating_sub(lane.in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Starts what it may for each of `hanging` destinations, twenty at a time, until none may start more.
    fn hang(lanes: &mut Lanes, hanging: usize) {
        let ids: Vec<_> = (0..hanging).map(|n| Uuid::from_u128(n as u128 + 1)).collect();
        loop {
            let before = lanes.in_flight();
            for id in &ids {
                let busy = lanes.busy();
                let room = busy.iter().find(|(b, _)| b == id).map_or(lanes.room_each(), |(_, room)| *room);
                (0..room.min(20)).for_each(|_| lanes.start(*id));
            }
            if lanes.in_flight() == before {
                return;
            }
        }
    }

    #[test]
    fn when_many_hang_at_once_others_find_free_slots() {
        for (hanging, free, for_another) in [(1, 236, 20), (5, 156, 19), (13, 56, 7), (30, 9, 1)] {
            let mut lanes = Lanes::new(256, 20);
            hang(&mut lanes, hanging);
            assert_eq!((lanes.free(), lanes.room_each()), (free, for_another), "{hanging} hang");
        }
    }

    #[test]
    fn one_that_got_no_answer_gets_one_at_a_time_until_it_does() {
        let mut lanes = Lanes::new(256, 20);
        let id = Uuid::from_u128(1);
        hang(&mut lanes, 1);
        assert!(lanes.any_full());
        let reopened: Vec<bool> = (0..20).map(|_| lanes.end(id, false)).collect();
        assert_eq!(reopened.iter().position(|reopened| *reopened), Some(19), "the last one makes room");
        assert_eq!((lanes.busy(), lanes.troubled()), (vec![(id, 1)], vec![id]));
        lanes.start(id);
        assert_eq!((lanes.busy(), lanes.any_full()), (vec![(id, 0)], false), "troubled, not full");
        assert!(lanes.end(id, true));
        assert_eq!((lanes.busy(), lanes.room_each()), (vec![], 20));
    }

    #[test]
    fn a_lane_that_was_full_is_looked_at_again_when_another_destination_gave_slots_back() {
        let mut lanes = Lanes::new(24, 20);
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        (0..11).for_each(|_| lanes.start(a));
        lanes.start(b);
        assert_eq!((lanes.free(), lanes.room_each()), (12, 1));
        let reopened: Vec<bool> = (0..4).map(|_| lanes.end(a, true)).collect();
        assert_eq!(reopened, [false, false, false, true], "16 are free: two for each, and b holds one");
    }
}
