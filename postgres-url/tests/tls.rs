//! Certificates, tried on a real PostgreSQL behind a proxy that speaks TLS as a server of PostgreSQL does.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;

use postgres_url::{Overrides, options, why_refused};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use sqlx::{ConnectOptions, Connection};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

const SSL_REQUEST_BYTES: usize = 8;

/// A CA of one's own, as RDS and Supabase have.
struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A proxy in front of the test server whose certificate is for `name` and valid until this year; returns its port.
    async fn serve(&self, name: &str, until: i32) -> u16 {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(until, 1, 1));
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(
            tokio_rustls::rustls::crypto::aws_lc_rs::default_provider(),
        ));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(vec![certificate], key).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    client.read_exact(&mut [0; SSL_REQUEST_BYTES]).await?;
                    client.write_all(b"S").await?;
                    let mut client = acceptor.accept(client).await?;
                    let mut server = TcpStream::connect(address_of_server()).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        port
    }
}

fn server_url() -> String {
    std::env::var("DATABASE_URL").expect("DATABASE_URL is not set: run the tests through `cargo xtask test`")
}

fn address_of_server() -> String {
    let named = options(&server_url(), &Overrides::default()).unwrap();
    format!("{}:{}", named.get_host(), named.get_port())
}

/// Connects to that port, or says why not.
async fn connected(port: u16, ca: Option<&str>) -> Result<(), String> {
    let named = options(&server_url(), &Overrides::default()).unwrap();
    let overrides = Overrides {
        host: Some("localhost".into()),
        port: Some(port),
        database: named.get_database().map(str::to_owned),
        ca: ca.map(str::to_owned),
    };
    // On loopback the mode must be said; everywhere else it is the default.
    let separator = if server_url().contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}sslmode=verify-full", server_url());
    match options(&url, &overrides).unwrap().connect().await {
        Ok(mut connection) => {
            let encrypted: i32 = sqlx::query_scalar("select 1").fetch_one(&mut connection).await.unwrap();
            assert_eq!(encrypted, 1);
            connection.close().await.unwrap();
            Ok(())
        }
        Err(error) => Err(why_refused(&error).map_or_else(|| error.to_string(), str::to_owned)),
    }
}

#[tokio::test]
async fn a_server_with_a_ca_of_its_own_is_taken_with_that_ca_and_refused_without() {
    let ca = Ca::new();
    let port = ca.serve("localhost", 2999).await;
    assert_eq!(connected(port, Some(&ca.pem)).await, Ok(()));
    let refused = connected(port, None).await.unwrap_err();
    assert!(refused.contains("a CA that is not known here"), "{refused}");
    let refused = connected(port, Some(&Ca::new().pem)).await.unwrap_err();
    assert!(refused.contains("signed by another CA"), "{refused}");
    let file = std::env::temp_dir().join(format!("holdfast-ca-{port}.pem"));
    std::fs::write(&file, &ca.pem).unwrap();
    assert_eq!(connected(port, file.to_str()).await, Ok(()), "a file will do");
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn another_name_an_expired_certificate_and_no_tls_are_each_refused_by_its_cause() {
    let ca = Ca::new();
    let port = ca.serve("db.example.com", 2999).await;
    let refused = connected(port, Some(&ca.pem)).await.unwrap_err();
    assert!(refused.contains("for another name than the host"), "{refused}");
    let port = ca.serve("localhost", 2021).await;
    let refused = connected(port, Some(&ca.pem)).await.unwrap_err();
    assert!(refused.contains("has expired"), "{refused}");
    let plain: u16 = address_of_server().rsplit(':').next().unwrap().parse().unwrap();
    let refused = connected(plain, Some(&ca.pem)).await.unwrap_err();
    assert!(refused.contains("offers no TLS"), "{refused}");
}
