//! A secret: a plain variable on a developer's machine, or what Secrets Manager holds, read at run time.
//!
//! Promises: what was rotated is in use at the latest five minutes later, and within a second or two where the old value is
//! refused. However many requests are refused, a sandbox soon asks no more than once in 30 s. While Secrets Manager does not answer, the value that was
//! known last stays in use. No value is ever logged or part of an error.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::Mutex;

use crate::runtime::aws;
use crate::runtime::environment::{ConfigError, variable};

/// Lifetime of a value that was fetched.
const MAX_AGE: Duration = Duration::from_secs(300);
/// Least time between two calls; doubles with each one in a row that failed, or that brought nothing new for a value that was
/// refused, up to [`MAX_PAUSE`]: forged requests must not cause more.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// A named secret of this sandbox; clones share what was fetched.
#[derive(Clone)]
pub struct Secret(Arc<Inner>);

struct Inner {
    name: &'static str,
    source: Source,
}

enum Source {
    Given(Arc<str>),
    Stored { arn: String, known: Mutex<Known> },
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.0.name)
    }
}

/// Nothing can be done without this secret, and it cannot be had at the moment.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the secret of {name} cannot be read: {why}")]
pub struct SecretError {
    name: &'static str,
    why: String,
}

/// Times are wall-clock times: a monotonic clock may stop while the sandbox is frozen.
#[derive(Default)]
struct Known {
    value: Option<(Arc<str>, SystemTime)>,
    /// The beginning of the last call.
    asked_at: Option<SystemTime>,
    /// Calls in a row that did not help.
    fruitless: u32,
}

impl Known {
    /// The value that is in use without a call; `None` where one is due.
    fn in_use(&self, now: SystemTime) -> Option<Arc<str>> {
        let (value, since) = self.value.as_ref()?;
        let is_in_use = !is_past(Some(*since), MAX_AGE, now) || !self.may_ask(now);
        is_in_use.then(|| value.clone())
    }

    /// Whether a call may be made now.
    fn may_ask(&self, now: SystemTime) -> bool {
        let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow(self.fruitless)).min(MAX_PAUSE);
        is_past(self.asked_at, pause, now)
    }

    /// A value that differs from this one.
    fn other_than(&self, refused: &str) -> Option<Arc<str>> {
        self.value.as_ref().map(|(value, _)| value.clone()).filter(|value| **value != *refused)
    }
}

/// If the clock was set back, that was long ago too; else it would block until the old time is reached again.
fn is_past(since: Option<SystemTime>, pause: Duration, now: SystemTime) -> bool {
    since.is_none_or(|since| now.duration_since(since).map_or(true, |age| age >= pause))
}

impl Secret {
    /// `name` holds the secret itself, or `<name>_ARN` the ARN or the name that Secrets Manager has it under. Exactly one is set.
    pub fn from_env(name: &'static str) -> Result<Self, ConfigError> {
        Self::optional_from_env(name)?.ok_or_else(|| ConfigError::new(name, "is missing"))
    }

    /// As [`Secret::from_env`]; `None` if neither is set.
    pub fn optional_from_env(name: &'static str) -> Result<Option<Self>, ConfigError> {
        let source = match (variable(name)?, variable(&format!("{name}_ARN"))?) {
            (None, None) => return Ok(None),
            (Some(value), None) => Source::Given(value.into()),
            (None, Some(arn)) => Source::Stored { arn, known: Mutex::default() },
            (Some(_), Some(_)) => {
                return Err(ConfigError::new(name, format!("and {name}_ARN are both set: set exactly one")));
            }
        };
        Ok(Some(Self(Arc::new(Inner { name, source }))))
    }

    /// The value, where a variable holds it.
    pub fn given(&self) -> Option<&str> {
        match &self.0.source {
            Source::Given(value) => Some(value),
            Source::Stored { .. } => None,
        }
    }

    /// The value in use.
    pub async fn current(&self) -> Result<Arc<str>, SecretError> {
        let (arn, known) = match &self.0.source {
            Source::Given(value) => return Ok(value.clone()),
            Source::Stored { arn, known } => (arn, known),
        };
        let mut known = known.lock().await;
        if let Some(value) = known.in_use(SystemTime::now()) {
            return Ok(value);
        }
        self.ask(arn, &mut known).await
    }

    /// Another value than the one that was `refused`, if there is one; asks for it where that may be done again.
    pub async fn newer_than(&self, refused: &str) -> Option<Arc<str>> {
        let Source::Stored { arn, known } = &self.0.source else { return None };
        let mut known = known.lock().await;
        if let Some(newer) = known.other_than(refused) {
            return Some(newer);
        }
        if known.may_ask(SystemTime::now())
            && self.ask(arn, &mut known).await.is_ok()
            && known.other_than(refused).is_none()
        {
            known.fruitless = known.fruitless.saturating_add(1);
        }
        known.other_than(refused)
    }

    async fn ask(&self, arn: &str, known: &mut Known) -> Result<Arc<str>, SecretError> {
        let name = self.0.name;
        let now = SystemTime::now();
        if !known.may_ask(now) {
            return Err(SecretError { name, why: "Secrets Manager did not answer a moment ago".into() });
        }
        // Noted before the call: the request's own time limit may cut it off.
        known.asked_at = Some(now);
        match aws::secret_value(arn).await {
            Ok(value) => {
                let value: Arc<str> = value.into();
                if known.other_than(&value).is_some() {
                    known.fruitless = 0;
                }
                known.value = Some((value.clone(), now));
                Ok(value)
            }
            Err(error) => {
                known.fruitless = known.fruitless.saturating_add(1);
                tracing::error!(secret = name, %error, "secret not fetched");
                let last = known.value.as_ref().map(|(value, _)| value.clone());
                last.ok_or_else(|| SecretError { name, why: error.to_string() })
            }
        }
    }
}

/// A secret that is given, under no name; for tests.
impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self(Arc::new(Inner { name: "(given)", source: Source::Given(value.into()) }))
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        value.as_str().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(secs)
    }

    #[test]
    fn a_value_lives_for_five_minutes_and_longer_while_nobody_answers() {
        let mut known =
            Known { value: Some(("v".into(), at(1_000))), asked_at: Some(at(1_000)), ..Known::default() };
        assert!(known.in_use(at(1_299)).is_some());
        assert!(known.in_use(at(1_300)).is_none(), "due");
        // Asked, and nobody answered.
        (known.asked_at, known.fruitless) = (Some(at(1_300)), 9);
        assert!(known.in_use(at(1_329)).is_some());
        assert!(known.in_use(at(1_330)).is_none(), "due again");
    }

    #[test]
    fn a_flood_of_refused_requests_soon_asks_twice_a_minute_and_the_first_ones_at_once() {
        let mut known =
            Known { value: Some(("v".into(), at(1_000))), asked_at: Some(at(1_000)), ..Known::default() };
        let mut asked = Vec::new();
        for now in 1_000..1_120 {
            if known.may_ask(at(now)) {
                asked.push(now - 1_000);
                (known.asked_at, known.fruitless) = (Some(at(now)), known.fruitless + 1);
            }
        }
        assert_eq!(asked, [1, 3, 7, 15, 31, 61, 91]);
        assert!(known.may_ask(at(10)), "the clock was set back");
        known.fruitless = u32::MAX;
        assert!(known.may_ask(at(1_121)) && !known.may_ask(at(1_120)));
    }
}
