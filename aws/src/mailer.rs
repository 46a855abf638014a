//! Sends mail through SES. Each mail carries the outbox row and the destination as tags, so that SES's events about it can be
//! traced. Region, credentials and endpoint come from the SDK's own variables (`AWS_REGION`, …; `AWS_ENDPOINT_URL_SESV2` for
//! a stand-in).

use std::time::Duration;

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_sesv2::Client;
use aws_sdk_sesv2::config::retry::RetryConfig;
use aws_sdk_sesv2::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_sesv2::types::{Body, Content, Destination, EmailContent, Message, MessageTag};

use shared::delivery::attempt::{Attempt, message_id};
use shared::delivery::email::Mail;
use shared::delivery::outbox::Claimed;
use shared::runtime::config::{ConfigError, optional};

/// Error codes of a permanent rejection.
const PERMANENT: [&str; 3] = ["MessageRejected", "BadRequestException", "MailFromDomainNotVerifiedException"];

/// Error codes of the rate limit.
const THROTTLED: [&str; 2] = ["TooManyRequestsException", "ThrottlingException"];
/// The limit counts mails per second.
const THROTTLED_WAIT: Duration = Duration::from_secs(2);

/// An SES client and the default sender.
#[derive(Clone, Debug)]
pub struct Mailer {
    client: Client,
    from: Option<String>,
    configuration_set: Option<String>,
}

impl Mailer {
    /// `EMAIL_FROM` is the sender where a destination's `url` names none (`mailto:…`); SES must have verified it.
    /// `EMAIL_CONFIGURATION_SET` tells SES where to publish what becomes of the mails; without it an identity's own settings count.
    pub fn from_env(aws: &SdkConfig) -> Result<Self, ConfigError> {
        let given = |name| Ok(Some(optional(name, String::new())?).filter(|value| !value.is_empty()));
        let mailer = Self::new(aws, given("EMAIL_FROM")?);
        Ok(Self { configuration_set: given("EMAIL_CONFIGURATION_SET")?, ..mailer })
    }

    /// Makes no call. `from`: the default sender.
    pub fn new(aws: &SdkConfig, from: Option<String>) -> Self {
        // No retries of the SDK: the outbox retries.
        let config = aws_sdk_sesv2::config::Builder::from(aws).retry_config(RetryConfig::disabled()).build();
        Self { client: Client::from_conf(config), from, configuration_set: None }
    }

    /// Sends the mail of one outbox row: one request.
    pub async fn send(&self, mail: &Mail, row: &Claimed) -> Attempt {
        let Some(from) = row.url.strip_prefix("mailto:").or(self.from.as_deref()) else {
            return Attempt::Unsendable("no sender: EMAIL_FROM is not set".into());
        };
        let (content, tags) = match message(mail).and_then(|content| Ok((content, tags(row)?))) {
            Ok(made) => made,
            Err(error) => return Attempt::Unsendable(error.to_string()),
        };
        let sent = self
            .client
            .send_email()
            .from_email_address(from)
            .destination(Destination::builder().to_addresses(&mail.to).build())
            .content(content)
            .set_email_tags(Some(tags))
            .set_configuration_set_name(self.configuration_set.clone())
            .send()
            .await;
        let Err(error) = sent else { return Attempt::Delivered };
        let text = format!("SES: {}", DisplayErrorContext(&error));
        match error.code() {
            Some(code) if PERMANENT.contains(&code) => Attempt::Rejected(text),
            Some(code) if THROTTLED.contains(&code) => {
                Attempt::Throttled { error: text, wait: Some(THROTTLED_WAIT) }
            }
            Some(_) => Attempt::Failed { error: text, retry_after: None },
            None => Attempt::NoAnswer(text),
        }
    }
}

fn message(mail: &Mail) -> Result<EmailContent, aws_sdk_sesv2::error::BuildError> {
    let content = |text: &str| Content::builder().data(text).charset("UTF-8").build();
    let body = Body::builder().text(content(&mail.text)?).html(content(&mail.html)?).build();
    let simple = Message::builder().subject(content(&mail.subject)?).body(body).build();
    Ok(EmailContent::builder().simple(simple).build())
}

fn tags(row: &Claimed) -> Result<Vec<MessageTag>, aws_sdk_sesv2::error::BuildError> {
    let tag = |name: &str, value: String| MessageTag::builder().name(name).value(value).build();
    Ok(vec![tag("outbox", message_id(row.id))?, tag("destination", row.destination_id.to_string())?])
}

/// Loads the SDK's configuration from its variables. Credentials are fetched at the first request.
pub async fn aws_config() -> SdkConfig {
    aws_config::load_defaults(BehaviorVersion::latest()).await
}
