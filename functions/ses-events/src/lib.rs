//! What becomes of mails after SES has taken them: an address that bounced for good, or whose owner called a mail spam, is paused, and the
//! relay sends nothing there until an operator lets it (`holdfast admin mail resume`).
//!
//! Promises: only messages count that SNS has signed and that were published to our topic; a message that comes again changes nothing,
//! also after an address was let again. What is refused is logged and not asked for again; a failure that may pass is an error of the
//! invocation, so that Lambda tries again.
//! Relies on: AWS's certificate at an https address of the topic's own region. SES is the only one that may publish to the topic.

mod certificate;
mod feedback;
mod notification;

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use shared::db::call::Statement;
use shared::db::connection::Db;
use shared::db::error::DbError;
use shared::delivery::address::Guard;
use shared::delivery::fetch::{FetchError, Fetcher};
use shared::runtime::config::{ConfigError, DatabaseConfig, required};
use sqlx::Row;

use crate::certificate::Certificates;
use crate::feedback::Feedback;
use crate::notification::Notification;

/// Certificates are served by a CDN within milliseconds.
const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// A certificate has some 2 kB.
const CERTIFICATE_MAX_BYTES: usize = 64 * 1024;

/// The topic to which SES publishes.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its ARN.
    pub arn: String,
    /// The beginning of every address at which SNS publishes certificates of the topic's region.
    pub certificates: String,
}

impl Topic {
    /// Where AWS signs for a topic; `None` if this is no ARN of one.
    pub fn of_arn(arn: &str) -> Option<Self> {
        let parts: Vec<&str> = arn.split(':').collect();
        let ["arn", partition, "sns", region, account, name] = parts[..] else { return None };
        let word = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        };
        if ![partition, account, name].iter().all(|part| word(part))
            || !region.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            || region.is_empty()
        {
            return None;
        }
        let suffix = if partition == "aws-cn" { ".cn" } else { "" };
        let certificates = format!("https://sns.{region}.amazonaws.com{suffix}/SimpleNotificationService-");
        Some(Self { arn: arn.to_owned(), certificates })
    }
}

/// A sandbox of the function.
pub struct SesEvents {
    db: Db,
    topic: Topic,
    fetcher: Fetcher,
    certificates: Certificates,
}

impl SesEvents {
    /// `WORKER_DATABASE_URL`, `SES_TOPIC_ARN`. The error names the variable that is missing or wrong.
    pub fn from_env() -> Result<Self, ConfigError> {
        let db = Db::new(&DatabaseConfig::worker()?)
            .map_err(|_| ConfigError::new("WORKER_DATABASE_URL", "is wrong"))?;
        let arn = required("SES_TOPIC_ARN")?;
        let topic =
            Topic::of_arn(&arn).ok_or_else(|| ConfigError::new("SES_TOPIC_ARN", "is no topic's ARN"))?;
        Self::new(db, topic, Guard::default()).map_err(|_| ConfigError::new("TLS", "cannot be set up"))
    }

    /// `guard` admits the certificates' addresses.
    pub fn new(db: Db, topic: Topic, guard: Guard) -> Result<Self, Failure> {
        let fetcher = Fetcher::new(FETCH_TIMEOUT, CERTIFICATE_MAX_BYTES, guard)
            .map_err(|error| Failure::Tls(error.to_string()))?;
        Ok(Self { db, topic, fetcher, certificates: Certificates::default() })
    }
}

/// What an invocation did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Messages that were not signed by SNS for our topic, or cannot be read.
    pub refused: u64,
    /// Messages that pause nothing: a delivery, a passing bounce, what was told before.
    pub ignored: u64,
    /// Addresses that are paused now and were not, or for something older.
    pub paused: u64,
}

/// Why an invocation failed; it may succeed later.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The database.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The certificate cannot be read at the moment.
    #[error("the certificate of a message cannot be read: {0}")]
    Certificate(FetchError),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
}

/// One invocation: the event of SNS, `{"Records":[{"Sns":{…}}]}`.
pub async fn handle(function: &SesEvents, event: Value) -> Result<Summary, Failure> {
    let mut summary = Summary::default();
    let none = Vec::new();
    let records = event["Records"].as_array().unwrap_or(&none);
    if records.is_empty() {
        tracing::error!("an event without a message of SNS is refused");
        summary.refused += 1;
    }
    for record in records {
        match read(function, &record["Sns"]).await? {
            Err(why) => {
                tracing::error!(why, "a message is refused");
                summary.refused += 1;
            }
            Ok(None) => summary.ignored += 1,
            Ok(Some(feedback)) => match pause(&function.db, &feedback).await? {
                0 => summary.ignored += 1,
                paused => summary.paused += paused,
            },
        }
    }
    tracing::info!(?summary, "feedback of SES was read");
    Ok(summary)
}

/// What a message tells, if it is SNS's own; else why it is refused. Nothing of it is read before its signature holds.
async fn read(function: &SesEvents, sent: &Value) -> Result<Result<Option<Feedback>, &'static str>, Failure> {
    let Some(notification) = Notification::read(sent) else {
        return Ok(Err("it is no notification of SNS"));
    };
    if notification.topic_arn != function.topic.arn {
        return Ok(Err("it was published to another topic"));
    }
    // Anybody can publish a certificate somewhere.
    let address = &notification.signing_cert_url;
    if !address.starts_with(&function.topic.certificates) || !address.ends_with(".pem") {
        return Ok(Err("its certificate is not AWS's"));
    }
    let now = Timestamp::now();
    let key = match function.certificates.key(&function.fetcher, address, now).await {
        Ok(key) => key,
        Err(certificate::Refusal::Fetch(error)) if error.passes() => return Err(Failure::Certificate(error)),
        Err(certificate::Refusal::Fetch(_)) => return Ok(Err("its certificate cannot be had")),
        Err(certificate::Refusal::Unusable) => {
            return Ok(Err("its certificate cannot be used, or is not valid now"));
        }
    };
    if !notification.is_signed_by(&key) {
        return Ok(Err("its signature does not hold"));
    }
    Ok(Ok(feedback::read(&notification.message, &notification.timestamp)))
}

/// Returns how many addresses are paused by this.
async fn pause(db: &Db, feedback: &Feedback) -> Result<u64, DbError> {
    let argument = json!({"addresses": feedback.addresses, "kind": feedback.kind, "reason": feedback.reason,
        "at": feedback.at});
    let row = db.call_one(&Statement::new("holdfast.pause_addresses", argument)).await?;
    Ok(u64::try_from(row.try_get::<i64, _>("pause_addresses")?).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topics_certificates_are_those_of_its_region() {
        let of = |arn| Topic::of_arn(arn).map(|topic| topic.certificates);
        assert_eq!(
            of("arn:aws:sns:eu-west-1:123456789012:ses").as_deref(),
            Some("https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-")
        );
        assert_eq!(
            of("arn:aws-cn:sns:cn-north-1:123456789012:ses").as_deref(),
            Some("https://sns.cn-north-1.amazonaws.com.cn/SimpleNotificationService-")
        );
        for wrong in [
            "",
            "arn:aws:sqs:eu-west-1:123456789012:ses",
            "arn:aws:sns:evil.example/x:123456789012:ses",
            "arn:aws:sns::123456789012:ses",
            "arn:aws:sns:eu-west-1:123456789012:ses:subscription",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
