//! A URL or an RDS secret as options for a connection.

use std::net::IpAddr;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::Value;
use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::rds;

const BEGIN_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// Why an address cannot be used. The text never holds the address itself, since that may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WrongAddress(String);

/// What is said beside the address; where it is given it holds instead of what the address says.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// A host's name, as that of a proxy in front of the server that the secret names.
    pub host: Option<String>,
    /// A TCP port.
    pub port: Option<u16>,
    /// A database's name; a secret that RDS keeps itself has none, and no host.
    pub database: Option<String>,
    /// Certificates that are trusted besides: PEM, or the path of a PEM file.
    pub ca: Option<String>,
}

/// The members that RDS and the rotation functions of Secrets Manager write.
#[derive(Deserialize)]
struct RdsSecret {
    username: String,
    password: String,
    host: Option<String>,
    /// A number or a string.
    port: Option<Value>,
    dbname: Option<String>,
}

/// Reads `postgres://user:password@host:port/database?…`, or `{"username","password","host","port","dbname"}`.
pub fn options(address: &str, overrides: &Overrides) -> Result<PgConnectOptions, WrongAddress> {
    let address = address.trim();
    let named = if address.starts_with('{') { of_secret(address, overrides)? } else { of_url(address)? };
    let named = overrides.host.as_deref().map_or(named.clone(), |host| named.host(host));
    let named = overrides.port.map_or(named.clone(), |port| named.port(port));
    let named = overrides.database.as_deref().map_or(named.clone(), |name| named.database(name));
    trusting(verified(named), overrides.ca.as_deref())
}

fn of_url(url: &str) -> Result<PgConnectOptions, WrongAddress> {
    const FORM: &str = "the database's address must be postgres://user:password@host/database; this one";
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    if !["postgres", "postgresql"].iter().any(|name| scheme.eq_ignore_ascii_case(name)) {
        return Err(WrongAddress(format!("{FORM} does not begin with postgres://")));
    }
    PgConnectOptions::from_str(url).map_err(|error| match error {
        sqlx::Error::Configuration(why) => WrongAddress(format!("{FORM} cannot be read: {why}")),
        error => WrongAddress(format!("{FORM} cannot be read: {error}")),
    })
}

fn read_secret(text: &str) -> Result<RdsSecret, WrongAddress> {
    // What serde says of a mistake could quote the password.
    serde_json::from_str(text).map_err(|_| {
        WrongAddress(
            "the database's secret must be JSON with username and password, and may have host, port and dbname".into(),
        )
    })
}

fn of_secret(text: &str, overrides: &Overrides) -> Result<PgConnectOptions, WrongAddress> {
    let wrong = |what: &str| WrongAddress(format!("the database's secret {what}"));
    let secret = read_secret(text)?;
    let host = overrides.host.clone().or(secret.host).ok_or_else(|| wrong("names no host"))?;
    let database = overrides.database.clone().or(secret.dbname);
    let database = database.ok_or_else(|| wrong("names no database (dbname)"))?;
    let port = match secret.port {
        None => None,
        Some(Value::String(text)) => Some(text.parse().map_err(|_| wrong("has a wrong port"))?),
        Some(number) => Some(u16::deserialize(number).map_err(|_| wrong("has a wrong port"))?),
    };
    let named = PgConnectOptions::new_without_pgpass()
        .host(&host)
        .username(&secret.username)
        .password(&secret.password)
        .database(&database);
    Ok(port.map_or(named.clone(), |port| named.port(port)))
}

/// The password in a URL or in a secret.
pub fn password(address: &str) -> Result<String, WrongAddress> {
    let address = address.trim();
    if address.starts_with('{') {
        return Ok(read_secret(address)?.password);
    }
    // The options do not show it; a URL made of them does, decoded by the reader of URLs.
    let url = of_url(address)?.to_url_lossy();
    let password = url.password().and_then(|text| percent_decode_str(text).decode_utf8().ok());
    let password = password.filter(|password| !password.is_empty());
    password.map(Into::into).ok_or_else(|| WrongAddress("the database's address has no password".into()))
}

/// Raises the modes that verify nothing, which a URL often has from a provider's page: `require`, `prefer` and `allow` take any
/// certificate. On loopback nobody stands between.
fn verified(named: PgConnectOptions) -> PgConnectOptions {
    match named.get_ssl_mode() {
        PgSslMode::Allow | PgSslMode::Prefer | PgSslMode::Require if !is_local(&named) => {
            named.ssl_mode(PgSslMode::VerifyFull)
        }
        _ => named,
    }
}

fn is_local(named: &PgConnectOptions) -> bool {
    let host = named.get_host().trim_start_matches('[').trim_end_matches(']');
    named.get_socket().is_some()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Adds certificates to Mozilla's roots, which sqlx always has.
fn trusting(named: PgConnectOptions, ca: Option<&str>) -> Result<PgConnectOptions, WrongAddress> {
    let mut pem = rds::roots_for(named.get_host());
    if let Some(ca) = ca {
        let given = match ca.contains(BEGIN_CERTIFICATE) {
            true => ca.to_owned(),
            false => std::fs::read_to_string(ca.trim())
                .map_err(|error| WrongAddress(format!("the CA's file cannot be read: {error}")))?,
        };
        if !given.contains(BEGIN_CERTIFICATE) {
            return Err(WrongAddress("the CA's file holds no certificate in PEM".into()));
        }
        pem.push_str(&given);
    }
    Ok(if pem.is_empty() { named } else { named.ssl_root_cert_from_pem(pem.into_bytes()) })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    const NOTHING: Overrides = Overrides { host: None, port: None, database: None, ca: None };

    #[test]
    fn off_loopback_a_certificate_is_verified_whatever_a_copied_url_says() {
        use PgSslMode::{Disable, Prefer, Require, VerifyCa, VerifyFull};
        for (url, mode) in [
            ("postgres://a:b@db.example.com/x", VerifyFull),
            ("postgres://a:b@db.example.com/x?sslmode=prefer", VerifyFull),
            ("postgres://a:b@db.example.com/x?sslmode=require", VerifyFull),
            ("postgres://a:b@10.0.0.7/x", VerifyFull),
            ("postgres://a:b@db.example.com/x?sslmode=verify-ca", VerifyCa),
            ("postgres://a:b@db.example.com/x?sslmode=disable", Disable),
            ("postgres://a:b@127.0.0.1/x", Prefer),
            ("postgres://a:b@localhost:6432/x", Prefer),
            ("postgres://a:b@[::1]/x", Prefer),
            ("postgres://a:b@%2Fvar%2Frun/x", Prefer),
            ("postgres://a:b@127.0.0.1/x?sslmode=require", Require),
            ("postgres://a:b@localhost.example.com/x", VerifyFull),
        ] {
            let read = options(url, &NOTHING).unwrap().get_ssl_mode();
            assert_eq!(format!("{read:?}"), format!("{mode:?}"), "{url}");
        }
    }

    #[test]
    fn a_secret_is_read_as_rds_writes_it() {
        let whole = r#"{"engine":"postgres","username":"app","password":"p/@:%","host":"h.example.com","port":5433,
            "dbname":"holdfast","dbInstanceIdentifier":"i"}"#;
        let read = options(whole, &NOTHING).unwrap();
        assert_eq!((read.get_host(), read.get_port(), read.get_username()), ("h.example.com", 5433, "app"));
        assert_eq!(read.get_database(), Some("holdfast"));
        assert!(matches!(read.get_ssl_mode(), PgSslMode::VerifyFull));
        // One that RDS keeps itself holds no more than this.
        let own = r#"{"username":"app","password":"x"}"#;
        let over = Overrides {
            host: Some("proxy.example.com".into()),
            port: Some(6543),
            database: Some("d".into()),
            ca: None,
        };
        for secret in [own, whole] {
            let read = options(secret, &over).unwrap();
            assert_eq!((read.get_host(), read.get_port()), ("proxy.example.com", 6543));
            assert_eq!(read.get_database(), Some("d"));
        }
        assert_eq!(options(own, &NOTHING).unwrap_err().to_string(), "the database's secret names no host");
        let text = r#"{"username":"app","password":"x","host":"h","port":"5434","dbname":"d"}"#;
        assert_eq!(options(text, &NOTHING).unwrap().get_port(), 5434);
    }

    #[test]
    fn a_password_is_read_from_either_form() {
        for (address, expected) in [
            ("postgres://a:p%2F%40%3A%25x@h/d", "p/@:%x"),
            (r#"{"username":"a","password":"p/@:%x"}"#, "p/@:%x"),
        ] {
            assert_eq!(password(address).as_deref(), Ok(expected), "{address}");
        }
        assert!(password("postgres://a@h/d").is_err());
    }

    #[test]
    fn no_error_holds_what_was_given() {
        let missing = Overrides { ca: Some("/nowhere/ca.pem".into()), ..NOTHING };
        for (address, over, why) in [
            ("mysql://a:secret@h/db", &NOTHING, "does not begin with postgres://"),
            ("host=h password=secret", &NOTHING, "does not begin with postgres://"),
            ("a:secret@h/db", &NOTHING, "does not begin with postgres://"),
            ("postgres://a:secret@h:port/db", &NOTHING, "cannot be read: invalid port number"),
            ("postgres://a:secret@h/db?sslmode=perhaps", &NOTHING, "cannot be read: "),
            (r#"{"username":"a","password":["secret"]}"#, &NOTHING, "must be JSON with username"),
            (
                r#"{"username":"a","password":"secret","host":"h","dbname":"d","port":"secret"}"#,
                &NOTHING,
                "wrong port",
            ),
            (r#"{"username":"a","password":"secret","host":"h"}"#, &NOTHING, "names no database"),
            ("postgres://a:secret@h/db", &missing, "the CA's file cannot be read"),
        ] {
            let told = options(address, over).unwrap_err().to_string();
            assert!(told.contains(why) && !told.contains("secret@") && !told.contains("\"secret"), "{told}");
        }
    }
}
