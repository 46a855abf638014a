//! The keys of stored secrets. The crate `sealed` has the rest: the operator's program seals too.

pub use sealed::{NotOpened, Sealer, destination_place, inventory_place, shop_place, threepl_place};

use crate::runtime::config::ConfigError;
use crate::runtime::secret::Secret;

const NAME: &str = "SECRETS_KEYS";

/// `SECRETS_KEYS`, or what Secrets Manager holds under `SECRETS_KEYS_ARN`; read once, so a new key is known to new sandboxes.
pub async fn from_env() -> Result<Sealer, ConfigError> {
    read(&Secret::from_env(NAME)?).await
}

/// The same, or no keys where neither variable is set: then only what is stored unsealed opens.
pub async fn optional_from_env() -> Result<Sealer, ConfigError> {
    match Secret::optional_from_env(NAME)? {
        Some(keys) => read(&keys).await,
        None => Ok(Sealer::default()),
    }
}

async fn read(keys: &Secret) -> Result<Sealer, ConfigError> {
    let keys = keys.current().await;
    let keys = keys.map_err(|error| ConfigError::new(NAME, format!("cannot be read: {error}")))?;
    Sealer::read(&keys).map_err(|why| ConfigError::new(NAME, why))
}
