//! Which addresses a destination may have: protects our own network from requests that a user makes us send (SSRF), and one tenant's
//! name from another's mails.
//!
//! Promises: no connection to a private, loopback, link-local (cloud metadata) or reserved address, or to an IPv6 form of
//! one. The check is in the resolver of the connection, so a name that changes between check and call (DNS rebinding) gains
//! nothing.
//! Relies on: the caller, which calls [`Guard::url`] before each request, since an address literal is never looked up, and
//! whose client follows no proxy and no redirects.
//! Does not cover the hosts and networks that the operator allows (`DESTINATION_ALLOW`).

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ipnet::IpNet;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::runtime::config::{ConfigError, optional};

/// Longest address of a destination.
pub(crate) const URL_MAX_CHARS: usize = 2_048;
/// Where the look-up at saving takes longer, only the check at calling counts.
const LOOK_UP_TIMEOUT: Duration = Duration::from_millis(1_500);
/// `lookup_host` needs a port. Only the addresses matter here; the client puts in the port of the URL.
const ANY_PORT: u16 = 0;

/// Never called: the special-purpose registries of IANA, and the IPv6 prefixes behind which a gateway may reach IPv4.
/// An IPv4-mapped address is checked as the IPv4 address.
static REFUSED: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    [
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",
        "::ffff:0:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    ]
    .iter()
    .map(|net| net.parse().expect("a network written above"))
    .collect()
});

/// Decides which addresses may be called: public ones, and those that the operator allows.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    allowed: Arc<Allowed>,
    /// Which senders of mail destinations may name.
    pub senders: Senders,
}

/// Which senders of mail a tenant's destinations may name. (One that names none uses the operator's.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Senders {
    /// Any, for development.
    #[default]
    Any,
    /// Those that the operator has allowed the tenant (`aws_target`).
    Allowed,
}

impl FromStr for Senders {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "any" => Ok(Self::Any),
            "allowed" => Ok(Self::Allowed),
            _ => Err("it is any or allowed"),
        }
    }
}

#[derive(Debug, Default)]
struct Allowed {
    hosts: Vec<String>,
    networks: Vec<IpNet>,
}

impl Guard {
    /// From `DESTINATION_ALLOW`: host names, addresses and networks, separated by commas, that may be called though not
    /// public, also over plain HTTP; for development. `EMAIL_SENDERS`: `any` (the default) or `allowed`.
    pub fn from_env() -> Result<Self, ConfigError> {
        let text = optional("DESTINATION_ALLOW", String::new())?;
        let guard = Self::allowing(&text)
            .map_err(|entry| ConfigError::new("DESTINATION_ALLOW", format!("is wrong: {entry:?}")))?;
        Ok(Self { senders: optional("EMAIL_SENDERS", Senders::default())?, ..guard })
    }

    /// As [`Guard::from_env`], from its text. The error is the entry that is neither host, address nor network.
    pub fn allowing(text: &str) -> Result<Self, String> {
        let mut allowed = Allowed::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            if let Ok(network) = entry.parse::<IpNet>() {
                allowed.networks.push(network);
            } else if let Ok(address) = entry.parse::<IpAddr>() {
                allowed.networks.push(address.into());
            } else if entry.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.')) {
                allowed.hosts.push(entry.to_ascii_lowercase());
            } else {
                return Err(entry.to_owned());
            }
        }
        Ok(Self { allowed: Arc::new(allowed), senders: Senders::default() })
    }

    /// Whether the guard lets this address be called.
    pub fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.allows(address) || !REFUSED.iter().any(|network| network.contains(&address))
    }

    fn allows(&self, address: IpAddr) -> bool {
        self.allowed.networks.iter().any(|network| network.contains(&address.to_canonical()))
    }

    fn allows_host(&self, host: &str) -> bool {
        self.allowed.hosts.iter().any(|allowed| allowed == host)
    }

    /// Parses an address and makes all checks that need no look-up. The error completes "the address …".
    pub fn url(&self, text: &str) -> Result<Url, String> {
        if text.chars().count() > URL_MAX_CHARS {
            return Err(format!("must be at most {URL_MAX_CHARS} characters"));
        }
        let url = Url::parse(text).map_err(|_| "must be an absolute https address")?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err("must be an https address".into());
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not hold a user name or a password".into());
        }
        let host = url.host_str().unwrap_or_default();
        // An IPv6 literal stands in brackets.
        let literal: Option<IpAddr> = host.trim_start_matches('[').trim_end_matches(']').parse().ok();
        let name = host.trim_end_matches('.');
        let allowed = literal.map_or_else(|| self.allows_host(name), |address| self.allows(address));
        if url.scheme() == "http" && !allowed {
            return Err("must be an https address".into());
        }
        let reachable = match literal {
            Some(address) => self.admits(address),
            None => allowed || !(name.is_empty() || name == "localhost" || name.ends_with(".localhost")),
        };
        if !reachable {
            return Err("must be a public address".into());
        }
        Ok(url)
    }

    /// Checks an address before it is saved: as [`Guard::url`], and every address that its name has now. A name that cannot
    /// be looked up passes.
    pub async fn check(&self, text: &str) -> Result<(), String> {
        let url = self.url(text)?;
        let Some(host) = url.domain().filter(|host| !self.allows_host(host)) else {
            return Ok(());
        };
        let found = tokio::time::timeout(LOOK_UP_TIMEOUT, tokio::net::lookup_host((host, ANY_PORT))).await;
        let Ok(Ok(addresses)) = found else { return Ok(()) };
        let addresses: Vec<_> = addresses.collect();
        if addresses.iter().all(|address| self.admits(address.ip())) {
            Ok(())
        } else {
            Err("must be a public address".into())
        }
    }

    /// The operating system's resolver, without the addresses that may not be called.
    pub fn resolver(&self) -> Arc<GuardedResolver> {
        self.resolver_over(Arc::new(SystemResolver))
    }

    /// As [`Guard::resolver`], over another resolver; for tests.
    pub fn resolver_over(&self, inner: Arc<dyn Resolve>) -> Arc<GuardedResolver> {
        Arc::new(GuardedResolver { guard: self.clone(), inner })
    }
}

/// Filters the answers of another resolver by a [`Guard`].
pub struct GuardedResolver {
    guard: Guard,
    inner: Arc<dyn Resolve>,
}

/// A name has no address that may be called.
#[derive(Debug, thiserror::Error)]
#[error("the address is not public")]
pub struct NotPublic;

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, host) = (self.guard.clone(), name.as_str().trim_end_matches('.').to_ascii_lowercase());
        let looked_up = self.inner.resolve(name);
        Box::pin(async move {
            let found: Vec<SocketAddr> = looked_up.await?.collect();
            let host_allowed = guard.allows_host(&host);
            let admitted: Vec<_> =
                found.into_iter().filter(|address| host_allowed || guard.admits(address.ip())).collect();
            if admitted.is_empty() {
                return Err(NotPublic.into());
            }
            Ok(Box::new(admitted.into_iter()) as Addrs)
        })
    }
}

struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), ANY_PORT)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_an_address_that_is_not_public_are_all_refused() {
        let guard = Guard::default();
        for url in [
            "https://127.0.0.1/",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://0177.0.0.1/",
            "https://[::1]/",
            "https://[::ffff:169.254.169.254]/latest/meta-data",
            "https://[64:ff9b::7f00:1]/",
            "https://[2002:7f00:1::]/",
            "https://169.254.169.254/",
            "https://localhost/",
            "https://LOCALHOST./",
            "https://a.localhost/",
            "https://user@example.com/",
            "https://user:secret@example.com/",
            "https://:secret@example.com/",
            "http://example.com/",
            "ftp://example.com/",
            "file:///etc/passwd",
            "gopher://example.com/",
            "example.com",
            "//example.com/",
            "",
        ] {
            assert!(guard.url(url).is_err(), "{url}");
        }
        for url in
            ["https://example.com/hook?x=1", "https://example.com:8443/", "https://[2606:4700:4700::1111]/"]
        {
            assert!(guard.url(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn what_the_operator_allows_may_be_called_also_over_http_and_nothing_else() {
        let guard = Guard::allowing(" 127.0.0.1, 10.1.0.0/16 ,partner.internal,").expect("a list");
        for url in [
            "http://127.0.0.1:9/",
            "https://10.1.2.3/",
            "http://partner.internal/",
            "http://[::ffff:127.0.0.1]/",
        ] {
            assert!(guard.url(url).is_ok(), "{url}");
        }
        for url in
            ["http://127.0.0.2/", "https://10.2.0.1/", "http://x.partner.internal/", "http://u@127.0.0.1/"]
        {
            assert!(guard.url(url).is_err(), "{url}");
        }
        assert_eq!(Guard::allowing("127.0.0.1;x").expect_err("a semicolon"), "127.0.0.1;x");
    }
}
