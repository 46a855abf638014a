//! Metrics as lines of the CloudWatch Embedded Metric Format on standard output: CloudWatch makes metrics of them, and
//! nothing waits for a call.

use serde_json::{Map, Value, json};

use crate::runtime::config::optional;

/// The namespace of all of them.
const NAMESPACE: &str = "Holdfast";
/// Values of one metric in one line; the format takes no more.
const VALUES_MAX: usize = 100;

/// What a value is counted in, as CloudWatch spells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A number of things.
    Count,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Milliseconds,
}

/// A line with the metrics of one function; none where there is nothing to tell.
#[derive(Clone, Debug)]
pub struct Line {
    function: &'static str,
    metrics: Vec<(&'static str, Unit, Value)>,
}

impl Line {
    /// An empty one. `function` is its dimension where the runtime does not name the function.
    pub fn of(function: &'static str) -> Self {
        Self { function, metrics: Vec::new() }
    }

    /// Adds a metric with one value.
    #[must_use]
    pub fn with(mut self, name: &'static str, unit: Unit, value: f64) -> Self {
        self.metrics.push((name, unit, json!(value)));
        self
    }

    /// Adds a metric with up to 100 values; without any it is left out.
    #[must_use]
    pub fn with_all(mut self, name: &'static str, unit: Unit, values: &[f64]) -> Self {
        if !values.is_empty() {
            self.metrics.push((name, unit, json!(values[..values.len().min(VALUES_MAX)])));
        }
        self
    }

    /// The line's document, of this function at this time (milliseconds since 1970).
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

    /// Writes it.
    pub fn write(&self) {
        if !self.metrics.is_empty() {
            let named = optional("AWS_LAMBDA_FUNCTION_NAME", self.function.to_owned());
            let function = named.unwrap_or_else(|_| self.function.to_owned());
            println!("{}", self.document(&function, jiff::Timestamp::now().as_millisecond()));
        }
    }
}

/// What an endpoint's answer counts as: a replay, a conflict with a request in flight, a refused allocation.
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
    fn a_line_is_what_cloudwatch_reads() {
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
    fn answers_count_as_what_they_are() {
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
