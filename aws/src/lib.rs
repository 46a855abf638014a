//! The AWS services that jobs call: SES for mail, EventBridge and SQS for events, EventBridge Scheduler for one-time invocations. A crate of its own, so that
//! endpoint functions are not linked with the SDK.

pub mod bus;
pub mod mailer;
pub mod scheduler;
