//! The keys of stored secrets. The crate `sealed` has the rest: the operator's program seals too.

pub use sealed::{NotOpened, Sealer, destination_place, shop_place, threepl_place};

use crate::runtime::config::ConfigError;
use crate::runtime::secret::Secret;

const NAME: &str = "SECRETS_KEYS";

/// `SECRETS_KEYS`, or what Secrets Manager holds under `SECRETS_KEYS_ARN`; read once, so a new key is known to new sandboxes.
pub async fn from_env() -> Result<Sealer, ConfigError> {
    let keys = Secret::from_env(NAME)?.current().await;
    let keys = keys.map_err(|error| ConfigError::new(NAME, format!("cannot be read: {error}")))?;
    Sealer::read(&keys).map_err(|why| ConfigError::new(NAME, why))
}
