//! Random secrets, and the hash under which an API key is stored.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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
