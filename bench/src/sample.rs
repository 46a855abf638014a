//! The result of one measurement, and statistics over several.

use std::time::{Duration, Instant};

/// Throughput and latency of the requests that ended within a window.
#[derive(Clone, Copy, Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    pub per_sec: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub calls: usize,
}

impl Sample {
    pub fn of(mut latencies_us: Vec<u64>, window: Duration) -> Self {
        latencies_us.sort_unstable();
        Self {
            per_sec: latencies_us.len() as f64 / window.as_secs_f64(),
            p50_ms: percentile(&latencies_us, 50),
            p99_ms: percentile(&latencies_us, 99),
            calls: latencies_us.len(),
        }
    }
}

fn percentile(sorted_us: &[u64], percent: usize) -> f64 {
    let rank = (sorted_us.len() * percent).div_ceil(100).max(1);
    sorted_us.get(rank - 1).map_or(f64::NAN, |us| *us as f64 / 1000.0)
}

/// Of an even number of values, the mean of the two in the middle.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

/// A warm-up and the time after it in which requests are counted.
#[derive(Clone, Copy)]
pub struct Window {
    begin: Instant,
    warm_up: Duration,
    counted: Duration,
}

impl Window {
    pub fn begin(warm_up: Duration, counted: Duration) -> Self {
        Self { begin: Instant::now(), warm_up, counted }
    }

    pub fn is_open(&self) -> bool {
        self.begin.elapsed() < self.warm_up + self.counted
    }

    pub fn counts(&self) -> bool {
        let at = self.begin.elapsed();
        at >= self.warm_up && at < self.warm_up + self.counted
    }

    pub fn counted(&self) -> Duration {
        self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_of_single_requests() {
        let sample = Sample::of((1..=100).map(|ms| ms * 1000).collect(), Duration::from_secs(2));
        assert_eq!((sample.p50_ms, sample.p99_ms, sample.per_sec), (50.0, 99.0, 50.0));
    }

    #[test]
    fn an_outlier_does_not_change_the_median() {
        assert_eq!(median([1.0, 900.0, 2.0]), 2.0);
        assert_eq!(median([1.0, 2.0]), 1.5);
    }
}
