//! Secrets at rest: what signs for us or lets us in (a destination's signing secrets, a shop's access token, a sender's secret, the
//! token of a 3PL's stock report) is stored sealed, and opened only by the functions that are given the keys.
//!
//! Promises: a stored secret is AES-256-GCM under a random nonce, with its key's id before it; it opens only where it belongs
//! (`place` is authenticated), so that a row copied over another one opens nothing. No error shows a secret or a key.
//! Relies on: the keys in `SECRETS_KEYS`, `<id>:<base64 of 32 bytes>`, several separated by commas: the first seals, all of them open. A key
//! goes only after `holdfast admin reseal`. At 2^32 secrets of one key a nonce may repeat: no operator comes near.
//! Does not promise that everything is sealed: what was stored before there were keys is opened as it stands, until it is resealed.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What every sealed secret begins with; no secret of another kind does.
const MARK: &str = "sealed:";
const KEY_BYTES: usize = 32;
const KEY_ID_MAX_CHARS: usize = 32;

/// The keys of secrets at rest. The default has none: it opens only what is stored unsealed.
#[derive(Default)]
pub struct Sealer {
    keys: Vec<(String, RandomizedNonceKey)>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|(id, _)| id)).finish()
    }
}

/// Why a stored secret cannot be opened.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOpened {
    /// `SECRETS_KEYS` does not hold its key.
    #[error("a stored secret is sealed with the key {0:?}, which SECRETS_KEYS does not hold")]
    UnknownKey(String),
    /// It was changed, or belongs elsewhere.
    #[error("a stored secret does not open where it stands")]
    Broken,
}

impl Sealer {
    /// Reads keys in the form of `SECRETS_KEYS`; the error completes "SECRETS_KEYS …" and shows no key.
    pub fn read(text: &str) -> Result<Self, &'static str> {
        const WRONG: &str = "is wrong: it is <id>:<base64 of 32 bytes>, several separated by commas, the one that seals first";
        let mut keys: Vec<(String, RandomizedNonceKey)> = Vec::new();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (id, key) = entry.split_once(':').ok_or(WRONG)?;
            let is_id = (1..=KEY_ID_MAX_CHARS).contains(&id.len())
                && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'));
            let key = STANDARD.decode(key).ok().filter(|key| is_id && key.len() == KEY_BYTES).ok_or(WRONG)?;
            if keys.iter().any(|(known, _)| known == id) {
                return Err("names a key twice");
            }
            keys.push((id.to_owned(), RandomizedNonceKey::new(&AES_256_GCM, &key).map_err(|_| WRONG)?));
        }
        if keys.is_empty() { Err(WRONG) } else { Ok(Self { keys }) }
    }

    /// Seals a secret with the first key. `place`: where it is stored, such as `threepl:north`.
    pub fn seal(&self, place: &str, secret: &str) -> Result<String, NotOpened> {
        let (id, key) = self.keys.first().ok_or(NotOpened::Broken)?;
        let mut sealed = secret.as_bytes().to_vec();
        let nonce = key
            .seal_in_place_append_tag(Aad::from(place.as_bytes()), &mut sealed)
            .map_err(|_| NotOpened::Broken)?;
        let stored = [nonce.as_ref(), sealed.as_slice()].concat();
        Ok(format!("{MARK}{id}:{}", STANDARD.encode(stored)))
    }

    /// Opens what [`Sealer::seal`] returned; what was stored unsealed is returned as it is.
    pub fn open(&self, place: &str, stored: &str) -> Result<String, NotOpened> {
        let Some((id, sealed)) =
            stored.strip_prefix(MARK).map(|rest| rest.split_once(':').unwrap_or((rest, "")))
        else {
            return Ok(stored.to_owned());
        };
        let key = self.keys.iter().find(|(known, _)| known == id).map(|(_, key)| key);
        let key = key.ok_or_else(|| NotOpened::UnknownKey(id.chars().take(KEY_ID_MAX_CHARS).collect()))?;
        let mut sealed = STANDARD.decode(sealed).map_err(|_| NotOpened::Broken)?;
        let (nonce, sealed) = sealed.split_at_mut_checked(NONCE_LEN).ok_or(NotOpened::Broken)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| NotOpened::Broken)?;
        let opened =
            key.open_in_place(nonce, Aad::from(place.as_bytes()), sealed).map_err(|_| NotOpened::Broken)?;
        String::from_utf8(opened.to_vec()).map_err(|_| NotOpened::Broken)
    }

    /// Whether it is sealed, and with the key that seals now.
    pub fn is_current(&self, stored: &str) -> bool {
        let id = stored.strip_prefix(MARK).and_then(|rest| rest.split_once(':')).map(|(id, _)| id);
        id.is_some() && id == self.keys.first().map(|(id, _)| id.as_str())
    }
}

/// Where a destination's secrets are stored.
pub fn destination_place(id: impl fmt::Display) -> String {
    format!("destination {id}")
}

/// Where a 3PL account's secrets are stored.
pub fn threepl_place(account: &str) -> String {
    format!("threepl {account}")
}

/// Where the token of a 3PL account's stock report is stored.
pub fn inventory_place(account: &str) -> String {
    format!("inventory {account}")
}

/// Where a shop's own secrets are stored.
pub fn shop_place(domain: &str) -> String {
    format!("shop {domain}")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    fn keys(ids: &[&str]) -> Sealer {
        let entries = ids.iter().map(|id| {
            let key = [id.bytes().next().unwrap(); KEY_BYTES];
            format!("{id}:{}", STANDARD.encode(key))
        });
        Sealer::read(&entries.collect::<Vec<_>>().join(", ")).unwrap()
    }

    #[test]
    fn a_secret_opens_where_it_was_sealed_and_nowhere_else() {
        let sealer = keys(&["b-2", "a-1"]);
        for secret in ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "", "shpat_ü", "sealed:a-1:x"] {
            let sealed = sealer.seal("shop a", secret).unwrap();
            assert!(
                sealed.starts_with("sealed:b-2:") && (secret.is_empty() || !sealed.contains(secret)),
                "{sealed}"
            );
            assert_ne!(sealed, sealer.seal("shop a", secret).unwrap(), "each time another nonce");
            assert_eq!(sealer.open("shop a", &sealed).as_deref(), Ok(secret));
            assert_eq!(sealer.open("shop b", &sealed), Err(NotOpened::Broken));
        }
        let sealed = sealer.seal("p", "secret").unwrap();
        for at in sealed.find(':').unwrap() + 5..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(sealer.open("p", &String::from_utf8(changed).unwrap()).is_err(), "{at}");
        }
        for broken in ["sealed:", "sealed:b-2", "sealed:b-2:", "sealed:b-2:AAAA", "sealed:b-2:!"] {
            assert!(sealer.open("p", broken).is_err(), "{broken}");
        }
        assert_eq!(
            sealer.open("p", "whsec_plain").as_deref(),
            Ok("whsec_plain"),
            "stored before there were keys"
        );
    }

    #[test]
    fn an_old_key_opens_until_it_goes_and_the_first_one_seals() {
        let old = keys(&["a-1"]).seal("p", "secret").unwrap();
        let both = keys(&["b-2", "a-1"]);
        assert_eq!(both.open("p", &old).as_deref(), Ok("secret"));
        assert!(!both.is_current(&old) && !both.is_current("secret"));
        let new = both.seal("p", "secret").unwrap();
        assert!(both.is_current(&new));
        assert_eq!(keys(&["b-2"]).open("p", &old), Err(NotOpened::UnknownKey("a-1".into())));
        assert_eq!(keys(&["b-2"]).open("p", &new).as_deref(), Ok("secret"));
    }

    #[test]
    fn without_keys_only_what_is_unsealed_opens() {
        let keyless = Sealer::default();
        assert_eq!(keyless.open("p", "token").as_deref(), Ok("token"));
        let sealed = keys(&["a-1"]).seal("p", "token").unwrap();
        assert_eq!(keyless.open("p", &sealed), Err(NotOpened::UnknownKey("a-1".into())));
        assert!(keyless.seal("p", "token").is_err() && !keyless.is_current("token"));
    }

    #[test]
    fn wrong_keys_are_refused_without_being_shown() {
        let key = STANDARD.encode([7; KEY_BYTES]);
        for wrong in [
            "",
            " , ",
            "a",
            &key,
            &format!("a:{key}x"),
            "a:AAAA",
            &format!(":{key}"),
            &format!("a b:{key}"),
            &format!("a:{key},a:{key}"),
        ] {
            let told = Sealer::read(wrong).unwrap_err();
            assert!(!told.contains(&key), "{told}");
        }
        assert!(!format!("{:?}", keys(&["a-1"])).contains("YWFh"), "the debug form has ids alone");
    }
}
