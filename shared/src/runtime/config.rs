//! Configuration from the environment, parsed once at cold start. A missing or wrong variable stops the function
//! with that variable's name; no value is ever logged.

use std::fmt;
use std::str::FromStr;

/// Busy sandboxes never pay for the sign of life; NAT gateways and load balancers drop idle flows after 350 s or so.
const IDLE_CHECK_SECS: u64 = 30;

/// How the database is reached.
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// `postgres://…` with the role's user and password.
    pub url: String,
    /// What stands between the function and PostgreSQL.
    pub pooler: Pooler,
    /// A connection that lay idle for longer is asked for a sign of life before it is used: the network may have
    /// dropped it without a word, and a sandbox may have been frozen.
    pub idle_check_secs: u64,
}

/// What stands between the function and PostgreSQL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooler {
    /// A direct connection, or a pooler in session mode: prepared statements are cached.
    None,
    /// A pooler in transaction mode (Supavisor, pgbouncer, RDS Proxy): nothing may outlive a transaction.
    Transaction,
}

/// How callers prove who they are.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// What JWTs are verified with.
    pub keys: JwtKeys,
    /// The `iss` that a JWT must carry.
    pub issuer: String,
    /// The `aud` that a JWT must carry.
    pub audience: String,
    /// Name of the claim that holds the tenant id.
    pub tenant_claim: String,
    /// Name of the claim that holds the scopes, a space-separated string or an array.
    pub scope_claim: String,
}

/// What JWTs are verified with; the algorithm follows from this, never from the token.
#[derive(Clone)]
pub enum JwtKeys {
    /// A shared HS256 secret.
    Secret(String),
    /// The address of a JWKS with asymmetric keys.
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

/// A variable that is missing or wrong.
#[derive(Debug, thiserror::Error)]
#[error("environment variable {name} {problem}")]
pub struct ConfigError {
    name: &'static str,
    problem: String,
}

impl ConfigError {
    /// A variable whose value does not do; `problem` continues the sentence "environment variable NAME …".
    pub fn new(name: &'static str, problem: impl Into<String>) -> Self {
        Self { name, problem: problem.into() }
    }
}

/// A variable that must be there and not blank.
///
/// # Errors
/// When it is missing, blank or not UTF-8.
pub fn required(name: &'static str) -> Result<String, ConfigError> {
    present(name)?.ok_or_else(|| ConfigError::new(name, "is missing"))
}

/// A variable that may be absent or blank.
///
/// # Errors
/// When it is there and cannot be parsed.
pub fn optional<T: FromStr>(name: &'static str, default: T) -> Result<T, ConfigError>
where
    T::Err: fmt::Display,
{
    match present(name)? {
        None => Ok(default),
        Some(text) => {
            text.parse().map_err(|error: T::Err| ConfigError::new(name, format!("is wrong: {error}")))
        }
    }
}

fn present(name: &'static str) -> Result<Option<String>, ConfigError> {
    match std::env::var(name) {
        Ok(text) if text.trim().is_empty() => Ok(None),
        Ok(text) => Ok(Some(text)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(ConfigError::new(name, "is not UTF-8")),
    }
}

impl DatabaseConfig {
    /// A direct connection with the usual settings.
    pub fn direct(url: String) -> Self {
        Self { url, pooler: Pooler::None, idle_check_secs: IDLE_CHECK_SECS }
    }

    /// Of the endpoint functions: `APP_DATABASE_URL`, `DATABASE_POOLER`, `DATABASE_IDLE_CHECK_SECONDS`.
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub fn app() -> Result<Self, ConfigError> {
        Self::named("APP_DATABASE_URL")
    }

    /// Of relay, reaper and reconcile: `WORKER_DATABASE_URL`, and as [`DatabaseConfig::app`].
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub fn worker() -> Result<Self, ConfigError> {
        Self::named("WORKER_DATABASE_URL")
    }

    fn named(name: &'static str) -> Result<Self, ConfigError> {
        let url = required(name)?;
        sqlx::postgres::PgConnectOptions::from_str(&url).map_err(|_| {
            ConfigError::new(name, "is wrong: it must be postgres://user:password@host:port/database")
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
    ///
    /// # Errors
    /// A missing or wrong variable, by name.
    pub fn from_env() -> Result<Self, ConfigError> {
        let keys = match (present("JWT_SECRET")?, present("JWT_JWKS_URL")?) {
            (Some(secret), None) if secret.len() >= 32 => JwtKeys::Secret(secret),
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
