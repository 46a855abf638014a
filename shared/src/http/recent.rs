//! A cache that is bounded in time and in size.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// Values by the hash of a credential. Times are wall-clock times: a monotonic clock may stop while the sandbox is frozen, and
/// a revocation would go unseen.
pub(crate) struct Recent<V> {
    lifetime: Duration,
    max: usize,
    entries: HashMap<[u8; 32], (V, SystemTime)>,
}

impl<V: Clone> Recent<V> {
    pub fn new(lifetime: Duration, max: usize) -> Self {
        Self { lifetime, max, entries: HashMap::new() }
    }

    /// `None` if it is older than the lifetime, or if the clock was set back.
    pub fn get(&self, hash: &[u8; 32], now: SystemTime) -> Option<V> {
        let (value, since) = self.entries.get(hash)?;
        is_live(*since, now, self.lifetime).then(|| value.clone())
    }

    /// Makes room if there is none: drops what has expired, or else everything.
    pub fn put(&mut self, hash: [u8; 32], value: V, now: SystemTime) {
        if self.entries.len() >= self.max && !self.entries.contains_key(&hash) {
            let lifetime = self.lifetime;
            self.entries.retain(|_, (_, since)| is_live(*since, now, lifetime));
            if self.entries.len() >= self.max {
                self.entries.clear();
            }
        }
        self.entries.insert(hash, (value, now));
    }
}

fn is_live(since: SystemTime, now: SystemTime, lifetime: Duration) -> bool {
    now.duration_since(since).is_ok_and(|age| age < lifetime)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(30);

    fn at(secs: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
    }

    #[test]
    fn an_entry_lives_for_a_limited_wall_clock_time() {
        let mut cache = Recent::new(LIFETIME, 10);
        cache.put([1; 32], "one", at(1_000));
        assert_eq!(cache.get(&[1; 32], at(1_029)), Some("one"));
        assert_eq!(cache.get(&[1; 32], at(1_030)), None);
        assert_eq!(cache.get(&[1; 32], at(999)), None, "the clock was set back");
        assert_eq!(cache.get(&[2; 32], at(1_000)), None);
    }

    #[test]
    fn a_full_cache_drops_what_has_expired_or_else_everything() {
        let mut cache = Recent::new(LIFETIME, 3);
        for (n, secs) in [(1, 1_000), (2, 1_020), (3, 1_025)] {
            cache.put([n; 32], n, at(secs));
        }
        cache.put([3; 32], 33, at(1_026));
        assert_eq!(cache.get(&[1; 32], at(1_026)), Some(1), "one that is there needs no room");
        cache.put([4; 32], 4, at(1_031));
        let live = |cache: &Recent<u8>, secs| {
            (1..=6).filter_map(|n| cache.get(&[n; 32], at(secs))).collect::<Vec<_>>()
        };
        assert_eq!(live(&cache, 1_031), [2, 33, 4]);
        cache.put([5; 32], 5, at(1_032));
        assert_eq!(live(&cache, 1_032), [5]);
    }
}
