//! A notification of SNS, and its signature.

use aws_lc_rs::signature::{
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

/// As Lambda gets it; over HTTP the certificate's member ends with `URL`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Notification {
    r#type: String,
    message_id: String,
    pub(crate) topic_arn: String,
    #[serde(default)]
    subject: Option<String>,
    pub(crate) message: String,
    /// The text is signed, so it stays one.
    pub(crate) timestamp: String,
    signature_version: String,
    signature: String,
    #[serde(alias = "SigningCertURL")]
    pub(crate) signing_cert_url: String,
}

impl Notification {
    /// `None`: it is none.
    pub(crate) fn read(sent: &Value) -> Option<Self> {
        Self::deserialize(sent).ok().filter(|read| read.r#type == "Notification")
    }

    /// `key`: RSA, PKCS #1, DER.
    pub(crate) fn is_signed_by(&self, key: &[u8]) -> bool {
        let algorithm = match self.signature_version.as_str() {
            "1" => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            "2" => &RSA_PKCS1_2048_8192_SHA256,
            _ => return false,
        };
        let Ok(signature) = STANDARD.decode(&self.signature) else { return false };
        UnparsedPublicKey::new(algorithm, key).verify(self.signed().as_bytes(), &signature).is_ok()
    }

    /// What SNS signs: these members, each name and value on lines of their own, in this order.
    fn signed(&self) -> String {
        let members = [
            ("Message", Some(&self.message)),
            ("MessageId", Some(&self.message_id)),
            ("Subject", self.subject.as_ref()),
            ("Timestamp", Some(&self.timestamp)),
            ("TopicArn", Some(&self.topic_arn)),
            ("Type", Some(&self.r#type)),
        ];
        members.iter().filter_map(|(name, value)| value.map(|value| format!("{name}\n{value}\n"))).collect()
    }
}
