//! What the local stack keeps between two runs beside the database: secrets and the demo's ids, in
//! `.local/dev-state.json`, which only its owner can read. Made together with the database.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use holdfast::secrets;
use sealed::Sealer;
use xtask::tokens::TokenIssuer;
use xtask::workspace::{Workspace, write_private};

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Of the superuser `postgres`.
    pub owner_password: String,
    pub app_password: String,
    pub worker_password: String,
    /// Signs the users' tokens, HS256.
    pub jwt_secret: String,
    pub stripe_secret: String,
    pub shopify_secret: String,
    pub partner_api_key: String,
    /// Seals stored secrets. An earlier version of this project made none, as the next.
    #[serde(default = "new_keys")]
    pub secrets_keys: String,
    /// With `events:read` of the demo's destination.
    #[serde(default = "secrets::api_key")]
    pub events_api_key: String,
    pub demo: Demo,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Demo {
    pub tenant: Uuid,
    pub user1: Uuid,
    pub user2: Uuid,
    /// The user that the partner's API key acts as.
    pub partner_user: Uuid,
    /// A second tenant, which must see nothing of the first.
    pub other_tenant: Uuid,
    pub other_user: Uuid,
    pub customer: Uuid,
    pub style: Uuid,
    pub scarce_sku: Uuid,
    pub plentiful_sku: Uuid,
    /// Both want the scarce and the plentiful SKU.
    pub orders: [Uuid; 2],
    /// The webhook of the local partner.
    pub destination: Uuid,
    pub destination_secret: String,
    pub shop_domain: String,
    pub threepl_account: String,
    pub threepl_secret: String,
}

impl State {
    pub fn path(workspace: &Workspace) -> PathBuf {
        workspace.state("dev-state.json")
    }

    /// Makes new secrets for a new database; otherwise reads those of the existing one.
    pub fn open(workspace: &Workspace, database_is_new: bool) -> Result<Self> {
        let path = Self::path(workspace);
        if database_is_new {
            let state = Self::new();
            write_private(&path, &serde_json::to_string_pretty(&state)?)?;
            return Ok(state);
        }
        let read = || -> Result<Self> {
            let state = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
            // With what the default of a field made.
            write_private(&path, &serde_json::to_string_pretty(&state)?)?;
            Ok(state)
        };
        read().or_else(|error| {
            bail!(
                "{} holds the passwords of the database beside it and cannot be read ({error}): `cargo xtask dev --fresh` \
                 starts over with an empty database",
                path.display()
            )
        })
    }

    fn new() -> Self {
        let id = Uuid::new_v4;
        Self {
            owner_password: secrets::random_hex(),
            app_password: secrets::random_hex(),
            worker_password: secrets::random_hex(),
            jwt_secret: secrets::random_hex(),
            stripe_secret: format!("whsec_{}", secrets::random_hex()),
            shopify_secret: secrets::random_hex(),
            partner_api_key: secrets::api_key(),
            secrets_keys: new_keys(),
            events_api_key: secrets::api_key(),
            demo: Demo {
                tenant: id(),
                user1: id(),
                user2: id(),
                partner_user: id(),
                other_tenant: id(),
                other_user: id(),
                customer: id(),
                style: id(),
                scarce_sku: id(),
                plentiful_sku: id(),
                orders: [id(), id()],
                destination: id(),
                destination_secret: secrets::webhook_secret(),
                shop_domain: "alder-finch-demo.myshopify.com".into(),
                threepl_account: "demo-3pl".into(),
                threepl_secret: secrets::webhook_secret(),
            },
        }
    }

    /// Opens and seals stored secrets, as the functions do.
    pub fn sealer(&self) -> Result<Sealer> {
        Sealer::read(&self.secrets_keys).map_err(|why| anyhow!("the state's secretsKeys {why}"))
    }

    pub fn token_issuer(&self) -> TokenIssuer {
        TokenIssuer {
            secret: self.jwt_secret.clone(),
            issuer: "https://holdfast.localhost/".into(),
            audience: "holdfast".into(),
            tenant_claim: "tenant_id".into(),
            scope_claim: "scope".into(),
        }
    }
}

fn new_keys() -> String {
    secrets::Keys::new_key("dev")
}
