//! What a checkout's stack keeps from one start to the next beside the database: secrets, and the demo's ids.

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use holdfast::secrets;
use xtask::tokens::TokenIssuer;
use xtask::workspace::{Workspace, write_private};

/// Made once, before the database is; readable by this user alone.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// Of the superuser `postgres`.
    pub owner_password: String,
    /// Of `holdfast_app`.
    pub app_password: String,
    /// Of `holdfast_worker`.
    pub worker_password: String,
    /// Signs the users' tokens, HS256.
    pub jwt_secret: String,
    /// Stripe's endpoint secret.
    pub stripe_secret: String,
    /// The Shopify app's client secret.
    pub shopify_secret: String,
    /// What the demo's partner calls with.
    pub partner_api_key: String,
    /// The demo's ids.
    pub demo: Demo,
}

/// Ids and names of the demo.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Demo {
    /// The demo tenant.
    pub tenant: Uuid,
    /// Maya in Austin.
    pub user1: Uuid,
    /// Kenji in Tokyo.
    pub user2: Uuid,
    /// Whom the partner's API key acts as.
    pub partner_user: Uuid,
    /// A second tenant, which must see nothing of the first.
    pub other_tenant: Uuid,
    /// Its user.
    pub other_user: Uuid,
    /// Buys from the demo tenant.
    pub customer: Uuid,
    /// Comes in two SKUs.
    pub style: Uuid,
    /// The last six of it are worth a race.
    pub scarce_sku: Uuid,
    /// There is enough of it.
    pub plentiful_sku: Uuid,
    /// Both want 6 of the scarce SKU and 12 of the plentiful one.
    pub orders: [Uuid; 2],
    /// The local partner.
    pub destination: Uuid,
    /// It signs with this.
    pub destination_secret: String,
    /// Domain of the demo's shop.
    pub shop_domain: String,
    /// Id of the demo's 3PL account.
    pub threepl_account: String,
    /// It signs with this.
    pub threepl_secret: String,
}

impl State {
    /// Where it is kept.
    pub fn path(workspace: &Workspace) -> PathBuf {
        workspace.local("dev-state.json")
    }

    /// Reads it; makes it where the database has to be made too.
    ///
    /// # Errors
    /// When a database is there but the secrets to it are not.
    pub fn open(workspace: &Workspace, database_is_new: bool) -> Result<Self> {
        let path = Self::path(workspace);
        if database_is_new {
            let state = Self::new();
            write_private(&path, &serde_json::to_string_pretty(&state)?)?;
            return Ok(state);
        }
        let read = || -> Result<Self> { Ok(serde_json::from_str(&std::fs::read_to_string(&path)?)?) };
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

    /// How this stack's tokens are made.
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
