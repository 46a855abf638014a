//! Metrics as log lines in the CloudWatch Embedded Metric Format (EMF) on standard output. CloudWatch extracts the metrics
//! from the log, so that no request waits for an API call.

use serde_json::{Map, Value, json};

use crate::runtime::config::optional;

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
            println!("{}", self.document(&function, jiff::Timestamp::now().as_millisecond()));
        }
    }
}

/// Counts an endpoint's answer: a replay, a conflict with a request in flight, a refused allocation.
pub(crate) fn of_answer(allocation: bool, status: u16, error: Option<&str>, replayed: bool) -> Line {
    let mut line = Line::of("endpoint");
    if replayed {
        line = line.with("Replays", Unit::Count, 1.0);
    } else if allocation && error.is_none() && (400..500).contains(&status) {
        line = line.with("AllocationsRefused", Unit::Count, 1.0);
    }
    if error == Some("idempotency_key_in_use") {
        line = line.with("ConflictsInFlight", Unit::Count, 1.0);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

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
            })
        );
        let many = Line::of("relay").with_all("BatchTime", Unit::Milliseconds, &[0.0; 250]);
        assert_eq!(many.document("relay", 0)["BatchTime"].as_array().map(Vec::len), Some(100));
    }

    #[test]
    fn answers_are_counted_by_kind() {
        let names = |line: Line| line.metrics.iter().map(|metric| metric.0).collect::<Vec<_>>();
        assert_eq!(names(of_answer(true, 200, None, false)), [""; 0]);
        assert_eq!(names(of_answer(true, 422, None, false)), ["AllocationsRefused"]);
        assert_eq!(names(of_answer(true, 422, None, true)), ["Replays"]);
        assert_eq!(names(of_answer(true, 422, Some("idempotency_key_reused"), false)), [""; 0]);
        assert_eq!(
            names(of_answer(false, 409, Some("idempotency_key_in_use"), false)),
            ["ConflictsInFlight"]
        );
        assert_eq!(names(of_answer(false, 422, None, false)), [""; 0]);
    }
}
