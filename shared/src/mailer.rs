//! Mails, through SES. The SDK takes region, credentials and endpoint from its own variables (`AWS_REGION`, …,
//! `AWS_ENDPOINT_URL_SESV2` for a stand-in).

use aws_config::{BehaviorVersion, SdkConfig};
use aws_sdk_sesv2::Client;
use aws_sdk_sesv2::error::{DisplayErrorContext, ProvideErrorMetadata};
use aws_sdk_sesv2::types::{Body, Content, Destination, EmailContent, Message};

use crate::config::{ConfigError, optional};
use crate::delivery::Attempt;
use crate::email::Mail;

/// Codes with which SES says that this mail will never be taken.
const PERMANENT: [&str; 3] = ["MessageRejected", "BadRequestException", "MailFromDomainNotVerifiedException"];

/// Sends mails.
#[derive(Clone, Debug)]
pub struct Mailer {
    client: Client,
    from: Option<String>,
}

impl Mailer {
    /// `EMAIL_FROM` is the sender where a destination names none (`mailto:…` as its `url`); it must be verified with SES.
    ///
    /// # Errors
    /// When the variable is not UTF-8.
    pub fn from_env(aws: &SdkConfig) -> Result<Self, ConfigError> {
        let from = optional("EMAIL_FROM", String::new())?;
        Ok(Self::new(aws, Some(from).filter(|from| !from.is_empty())))
    }

    /// With this sender.
    pub fn new(aws: &SdkConfig, from: Option<String>) -> Self {
        Self { client: Client::new(aws), from }
    }

    /// Sends one mail. `url` is the destination's: `mailto:` names the sender.
    pub async fn send(&self, mail: &Mail, url: &str) -> Attempt {
        let Some(from) = url.strip_prefix("mailto:").or(self.from.as_deref()) else {
            return Attempt::Unsendable { error: "no sender: EMAIL_FROM is not set".into() };
        };
        let content = match message(mail) {
            Ok(content) => content,
            Err(error) => return Attempt::Unsendable { error: error.to_string() },
        };
        let sent = self
            .client
            .send_email()
            .from_email_address(from)
            .destination(Destination::builder().to_addresses(&mail.to).build())
            .content(content)
            .send()
            .await;
        let Err(error) = sent else { return Attempt::Delivered };
        let text = format!("SES: {}", DisplayErrorContext(&error));
        match error.code() {
            Some(code) if PERMANENT.contains(&code) => Attempt::Rejected { error: text },
            Some(_) => Attempt::Refused { error: text, retry_after: None },
            None => Attempt::NoAnswer { error: text },
        }
    }
}

fn message(mail: &Mail) -> Result<EmailContent, aws_sdk_sesv2::error::BuildError> {
    let content = |text: &str| Content::builder().data(text).charset("UTF-8").build();
    let body = Body::builder().text(content(&mail.text)?).html(content(&mail.html)?).build();
    let simple = Message::builder().subject(content(&mail.subject)?).body(body).build();
    Ok(EmailContent::builder().simple(simple).build())
}

/// The SDK's configuration from its own variables; makes no call before the first request.
pub async fn aws_config() -> SdkConfig {
    aws_config::load_defaults(BehaviorVersion::latest()).await
}
