//! What the jobs call, and what they get.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName};
use jiff::Timestamp;
use reconcile::page::Page;
use shared::delivery::address::Guard;
use shared::delivery::attempt::{message_id, signature};
use shared::webhooks::signature::{Secrets, standard_webhooks};

/// An address that passes is https, names nobody's password, and is no literal of our own network in any notation.
pub fn outbound_address(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let Ok(url) = Guard::default().url(text) else { return };
    assert!(url.scheme() == "https" && url.username().is_empty() && url.password().is_none());
    let host = url.host_str().expect("a host");
    assert!(!host.is_empty() && host.trim_end_matches('.') != "localhost");
    if let Ok(address) = host.trim_matches(['[', ']']).parse::<Ipv6Addr>() {
        assert!(!address.is_loopback() && !address.is_unspecified() && !address.is_multicast(), "{url}");
        assert!(!address.is_unique_local() && !address.is_unicast_link_local(), "{url}");
        if let Some(address) = address.to_ipv4_mapped() {
            public(address);
        }
    } else if let Ok(address) = host.parse::<Ipv4Addr>() {
        public(address);
    }
}

fn public(address: Ipv4Addr) {
    assert!(!address.is_private() && !address.is_loopback() && !address.is_link_local(), "{address}");
    assert!(!address.is_unspecified() && !address.is_broadcast() && !address.is_multicast(), "{address}");
}

/// What is taken of a partner's report: counts of 0 or more, made at a moment that is past and young enough.
pub fn inventory_page(bytes: &[u8]) {
    let now = Timestamp::from_second(1_796_083_200).expect("a moment");
    let Ok(page) = Page::read(bytes, now, Duration::from_secs(48 * 3600)) else { return };
    for line in &page.lines {
        assert!(
            line.count >= 0 && line.as_of <= now && now.as_second() - line.as_of.as_second() <= 48 * 3600,
            "{line:?}"
        );
        assert!(!line.code.is_empty() && !line.code.contains('\0'), "{line:?}");
    }
    for line in &page.invalid {
        assert!(
            !line.code.contains('\0') && !line.reason.contains('\0') && !line.reason.is_empty(),
            "{line:?}"
        );
    }
    assert!(page.next.is_none_or(|next| !next.is_empty()));
}

/// What the relay signs, a receiver takes: with each of the secrets, whatever the body holds.
pub fn envelope(bytes: &[u8]) {
    let Ok(body) = str::from_utf8(bytes) else { return };
    let secrets = ["one secret of a destination", "the one that takes its place"]
        .map(|secret| format!("whsec_{}", STANDARD.encode(secret)));
    let now = Timestamp::from_second(1_796_083_200).expect("a moment");
    let id = message_id(i64::try_from(bytes.len()).expect("a length"));
    let signed = signature(&secrets, &id, now.as_second(), body).expect("the secrets are base64");
    let mut headers = HeaderMap::new();
    for (name, value) in [
        ("webhook-id", id.as_str()),
        ("webhook-timestamp", &now.as_second().to_string()),
        ("webhook-signature", &signed),
    ] {
        headers.insert(HeaderName::from_static(name), value.parse().expect("a header"));
    }
    for secret in &secrets {
        assert_eq!(standard_webhooks(&Secrets::base64(secret), &headers, bytes, now), Some(id.as_str()));
    }
    let other = format!("{body} ");
    assert!(standard_webhooks(&Secrets::base64(&secrets[0]), &headers, other.as_bytes(), now).is_none());
}
