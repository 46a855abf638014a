//! The AWS services that a job calls: mails through SES, one-time invocations through EventBridge Scheduler.
//!
//! A crate of its own, since only the jobs need the SDK: no endpoint function is compiled or linked with it.

pub mod mailer;
pub mod scheduler;
