//! What SES tells of a mail. `eventType` stands in what a configuration set publishes, `notificationType` in what an identity does.

use jiff::Timestamp;
use serde::Deserialize;

/// The column's limit.
const REASON_MAX_CHARS: usize = 500;
/// Of what a mail server said.
const DIAGNOSIS_MAX_CHARS: usize = 300;
/// The owner took back that it is spam.
const NOT_SPAM: &str = "not-spam";

/// Addresses to which nothing more is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Feedback {
    /// `bounce` or `complaint`.
    pub(crate) kind: &'static str,
    pub(crate) addresses: Vec<String>,
    /// One line for a person.
    pub(crate) reason: String,
    /// When it happened.
    pub(crate) at: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    #[serde(alias = "notificationType")]
    event_type: String,
    bounce: Option<Bounce>,
    complaint: Option<Complaint>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bounce {
    bounce_type: String,
    bounce_sub_type: Option<String>,
    bounced_recipients: Vec<Recipient>,
    timestamp: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Complaint {
    complained_recipients: Vec<Recipient>,
    complaint_feedback_type: Option<String>,
    complaint_sub_type: Option<String>,
    timestamp: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Recipient {
    email_address: String,
    diagnostic_code: Option<String>,
}

/// `published_at`: the time of the message, where SES names none. `None`: it pauses nothing, or is not of SES: on the topic's first
/// day SES publishes a sentence.
pub(crate) fn read(message: &str, published_at: &str) -> Option<Feedback> {
    let told: Told = serde_json::from_str(message).ok()?;
    let (kind, recipients, reason, at) = match (told.event_type.as_str(), told.bounce, told.complaint) {
        ("Bounce", Some(bounce), _) if bounce.bounce_type == "Permanent" => {
            let said = bounce.bounced_recipients.iter().find_map(|of| of.diagnostic_code.as_deref());
            let said =
                said.map(|said| format!(": {}", said.chars().take(DIAGNOSIS_MAX_CHARS).collect::<String>()));
            let how = bounce.bounce_sub_type.unwrap_or_else(|| "General".into());
            let reason = format!("a mail bounced for good ({how}){}", said.unwrap_or_default());
            ("bounce", bounce.bounced_recipients, reason, bounce.timestamp)
        }
        ("Complaint", _, Some(complaint))
            if complaint.complaint_feedback_type.as_deref() != Some(NOT_SPAM) =>
        {
            let how = complaint.complaint_feedback_type.or(complaint.complaint_sub_type);
            let how = how.map(|how| format!(" ({how})")).unwrap_or_default();
            let reason = format!("its owner complained of a mail{how}");
            ("complaint", complaint.complained_recipients, reason, complaint.timestamp)
        }
        _ => return None,
    };
    let one_line = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    let is_time = |at: &String| at.parse::<Timestamp>().is_ok();
    Some(Feedback {
        kind,
        addresses: recipients.iter().map(|of| bare(&of.email_address)).filter(|a| !a.is_empty()).collect(),
        reason: one_line.take(REASON_MAX_CHARS).collect(),
        at: at.filter(is_time).or_else(|| Some(published_at.to_owned()).filter(is_time))?,
    })
}

/// `ann@buyer.example` of `Ann <ann@buyer.example>`.
fn bare(address: &str) -> String {
    let inner = address.rsplit_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(inner, _)| inner);
    inner.unwrap_or(address).trim().chars().filter(|c| *c != '\0').collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const AT: &str = "2026-11-30T10:00:00.000Z";

    fn told(body: &Value) -> Option<Feedback> {
        read(&body.to_string(), AT)
    }

    #[test]
    fn permanent_bounces_and_complaints_pause_and_nothing_else_does() {
        for member in ["eventType", "notificationType"] {
            let bounce = |kind: &str| {
                json!({member: "Bounce", "mail": {"messageId": "m"}, "bounce": {"bounceType": kind, "bounceSubType": "NoEmail",
                    "bouncedRecipients": [{"emailAddress": "Ann <Ann@buyer.example>", "action": "failed", "status": "5.1.1",
                        "diagnosticCode": "smtp; 550 5.1.1\r\nuser unknown"}, {"emailAddress": "bo@buyer.example"}],
                    "timestamp": "2026-11-29T09:00:00.000Z", "feedbackId": "f"}})
            };
            let read = told(&bounce("Permanent")).unwrap();
            assert_eq!((read.kind, read.at.as_str()), ("bounce", "2026-11-29T09:00:00.000Z"));
            assert_eq!(read.addresses, ["Ann@buyer.example", "bo@buyer.example"]);
            assert_eq!(read.reason, "a mail bounced for good (NoEmail): smtp; 550 5.1.1  user unknown");
            for passing in ["Transient", "Undetermined"] {
                assert_eq!(told(&bounce(passing)), None);
            }
            let complaint = |kind: Value| {
                json!({member: "Complaint", "complaint": {"complainedRecipients": [{"emailAddress": "ann@buyer.example"}],
                    "complaintFeedbackType": kind, "timestamp": "yesterday"}})
            };
            let read = told(&complaint(json!("abuse"))).unwrap();
            assert_eq!((read.kind, read.at.as_str()), ("complaint", AT));
            assert_eq!(read.reason, "its owner complained of a mail (abuse)");
            assert_eq!(told(&complaint(Value::Null)).unwrap().reason, "its owner complained of a mail");
            assert_eq!(told(&complaint(json!("not-spam"))), None);
            assert_eq!(
                told(&json!({member: "Delivery", "delivery": {"recipients": ["ann@buyer.example"]}})),
                None
            );
        }
        assert_eq!(read("Successfully validated SNS topic for Amazon SES event publishing.", AT), None);
    }
}
