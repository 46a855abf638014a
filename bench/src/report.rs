//! The common shape of what the parts measure, as a table and as the JSON of `.local/bench.json`.

use std::fmt::Write;

use serde_json::{Map, Value, json};

/// What a part measured.
pub struct Measured {
    /// For a person: whole lines.
    pub table: String,
    pub json: Value,
    pub targets: Vec<Target>,
}

/// A promised bound and the measured figure.
pub struct Target {
    what: String,
    figure: f64,
    unit: &'static str,
    at_least: bool,
    bound: f64,
}

impl Target {
    pub fn at_least(what: impl Into<String>, figure: f64, unit: &'static str, bound: f64) -> Self {
        Self { what: what.into(), figure, unit, at_least: true, bound }
    }

    pub fn at_most(what: impl Into<String>, figure: f64, unit: &'static str, bound: f64) -> Self {
        Self { what: what.into(), figure, unit, at_least: false, bound }
    }

    fn is_met(&self) -> bool {
        if self.at_least { self.figure >= self.bound } else { self.figure <= self.bound }
    }

    fn json(&self) -> Value {
        json!({"what": self.what, "figure": self.figure, "unit": self.unit, "bound": self.bound,
               "atLeast": self.at_least, "met": self.is_met()})
    }
}

/// What one thing costs with an empty history beside what it costs with a grown one.
pub struct Grown {
    /// The thing, and how much history it was grown by.
    pub what: String,
    pub empty_ms: f64,
    pub grown_ms: f64,
    /// The promised bound of grown over empty.
    pub at_most: f64,
}

impl Grown {
    fn times(&self) -> f64 {
        self.grown_ms / self.empty_ms
    }
}

impl Measured {
    /// A row and a target for each.
    pub fn grown(rows: &[Grown]) -> Self {
        let mut table = format!("{:<66} {:>10} {:>10} {:>7}\n", "ms", "empty", "grown", "×");
        for row in rows {
            // Writing into a String cannot fail.
            let _ = writeln!(
                table,
                "{:<66} {:>10.3} {:>10.3} {:>7.2}",
                row.what,
                row.empty_ms,
                row.grown_ms,
                row.times()
            );
        }
        Self {
            table,
            json: rows
                .iter()
                .map(|row| json!({"what": row.what, "emptyMs": row.empty_ms, "grownMs": row.grown_ms, "times": row.times()}))
                .collect(),
            targets: rows
                .iter()
                .map(|row| Target::at_most(row.what.clone(), row.times(), "×", row.at_most))
                .collect(),
        }
    }
}

/// All parts of a run, and where it ran.
pub struct Figures {
    pub quick: bool,
    pub cores: usize,
    /// Before the first measurement; on Linux only.
    pub load_average: Option<f64>,
    /// By the part's name.
    pub parts: Vec<(String, Measured)>,
}

impl Figures {
    pub fn table(&self) -> String {
        let load = self.load_average.map_or("unknown".to_owned(), |load| format!("{load:.2}"));
        let mut out = format!(
            "\n{} cores, shared by load generator, functions and PostgreSQL; load before: {load}.{}\n",
            self.cores,
            if self.quick { " --quick: too few rounds for figures to quote." } else { "" }
        );
        for (name, measured) in &self.parts {
            let _ = writeln!(out, "\n── {name}\n{}", measured.table.trim_end());
        }
        if self.targets().next().is_some() {
            let _ = writeln!(out, "\n{:<72} {:>10}   target", "", "figure");
        }
        for target in self.targets() {
            let _ = writeln!(
                out,
                "{:<72} {:>7.2} {:<2}   {} {} {:<2} {}",
                target.what,
                target.figure,
                target.unit,
                if target.at_least { "≥" } else { "≤" },
                target.bound,
                target.unit,
                if target.is_met() { "met" } else { "MISSED" }
            );
        }
        out
    }

    pub fn json(&self) -> Value {
        let parts: Map<String, Value> =
            self.parts.iter().map(|(name, measured)| (name.clone(), measured.json.clone())).collect();
        json!({
            "quick": self.quick,
            "cores": self.cores,
            "loadAverage": self.load_average,
            "parts": parts,
            "targets": self.targets().map(Target::json).collect::<Vec<_>>(),
        })
    }

    fn targets(&self) -> impl Iterator<Item = &Target> {
        self.parts.iter().flat_map(|(_, measured)| &measured.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_grew_too_much_misses_its_target() {
        let row = |grown_ms| Grown { what: "it".into(), empty_ms: 2.0, grown_ms, at_most: 1.5 };
        let measured = Measured::grown(&[row(3.0), row(3.1)]);
        let met: Vec<bool> = measured.targets.iter().map(Target::is_met).collect();
        assert_eq!(met, [true, false]);
        let figures =
            Figures { quick: true, cores: 2, load_average: None, parts: vec![("history".into(), measured)] };
        assert!(figures.table().contains("── history"));
        assert_eq!(figures.json()["parts"]["history"][0]["times"], 1.5);
        assert_eq!(figures.json()["targets"][1]["met"], false);
    }
}
