//! A sender's signing secrets as this stack is configured with them, and as they are rotated while it runs.
//!
//! Promises: a delivery whose signature none of the known secrets verifies is tried once more with the secrets of this moment,
//! which are fetched as seldom as `runtime::secret` says, however many forged deliveries come.

use crate::http::problem::Problem;
use crate::runtime::config::ConfigError;
use crate::runtime::secret::Secret;
use crate::webhooks::signature::Secrets;

/// One or more secrets, separated by commas or white space.
#[derive(Clone, Debug)]
pub struct SigningSecret {
    name: &'static str,
    secret: Secret,
}

impl SigningSecret {
    /// From the variable `name`, or from Secrets Manager by `<name>_ARN`.
    pub fn from_env(name: &'static str) -> Result<Self, ConfigError> {
        let secret = Secret::from_env(name)?;
        if secret.given().is_some_and(|text| Secrets::plain(text).is_empty()) {
            return Err(ConfigError::new(name, "holds no secret"));
        }
        Ok(Self { name, secret })
    }

    /// Fetches a secret that is kept elsewhere, so that the first delivery does not wait for it.
    pub async fn warm(&self) {
        if let Err(error) = self.secret.current().await {
            tracing::warn!(%error, "no signing secret at cold start");
        }
    }

    /// 401 unless `holds` with the sender's secrets; 503 if they cannot be had.
    pub async fn check(&self, holds: impl Fn(&Secrets) -> bool) -> Result<(), Problem> {
        let known = self.secret.current().await.map_err(|error| {
            tracing::warn!(%error, "no secret to verify signatures with");
            Problem::unavailable()
        })?;
        let secrets = Secrets::plain(&known);
        if secrets.is_empty() && self.secret.given().is_none() {
            tracing::error!(secret = self.name, "the secret is empty");
            return Err(Problem::unavailable());
        }
        if holds(&secrets) {
            return Ok(());
        }
        let newer = self.secret.newer_than(&known).await;
        match newer.is_some_and(|newer| holds(&Secrets::plain(&newer))) {
            true => Ok(()),
            false => Err(Problem::bad_signature()),
        }
    }
}

/// Secrets that are given; for tests.
impl From<&str> for SigningSecret {
    fn from(text: &str) -> Self {
        Self { name: "(given)", secret: text.into() }
    }
}
