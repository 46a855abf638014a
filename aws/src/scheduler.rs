//! One-time invocations, through EventBridge Scheduler.
//!
//! Promises: asking twice under one name is asking once; a schedule removes itself when it has fired. A call that fails
//! changes nothing but that the invocation does not come.
//! Relies on: names derived from the work, so that a retry finds the first one; the SDK's own variables for region,
//! credentials and endpoint (`AWS_ENDPOINT_URL_SCHEDULER` for a stand-in).
//! Does not promise a single invocation, nor one earlier than a minute after it was asked for.

use aws_config::SdkConfig;
use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::error::{BuildError, DisplayErrorContext};
use aws_sdk_scheduler::types::{
    ActionAfterCompletion, FlexibleTimeWindow, FlexibleTimeWindowMode, RetryPolicy, Target,
};
use jiff::Timestamp;
use serde_json::Value;

use shared::runtime::config::{ConfigError, optional, required};

/// An invocation that could not start for so long would come when it is of no more use.
const MAX_AGE_SECS: i32 = 300;

/// Asks for invocations of one function.
#[derive(Clone, Debug)]
pub struct Scheduler {
    client: Client,
    target_arn: String,
    role_arn: String,
    group: Option<String>,
}

/// What became of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It will be invoked.
    Now,
    /// Somebody had asked under this name before.
    Before,
}

/// Why it was not asked for.
#[derive(Debug, thiserror::Error)]
#[error("no one-time invocation: {0}")]
pub struct ScheduleError(String);

impl From<BuildError> for ScheduleError {
    fn from(error: BuildError) -> Self {
        Self(error.to_string())
    }
}

impl Scheduler {
    /// `SCHEDULER_TARGET_ARN` (the function to invoke), `SCHEDULER_ROLE_ARN` (which may do it), `SCHEDULER_GROUP`. `None`
    /// where no target is named: then there are no one-time invocations.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub fn from_env(aws: &SdkConfig) -> Result<Option<Self>, ConfigError> {
        let target_arn = optional("SCHEDULER_TARGET_ARN", String::new())?;
        if target_arn.is_empty() {
            return Ok(None);
        }
        let group = optional("SCHEDULER_GROUP", String::new())?;
        let role_arn = required("SCHEDULER_ROLE_ARN")?;
        Ok(Some(Self::new(aws, target_arn, role_arn, Some(group).filter(|group| !group.is_empty()))))
    }

    /// Invokes `target_arn` as `role_arn`.
    pub fn new(aws: &SdkConfig, target_arn: String, role_arn: String, group: Option<String>) -> Self {
        Self { client: Client::new(aws), target_arn, role_arn, group }
    }

    /// Asks for one invocation with `input` at `at` (to the second; Scheduler fires within the minute). `name` is unique in
    /// the group: letters, digits, `-`, `_`, `.`; at most 64.
    ///
    /// # Errors
    /// When Scheduler refused or did not answer.
    pub async fn once_at(&self, name: &str, at: Timestamp, input: &Value) -> Result<Asked, ScheduleError> {
        let target = Target::builder()
            .arn(&self.target_arn)
            .role_arn(&self.role_arn)
            .input(input.to_string())
            .retry_policy(
                RetryPolicy::builder()
                    .maximum_event_age_in_seconds(MAX_AGE_SECS)
                    .maximum_retry_attempts(2)
                    .build(),
            )
            .build()?;
        let at = at.strftime("at(%Y-%m-%dT%H:%M:%S)").to_string();
        let asked = self
            .client
            .create_schedule()
            .name(name)
            .set_group_name(self.group.clone())
            .schedule_expression(at)
            .flexible_time_window(FlexibleTimeWindow::builder().mode(FlexibleTimeWindowMode::Off).build()?)
            .action_after_completion(ActionAfterCompletion::Delete)
            .target(target)
            .send()
            .await;
        match asked {
            Ok(_) => Ok(Asked::Now),
            Err(error) if error.as_service_error().is_some_and(|e| e.is_conflict_exception()) => {
                Ok(Asked::Before)
            }
            Err(error) => Err(ScheduleError(DisplayErrorContext(&error).to_string())),
        }
    }
}
