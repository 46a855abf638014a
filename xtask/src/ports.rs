//! The three ports on loopback that the stack listens on, consecutive by default.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail};

/// Ports on 127.0.0.1.
#[derive(Clone, Copy)]
pub struct Ports {
    /// The functions.
    pub http: u16,
    /// The local partner.
    pub partner: u16,
    /// PostgreSQL.
    pub postgres: u16,
}

impl Ports {
    /// Each port as asked for, or an error if it is taken. Those of partner and PostgreSQL default to the two above the
    /// HTTP port, or to any free port if those are taken.
    pub fn choose(http: u16, partner: Option<u16>, postgres: Option<u16>) -> Result<Self> {
        if is_taken(http) {
            bail!(
                "port {http} is in use by another program: stop that one, or choose another port with \
                 `cargo xtask dev --port {}` (or HOLDFAST_PORT)",
                if http == 9100 { 9200 } else { 9100 }
            );
        }
        let partner = beside("--partner-port", partner, http.checked_add(1), &[http])?;
        let postgres = beside("--postgres-port", postgres, http.checked_add(2), &[http, partner])?;
        Ok(Self { http, partner, postgres })
    }

    /// Base URL of the functions.
    pub fn http_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.http)
    }

    /// Base URL of the local partner.
    pub fn partner_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.partner)
    }

    /// URL of the `holdfast` database for one of its roles.
    pub fn database_url(&self, role: &str, password: &str) -> String {
        self.url_of("holdfast", role, password)
    }

    /// URL of the `postgres` database, which every cluster has, for its superuser.
    pub fn maintenance_url(&self, password: &str) -> String {
        self.url_of("postgres", "postgres", password)
    }

    fn url_of(&self, database: &str, role: &str, password: &str) -> String {
        format!("postgres://{role}:{password}@127.0.0.1:{}/{database}", self.postgres)
    }
}

/// This port of 127.0.0.1.
pub fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A free port on 127.0.0.1, chosen by the system.
pub fn any_free() -> Result<u16> {
    Ok(TcpListener::bind(local(0))?.local_addr()?.port())
}

fn beside(flag: &str, asked: Option<u16>, default: Option<u16>, others: &[u16]) -> Result<u16> {
    match asked {
        Some(port) if is_taken(port) || others.contains(&port) => {
            bail!("port {port} is in use: choose another one for {flag}, or leave {flag} out")
        }
        Some(port) => Ok(port),
        None => match default {
            Some(port) if !is_taken(port) && !others.contains(&port) => Ok(port),
            _ => any_free(),
        },
    }
}

/// Longest wait for an answer when a port is probed.
const PROBE_TIMEOUT: Duration = Duration::from_millis(300);

fn is_taken(port: u16) -> bool {
    // Binding can succeed beside a listener on all addresses (0.0.0.0), so a connection is tried too.
    TcpListener::bind(local(port)).is_err() || TcpStream::connect_timeout(&local(port), PROBE_TIMEOUT).is_ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    #[test]
    fn a_taken_port_is_named_and_the_others_move_out_of_the_way() {
        let held = TcpListener::bind(local(0)).unwrap();
        let port = held.local_addr().unwrap().port();
        let refused = Ports::choose(port, None, None).err().unwrap().to_string();
        assert!(refused.contains(&format!("port {port} is in use")), "{refused}");

        let http = any_free().unwrap();
        assert!(Ports::choose(http, Some(port), None).is_err());
        let ports = Ports::choose(http, None, None).unwrap();
        assert!(ports.partner != ports.postgres && ports.partner != http && ports.postgres != http);
    }
}
