//! Which destinations have how much room: no lane may take all slots.

use std::collections::HashMap;

use uuid::Uuid;

/// What is under way, by destination.
pub(crate) struct Lanes {
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
    pub(crate) fn new(each: usize) -> Self {
        Self { each, lanes: HashMap::new(), in_flight: 0 }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn start(&mut self, destination: Uuid) {
        self.lanes.entry(destination).or_default().in_flight += 1;
        self.in_flight += 1;
    }

    /// An attempt ended. Returns whether the lane was full and has room now.
    pub(crate) fn end(&mut self, destination: Uuid, answered: bool) -> bool {
        let Some(lane) = self.lanes.get_mut(&destination) else {
            return false;
        };
        let was_full = lane.room(self.each) == 0;
        lane.in_flight -= 1;
        lane.troubled = !answered;
        let reopened = was_full && lane.room(self.each) > 0;
        if lane.in_flight == 0 && answered {
            self.lanes.remove(&destination);
        }
        self.in_flight -= 1;
        reopened
    }

    /// The destinations that have less room than the others, and their room.
    pub(crate) fn room(&self) -> (Vec<Uuid>, Vec<i32>) {
        self.lanes
            .iter()
            .map(|(id, lane)| (*id, i32::try_from(lane.room(self.each)).unwrap_or(i32::MAX)))
            .unzip()
    }

    /// The destinations whose last attempt got no answer.
    pub(crate) fn troubled(&self) -> Vec<Uuid> {
        self.lanes.iter().filter(|(_, lane)| lane.troubled).map(|(id, _)| *id).collect()
    }
}

impl Lane {
    fn room(&self, each: usize) -> usize {
        let most = if self.troubled { 1 } else { each };
        most.saturating_sub(self.in_flight)
    }
}
