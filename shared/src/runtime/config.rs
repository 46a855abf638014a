//! Configuration from the environment, parsed once at cold start. A missing or wrong variable stops the function
//! with that variable's name; no value is ever logged.

use std::fmt;

use crate::runtime::environment::variable;
pub use crate::runtime::environment::{ConfigError, optional, required};
use crate::runtime::secret::Secret;

/// Below the 350 s after which AWS NAT gateways and load balancers drop idle flows; above the pauses of a busy sandbox.
const IDLE_CHECK_SECS: u64 = 30;
/// The output size of SHA-256: RFC 7518 section 3.2 demands at least that of an HS256 key.
pub(crate) const MIN_SECRET_BYTES: usize = 32;

/// How the database is reached.
#[derive(Clone, Debug)]
pub struct DatabaseConfig {
    /// `postgres://…` with the role's user and password, or a secret as RDS writes it.
    pub url: Secret,
    /// What holds instead of what `url` says, and the CA.
    pub overrides: postgres_url::Overrides,
    /// Whether each connection gets a token of RDS IAM authentication instead of a password.
    pub iam: bool,
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
    Secret(Secret),
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

impl DatabaseConfig {
    /// A direct connection with default settings.
    pub fn direct(url: String) -> Self {
        Self {
            url: url.into(),
            overrides: postgres_url::Overrides::default(),
            iam: false,
            pooler: Pooler::None,
            idle_check_secs: IDLE_CHECK_SECS,
        }
    }

    /// For the endpoint functions: the secret `APP_DATABASE_URL`; `DATABASE_HOST`, `DATABASE_PORT`, `DATABASE_NAME`,
    /// `DATABASE_CA`, `DATABASE_AUTH`, `DATABASE_POOLER`, `DATABASE_IDLE_CHECK_SECONDS`.
    pub fn app() -> Result<Self, ConfigError> {
        Self::from_env("APP_DATABASE_URL")
    }

    /// For relay, reaper and reconcile: the secret `WORKER_DATABASE_URL`, the rest as [`DatabaseConfig::app`].
    pub fn worker() -> Result<Self, ConfigError> {
        Self::from_env("WORKER_DATABASE_URL")
    }

    fn from_env(url_variable: &'static str) -> Result<Self, ConfigError> {
        let port: Option<String> = variable("DATABASE_PORT")?;
        let port =
            port.map(|text| text.trim().parse().map_err(|_| ConfigError::new("DATABASE_PORT", "is wrong")));
        let config = Self {
            url: Secret::from_env(url_variable)?,
            overrides: postgres_url::Overrides {
                host: variable("DATABASE_HOST")?,
                port: port.transpose()?,
                database: variable("DATABASE_NAME")?,
                ca: variable("DATABASE_CA")?,
            },
            iam: one_of("DATABASE_AUTH", &[("password", false), ("iam", true)])?,
            pooler: one_of(
                "DATABASE_POOLER",
                &[("none", Pooler::None), ("transaction", Pooler::Transaction)],
            )?,
            idle_check_secs: optional("DATABASE_IDLE_CHECK_SECONDS", IDLE_CHECK_SECS)?,
        };
        if let Some(url) = config.url.given() {
            postgres_url::options(url, &config.overrides)
                .map_err(|error| ConfigError::new(url_variable, format!("is wrong: {error}")))?;
        }
        Ok(config)
    }
}

/// Reads a variable that has one of these values; the first one where it is absent.
fn one_of<T: Copy>(name: &'static str, values: &[(&str, T)]) -> Result<T, ConfigError> {
    let text = optional(name, values[0].0.to_owned())?;
    let found = values.iter().find(|(value, _)| *value == text);
    let all = || values.iter().map(|(value, _)| format!("`{value}`")).collect::<Vec<_>>().join(" or ");
    found.map(|(_, value)| *value).ok_or_else(|| ConfigError::new(name, format!("is wrong: it is {}", all())))
}

impl AuthConfig {
    /// The secret `JWT_SECRET` or `JWT_JWKS_URL`, `JWT_ISSUER`, `JWT_AUDIENCE`, `JWT_TENANT_CLAIM`, `JWT_SCOPE_CLAIM`.
    pub fn from_env() -> Result<Self, ConfigError> {
        let keys = match (Secret::optional_from_env("JWT_SECRET")?, variable("JWT_JWKS_URL")?) {
            (Some(secret), None) if secret.given().is_none_or(|given| given.len() >= MIN_SECRET_BYTES) => {
                JwtKeys::Secret(secret)
            }
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
