//! Random secrets, and the hash under which an API key is stored.

use anyhow::{Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealed::Sealer;
use sha2::{Digest, Sha256};

/// 256 random bits in hex.
pub fn random_hex() -> String {
    hex::encode(rand::random::<[u8; 32]>())
}

/// A Standard Webhooks secret: `whsec_` and 256 random bits in base64.
pub fn webhook_secret() -> String {
    format!("whsec_{}", STANDARD.encode(rand::random::<[u8; 32]>()))
}

/// A partner's API key: `hf_` and 256 random bits in hex. Only its hash is stored.
pub fn api_key() -> String {
    format!("hf_{}", random_hex())
}

/// SHA-256 of the whole key, `hf_` included.
pub fn api_key_hash(key: &str) -> Vec<u8> {
    Sha256::digest(key.as_bytes()).to_vec()
}

/// The keys of secrets at rest, those of the functions; without them secrets are stored as they are.
pub struct Keys(Option<Sealer>);

impl Keys {
    /// The value of `SECRETS_KEYS`; blank or absent is no keys. The error shows none.
    pub fn read(text: Option<&str>) -> Result<Self> {
        let text = text.filter(|text| !text.trim().is_empty());
        let sealer = text.map(|text| Sealer::read(text).map_err(|why| anyhow!("SECRETS_KEYS {why}")));
        Ok(Self(sealer.transpose()?))
    }

    /// A new key for secrets at rest, in the form of `SECRETS_KEYS`.
    pub fn new_key(id: &str) -> String {
        format!("{id}:{}", STANDARD.encode(rand::random::<[u8; 32]>()))
    }

    /// The sealer; an error where there are no keys.
    pub fn sealer(&self) -> Result<&Sealer> {
        self.0
            .as_ref()
            .ok_or_else(|| anyhow!("SECRETS_KEYS is not set: give the program the functions' keys"))
    }

    /// A secret as it is stored in `place`.
    pub fn at_rest(&self, place: &str, secret: &str) -> Result<String> {
        match &self.0 {
            Some(sealer) => Ok(sealer.seal(place, secret)?),
            None => {
                eprintln!(
                    "warning: SECRETS_KEYS is not set, so the secret is stored as it is; `holdfast admin reseal` can seal it"
                );
                Ok(secret.to_owned())
            }
        }
    }
}
