//! Configuration from the environment, parsed once at cold start. A missing or wrong variable stops the function
//! with that variable's name; no value is ever logged.

use std::fmt;
use std::str::FromStr;

/// Below the 350 s after which AWS NAT gateways and load balancers drop idle flows; above the pauses of a busy sandbox.
const IDLE_CHECK_SECS: u64 = 30;
/// The output size of SHA-256: RFC 7518 section 3.2 demands at least that of an HS256 key.
const MIN_SECRET_BYTES: usize = 32;

/// How the database is reached.
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// `postgres://…` with the role's user and password.
    pub url: String,
    /// The one in front of PostgreSQL, if any.
    pub pooler: Pooler,
    /// Idle seconds after which a connection gets a liveness check: the network may have dropped it silently.
    pub idle_check_secs: u64,
}

/// The connection pooler in front of PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooler {
    /// A direct connection, or a pooler in session mode: prepared statements are cached.
    None,
    /// A pooler in transaction mode (Supavisor, pgbouncer, RDS Proxy): nothing may outlive a transaction.
    Transaction,
}

/// How JWTs are verified and read.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// Shared secret or key set.
    pub keys: JwtKeys,
    /// Required `iss`.
    pub issuer: String,
    /// Required `aud`.
    pub audience: String,
    /// The claim that holds the tenant id.
    pub tenant_claim: String,
    /// The claim that holds the scopes, as a space-separated string or an array.
    pub scope_claim: String,
}

/// The verification keys. They decide the algorithm; the token does not.
#[derive(Clone)]
pub enum JwtKeys {
    /// A shared HS256 secret.
    Secret(String),
    /// URL of a JWKS with asymmetric keys.
    JwksUrl(String),
}

impl fmt::Debug for JwtKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret(_) => f.write_str("Secret(…)"),
            Self::JwksUrl(url) => write!(f, "JwksUrl({url})"),
        }
    }
}

/// A variable that is missing or has a wrong value.
#[derive(Debug, thiserror::Error)]
#[error("environment variable {name} {problem}")]
pub struct ConfigError {
    name: &'static str,
    problem: String,
}

impl ConfigError {
    /// `problem` completes the sentence "environment variable NAME …".
    pub fn new(name: &'static str, problem: impl Into<String>) -> Self {
        Self { name, problem: problem.into() }
    }
}

/// Reads a variable that must be set and not blank.
pub fn required(name: &'static str) -> Result<String, ConfigError> {
    non_blank(name)?.ok_or_else(|| ConfigError::new(name, "is missing"))
}

/// Reads a variable; `default` where it is absent or blank. A value that cannot be parsed is an error.
pub fn optional<T: FromStr>(name: &'static str, default: T) -> Result<T, ConfigError>
where
    T::Err: fmt::Display,
{
    match non_blank(name)? {
        None => Ok(default),
        Some(text) => {
            text.parse().map_err(|error: T::Err| ConfigError::new(name, format!("is wrong: {error}")))
        }
    }
}

fn non_blank(name: &'static str) -> Result<Option<String>, ConfigError> {
    match std::env::var(name) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(ConfigError::new(name, "is not UTF-8")),
    }
}

impl DatabaseConfig {
    /// A direct connection with default settings.
    pub fn direct(url: String) -> Self {
        Self { url, pooler: Pooler::None, idle_check_secs: IDLE_CHECK_SECS }
    }

    /// For the endpoint functions: `APP_DATABASE_URL`, `DATABASE_POOLER`, `DATABASE_IDLE_CHECK_SECONDS`.
    pub fn app() -> Result<Self, ConfigError> {
        Self::from_env("APP_DATABASE_URL")
    }

    /// For relay, reaper and reconcile: `WORKER_DATABASE_URL`, the rest as [`DatabaseConfig::app`].
    pub fn worker() -> Result<Self, ConfigError> {
        Self::from_env("WORKER_DATABASE_URL")
    }

    fn from_env(url_variable: &'static str) -> Result<Self, ConfigError> {
        let url = required(url_variable)?;
        sqlx::postgres::PgConnectOptions::from_str(&url).map_err(|_| {
            ConfigError::new(url_variable, "is wrong: it must be postgres://user:password@host:port/database")
        })?;
        let pooler = match optional("DATABASE_POOLER", String::from("none"))?.as_str() {
            "none" => Pooler::None,
            "transaction" => Pooler::Transaction,
            _ => {
                return Err(ConfigError::new("DATABASE_POOLER", "is wrong: it is `none` or `transaction`"));
            }
        };
        Ok(Self { url, pooler, idle_check_secs: optional("DATABASE_IDLE_CHECK_SECONDS", IDLE_CHECK_SECS)? })
    }
}

impl AuthConfig {
    /// `JWT_SECRET` or `JWT_JWKS_URL`, `JWT_ISSUER`, `JWT_AUDIENCE`, `JWT_TENANT_CLAIM`, `JWT_SCOPE_CLAIM`.
    pub fn from_env() -> Result<Self, ConfigError> {
        let keys = match (non_blank("JWT_SECRET")?, non_blank("JWT_JWKS_URL")?) {
            (Some(secret), None) if secret.len() >= MIN_SECRET_BYTES => JwtKeys::Secret(secret),
            (Some(_), None) => {
                return Err(ConfigError::new("JWT_SECRET", "is wrong: HS256 needs 32 bytes or more"));
            }
            (None, Some(url))
                if reqwest::Url::parse(&url).is_ok_and(|u| matches!(u.scheme(), "http" | "https")) =>
            {
                JwtKeys::JwksUrl(url)
            }
            (None, Some(_)) => {
                return Err(ConfigError::new("JWT_JWKS_URL", "is wrong: it must be an http(s) address"));
            }
            (None, None) => return Err(ConfigError::new("JWT_SECRET", "is missing (or set JWT_JWKS_URL)")),
            (Some(_), Some(_)) => {
                return Err(ConfigError::new("JWT_SECRET", "and JWT_JWKS_URL are both set: set exactly one"));
            }
        };
        Ok(Self {
            keys,
            issuer: required("JWT_ISSUER")?,
            audience: required("JWT_AUDIENCE")?,
            tenant_claim: required("JWT_TENANT_CLAIM")?,
            scope_claim: required("JWT_SCOPE_CLAIM")?,
        })
    }
}
