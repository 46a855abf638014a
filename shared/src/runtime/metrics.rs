//! Metrics as log lines in the CloudWatch Embedded Metric Format (EMF) on standard output. CloudWatch extracts the metrics
//! from the log, so that no request waits for an API call.
//!
//! A line carries the level that the function logs at: Lambda's filter takes a JSON line without one as INFO, so at WARN it would
//! drop every metric.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::runtime::config::optional;
use crate::runtime::request_log::Answered;

const NAMESPACE: &str = "Holdfast";
/// EMF allows at most this many values of one metric in one line.
const VALUES_MAX: usize = 100;

/// The unit of a value; the variants have CloudWatch's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

fn level() -> String {
    optional("AWS_LAMBDA_LOG_LEVEL", String::from("INFO")).unwrap_or_default()
}

/// One log line with metrics of one function; without metrics it is not written.
#[derive(Clone, Debug)]
pub struct Line {
    function: &'static str,
    metrics: Vec<(&'static str, Unit, Value)>,
}

impl Line {
    /// A line without metrics. `function` is the dimension where `AWS_LAMBDA_FUNCTION_NAME` is not set.
    pub fn of(function: &'static str) -> Self {
        Self { function, metrics: Vec::new() }
    }

    /// Adds a metric with one value.
    #[must_use]
    pub fn with(mut self, name: &'static str, unit: Unit, value: f64) -> Self {
        self.metrics.push((name, unit, json!(value)));
        self
    }

    /// Adds a metric with the first 100 of `values`; none if `values` is empty.
    #[must_use]
    pub fn with_all(mut self, name: &'static str, unit: Unit, values: &[f64]) -> Self {
        if !values.is_empty() {
            self.metrics.push((name, unit, json!(values[..values.len().min(VALUES_MAX)])));
        }
        self
    }

    /// The EMF document; `at_ms` is milliseconds since 1970.
    pub fn document(&self, function: &str, at_ms: i64) -> Value {
        let described: Vec<_> = self
            .metrics
            .iter()
            .map(|(name, unit, _)| json!({"Name": name, "Unit": format!("{unit:?}")}))
            .collect();
        let mut document = Map::new();
        document.insert(
            "_aws".into(),
            json!({"Timestamp": at_ms, "CloudWatchMetrics": [
                {"Namespace": NAMESPACE, "Dimensions": [["Function"]], "Metrics": described}]}),
        );
        document.insert("Function".into(), function.into());
        document.insert("level".into(), level().into());
        if let Ok(at) = Timestamp::from_millisecond(at_ms) {
            document.insert("timestamp".into(), at.to_string().into());
        }
        for (name, _, value) in &self.metrics {
            document.insert((*name).into(), value.clone());
        }
        document.into()
    }

    /// Writes the line to standard output.
    pub fn write(&self) {
        if !self.metrics.is_empty() {
            let named = optional("AWS_LAMBDA_FUNCTION_NAME", self.function.to_owned());
            let function = named.unwrap_or_else(|_| self.function.to_owned());
            println!("{}", self.document(&function, Timestamp::now().as_millisecond()));
        }
    }
}

/// Counts a request by its answer: failures (5xx), replays, refused allocations, conflicts, wrong signatures; of a webhook's deliveries the
/// duplicates and the exceptions.
pub fn of_request(answered: &Answered<'_>) -> Line {
    let first = !answered.replayed;
    let refused = answered.recorded && (400..500).contains(&answered.status);
    let allocation = answered.pattern().is_some_and(|pattern| pattern.ends_with("/allocate"));
    [
        ("Failures", answered.status >= 500),
        ("Replays", answered.replayed),
        ("AllocationsRefused", first && refused && allocation),
        ("ConflictsInFlight", answered.code == Some("idempotency_key_in_use")),
        ("VersionConflicts", first && answered.code == Some("version_conflict")),
        ("BadSignatures", answered.code == Some("bad_signature")),
        ("Duplicates", answered.verdict() == Some("duplicate")),
        ("ExceptionsKept", matches!(answered.verdict(), Some("kept" | "unclaimed"))),
        ("ExceptionsWithoutTenant", answered.verdict() == Some("unclaimed")),
    ]
    .into_iter()
    .filter(|(_, counts)| *counts)
    .fold(Line::of("endpoint"), |line, (name, _)| line.with(name, Unit::Count, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::request_log;

    #[test]
    fn a_line_is_in_the_embedded_metric_format() {
        let line = Line::of("relay").with("Delivered", Unit::Count, 3.0).with_all(
            "BatchTime",
            Unit::Milliseconds,
            &[1.5, 2.0],
        );
        assert_eq!(
            line.document("relay", 1_700_000_000_000),
            json!({
                "_aws": {"Timestamp": 1_700_000_000_000_i64, "CloudWatchMetrics": [{"Namespace": "Holdfast",
                    "Dimensions": [["Function"]], "Metrics": [{"Name": "Delivered", "Unit": "Count"},
                    {"Name": "BatchTime", "Unit": "Milliseconds"}]}]},
                "Function": "relay", "Delivered": 3.0, "BatchTime": [1.5, 2.0],
                "level": "INFO", "timestamp": "2023-11-14T22:13:20Z",
            })
        );
        let many = Line::of("relay").with_all("BatchTime", Unit::Milliseconds, &[0.0; 250]);
        assert_eq!(many.document("relay", 0)["BatchTime"].as_array().map(Vec::len), Some(100));
    }

    /// The names of what an answer counts as.
    async fn counted(
        pattern: &'static str,
        verdict: Option<&str>,
        (status, code, recorded, replayed): (u16, Option<&str>, bool, bool),
    ) -> Vec<&'static str> {
        let work = async {
            request_log::route(pattern);
            if let Some(verdict) = verdict {
                request_log::delivery("stripe", "topic", verdict);
            }
        };
        let ((), seen) = request_log::watch(work).await;
        let answered = Answered {
            request_id: "1",
            method: "POST",
            status,
            code,
            recorded,
            replayed,
            database_ms: 0,
            seen,
        };
        of_request(&answered).metrics.iter().map(|metric| metric.0).collect()
    }

    #[tokio::test]
    async fn answers_are_counted_by_kind() {
        const ALLOCATE: &str = "/orders/{orderId}/allocate";
        const SAVE: &str = "/orders/{orderId}";
        for (pattern, answer, names) in [
            (ALLOCATE, (200, None, true, false), &[][..]),
            (ALLOCATE, (422, Some("insufficient_ats"), true, false), &["AllocationsRefused"]),
            (ALLOCATE, (422, Some("insufficient_ats"), true, true), &["Replays"]),
            (ALLOCATE, (422, Some("idempotency_key_reused"), false, false), &[]),
            (ALLOCATE, (409, Some("idempotency_key_in_use"), false, false), &["ConflictsInFlight"]),
            (SAVE, (422, Some("unknown_sku"), true, false), &[]),
            (SAVE, (503, Some("unavailable"), false, false), &["Failures"]),
            (SAVE, (409, Some("version_conflict"), true, false), &["VersionConflicts"]),
            (SAVE, (412, Some("version_conflict"), true, false), &["VersionConflicts"]),
            (SAVE, (409, Some("version_conflict"), true, true), &["Replays"]),
            ("/webhooks/stripe", (401, Some("bad_signature"), false, false), &["BadSignatures"]),
        ] {
            assert_eq!(counted(pattern, None, answer).await, names, "{pattern} {answer:?}");
        }
        let received = (200, None, true, false);
        assert_eq!(counted("/webhooks/stripe", Some("duplicate"), received).await, ["Duplicates"]);
        assert_eq!(counted("/webhooks/stripe", Some("kept"), received).await, ["ExceptionsKept"]);
        assert_eq!(
            counted("/webhooks/stripe", Some("unclaimed"), received).await,
            ["ExceptionsKept", "ExceptionsWithoutTenant"]
        );
        assert_eq!(counted("/webhooks/stripe", Some("processed"), received).await, [""; 0]);
    }
}
