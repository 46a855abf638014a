//! Reads environment variables.

use std::fmt;
use std::str::FromStr;

/// A variable that is missing or has a wrong value.
#[derive(Debug, thiserror::Error)]
#[error("environment variable {name} {problem}")]
pub struct ConfigError {
    name: String,
    problem: String,
}

impl ConfigError {
    /// `problem` completes the sentence "environment variable NAME …".
    pub fn new(name: &str, problem: impl Into<String>) -> Self {
        Self { name: name.into(), problem: problem.into() }
    }
}

/// Reads a variable that must be set and not blank.
pub fn required(name: &'static str) -> Result<String, ConfigError> {
    variable(name)?.ok_or_else(|| ConfigError::new(name, "is missing"))
}

/// Reads a variable; `default` where it is absent or blank. A value that cannot be parsed is an error.
pub fn optional<T: FromStr>(name: &'static str, default: T) -> Result<T, ConfigError>
where
    T::Err: fmt::Display,
{
    match variable(name)? {
        None => Ok(default),
        Some(text) => {
            text.parse().map_err(|error: T::Err| ConfigError::new(name, format!("is wrong: {error}")))
        }
    }
}

/// Reads a variable; `None` where it is absent or blank.
pub(crate) fn variable(name: &str) -> Result<Option<String>, ConfigError> {
    match std::env::var(name) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(ConfigError::new(name, "is not UTF-8")),
    }
}
