//! The certificates with which SNS signs. The last one is kept: AWS uses one in a region for months.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use shared::delivery::fetch::{FetchError, Fetcher};
use x509_parser::pem::parse_x509_pem;
use x509_parser::time::ASN1Time;

/// Why there is no key.
pub(crate) enum Refusal {
    /// The certificate was not served.
    Fetch(FetchError),
    /// It is none, or is not valid at this time.
    Unusable,
}

/// A certificate's RSA key (PKCS #1, DER), and when it is valid, in seconds since 1970.
#[derive(Clone, Debug)]
struct Certificate {
    address: String,
    key: Vec<u8>,
    valid: std::ops::RangeInclusive<i64>,
}

#[derive(Debug, Default)]
pub(crate) struct Certificates {
    last: Mutex<Option<Certificate>>,
}

impl Certificates {
    /// The key of the certificate at this address, which the caller trusts.
    pub(crate) async fn key(
        &self,
        fetcher: &Fetcher,
        address: &str,
        now: Timestamp,
    ) -> Result<Vec<u8>, Refusal> {
        let known = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let certificate = match known.filter(|known| known.address == address) {
            Some(known) => known,
            None => {
                let pem = fetcher.get(address, &[], None).await.map_err(Refusal::Fetch)?;
                let (key, valid) = read(&pem).ok_or(Refusal::Unusable)?;
                let fetched = Certificate { address: address.to_owned(), key, valid };
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(fetched.clone());
                fetched
            }
        };
        if certificate.valid.contains(&now.as_second()) {
            Ok(certificate.key)
        } else {
            Err(Refusal::Unusable)
        }
    }
}

fn read(pem: &[u8]) -> Option<(Vec<u8>, std::ops::RangeInclusive<i64>)> {
    let (_, pem) = parse_x509_pem(pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let seconds = |time: &ASN1Time| time.timestamp();
    let validity = certificate.validity();
    let key = certificate.public_key().subject_public_key.data.to_vec();
    Some((key, seconds(&validity.not_before)..=seconds(&validity.not_after)))
}
