//! Where the stack listens: three ports on loopback, side by side unless told otherwise.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Result, bail};

/// The stack's ports.
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
    /// The HTTP port as given; the other two as given, else the two above it, else any that is free.
    ///
    /// # Errors
    /// When a port that was asked for is taken.
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

    /// Address of the functions.
    pub fn http_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.http)
    }

    /// Address of the partner.
    pub fn partner_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.partner)
    }

    /// Address of the database for one of its roles.
    pub fn database_url(&self, role: &str, password: &str) -> String {
        self.url_of("holdfast", role, password)
    }

    /// Address of the database that every cluster has, for its superuser.
    pub fn maintenance_url(&self, password: &str) -> String {
        self.url_of("postgres", "postgres", password)
    }

    fn url_of(&self, database: &str, role: &str, password: &str) -> String {
        format!("postgres://{role}:{password}@127.0.0.1:{}/{database}", self.postgres)
    }
}

/// A port of loopback.
pub fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A port that nobody listens on, chosen by the system.
///
/// # Errors
/// When the system has none left.
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

fn is_taken(port: u16) -> bool {
    // Where the system lets two listeners share a port (an address and all addresses), only a call tells.
    TcpListener::bind(local(port)).is_err()
        || TcpStream::connect_timeout(&local(port), Duration::from_millis(300)).is_ok()
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
