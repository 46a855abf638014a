//! One-time invocations of a function through EventBridge Scheduler.
//!
//! Promises: a second request of the same name changes nothing; a schedule deletes itself after it has fired.
//! Relies on: names derived from the work, so that a retry has the same name; the SDK's own variables for region, credentials
//! and endpoint (`AWS_ENDPOINT_URL_SCHEDULER` for a stand-in).
//! Does not promise a single invocation, nor one within a minute.

use aws_config::SdkConfig;
use aws_sdk_scheduler::Client;
use aws_sdk_scheduler::error::{BuildError, DisplayErrorContext};
use aws_sdk_scheduler::types::{
    ActionAfterCompletion, FlexibleTimeWindow, FlexibleTimeWindowMode, RetryPolicy, Target,
};
use jiff::Timestamp;
use serde_json::Value;

use shared::runtime::config::{ConfigError, optional, required};

/// An invocation that could not start within this time is of no more use.
const MAX_AGE_SECS: i32 = 300;
/// Of Scheduler, for one invocation; within [`MAX_AGE_SECS`].
const MAX_RETRIES: i32 = 2;

/// Schedules invocations of one function.
#[derive(Clone, Debug)]
pub struct Scheduler {
    client: Client,
    target_arn: String,
    role_arn: String,
    group: Option<String>,
}

/// The result of [`Scheduler::once_at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduled {
    /// By this call.
    Created,
    /// By an earlier call of the same name.
    AlreadyThere,
}

/// Scheduler refused or did not answer; the text says why.
#[derive(Debug, thiserror::Error)]
#[error("no one-time invocation: {0}")]
pub struct ScheduleError(String);

impl From<BuildError> for ScheduleError {
    fn from(error: BuildError) -> Self {
        Self(error.to_string())
    }
}

impl Scheduler {
    /// From `SCHEDULER_TARGET_ARN` (the function), `SCHEDULER_ROLE_ARN` (a role that may invoke it) and `SCHEDULER_GROUP`.
    /// `None` without a target.
    pub fn from_env(aws: &SdkConfig) -> Result<Option<Self>, ConfigError> {
        let target_arn = optional("SCHEDULER_TARGET_ARN", String::new())?;
        if target_arn.is_empty() {
            return Ok(None);
        }
        let group = optional("SCHEDULER_GROUP", String::new())?;
        let role_arn = required("SCHEDULER_ROLE_ARN")?;
        Ok(Some(Self::new(aws, target_arn, role_arn, Some(group).filter(|group| !group.is_empty()))))
    }

    /// Makes no call. Scheduler will invoke `target_arn` as `role_arn`.
    pub fn new(aws: &SdkConfig, target_arn: String, role_arn: String, group: Option<String>) -> Self {
        Self { client: Client::new(aws), target_arn, role_arn, group }
    }

    /// Schedules one invocation with `input` within the minute after `at`. `name` is unique in the group: up to 64 letters,
    /// digits, `-`, `_`, `.`.
    pub async fn once_at(
        &self,
        name: &str,
        at: Timestamp,
        input: &Value,
    ) -> Result<Scheduled, ScheduleError> {
        let target = Target::builder()
            .arn(&self.target_arn)
            .role_arn(&self.role_arn)
            .input(input.to_string())
            .retry_policy(
                RetryPolicy::builder()
                    .maximum_event_age_in_seconds(MAX_AGE_SECS)
                    .maximum_retry_attempts(MAX_RETRIES)
                    .build(),
            )
            .build()?;
        let at = at.strftime("at(%Y-%m-%dT%H:%M:%S)").to_string();
        let created = self
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
        match created {
            Ok(_) => Ok(Scheduled::Created),
            Err(error) if error.as_service_error().is_some_and(|e| e.is_conflict_exception()) => {
                Ok(Scheduled::AlreadyThere)
            }
            Err(error) => Err(ScheduleError(DisplayErrorContext(&error).to_string())),
        }
    }
}
