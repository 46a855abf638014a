//! Why a connection was not made, in words that say what to do.

/// What to do about a connection that was refused for its encryption or its certificate; `None` for any other failure.
pub fn why_refused(error: &sqlx::Error) -> Option<&'static str> {
    let text = match error {
        sqlx::Error::Tls(error) => error.to_string(),
        sqlx::Error::Io(error) => error.to_string(),
        _ => return None,
    };
    CAUSES.iter().find(|(part, _)| text.contains(part)).map(|(_, why)| *why)
}

/// What rustls or sqlx say, and what it means.
const CAUSES: [(&str, &str); 6] = [
    (
        "does not support TLS",
        "the server offers no TLS: switch it on there, or say sslmode=disable in the URL where the network itself is trusted",
    ),
    (
        "UnknownIssuer",
        "the server's certificate is signed by a CA that is not known here: give the CA's certificate in DATABASE_CA",
    ),
    (
        "BadSignature",
        "the server's certificate is signed by another CA than the one of this name that was given in DATABASE_CA",
    ),
    ("not valid for name", "the server's certificate is for another name than the host of the address"),
    ("expired", "the server's certificate has expired, or this machine's clock is wrong"),
    ("invalid peer certificate", "the server's certificate is not valid"),
];
