//! `cargo xtask dev`: the whole stack on this machine. A second start takes seconds and keeps the data.
//!
//! Relies on Rust and Python 3; everything else is set up in `.local/`. Promises that all it starts ends with it, and that
//! it cleans up after a run that was killed.

mod bridge;
mod demo;
mod functions;
mod hints;
mod pace;
mod samples;
mod schedule;
mod state;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use holdfast::migrate::{RolePasswords, migrate};
use sqlx::{Connection, PgConnection};

use crate::partner;
use xtask::dev_env;
use xtask::postgres::{Cluster, Purpose};
use xtask::process::{Step, Stop, is_running};
use xtask::python::Venv;
use xtask::tokens::PLATFORM_SCOPE;
use xtask::workspace::{Workspace, remove, try_lock, write_private};

use bridge::Side;
use functions::Functions;
use state::State;
use xtask::ports::{self, Ports};

#[derive(clap::Args)]
pub struct Args {
    /// Run no schedules: relay and reaper run only when they are invoked.
    #[arg(long)]
    no_schedule: bool,
    /// Start over: first remove the database and all secrets.
    #[arg(long)]
    fresh: bool,
    /// Port of the functions.
    #[arg(long, env = "HOLDFAST_PORT", default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Port of the local partner [default: PORT + 1, or any free one].
    #[arg(long, env = "HOLDFAST_PARTNER_PORT", value_parser = clap::value_parser!(u16).range(1..))]
    partner_port: Option<u16>,
    /// Port of PostgreSQL [default: PORT + 2, or any free one].
    #[arg(long, env = "HOLDFAST_POSTGRES_PORT", value_parser = clap::value_parser!(u16).range(1..))]
    postgres_port: Option<u16>,
}

/// Settings of the console's sign-in, passed on to it.
const SIGN_IN: [&str; 5] = [
    "CONSOLE_OIDC_AUTHORIZE_URL",
    "CONSOLE_OIDC_TOKEN_URL",
    "CONSOLE_OIDC_CLIENT_ID",
    "CONSOLE_OIDC_SCOPE",
    "CONSOLE_OIDC_TOKEN",
];
const SERVER_CHECK_EVERY: Duration = Duration::from_secs(1);

/// Runs the stack until Ctrl-C or SIGTERM, then ends all of it.
pub async fn run(args: Args) -> Result<()> {
    let workspace = Workspace::open()?;
    let mut stop = Stop::listen()?;
    let Some(_lock) = try_lock(&workspace.state("dev.lock"))? else {
        bail!("another `cargo xtask dev` runs in this checkout: end it first (Ctrl-C there)");
    };
    let mut stack = Stack::default();
    let outcome = tokio::select! {
        outcome = stack.run(&workspace, &args) => outcome,
        () = stop.requested() => {
            println!("\nending …");
            Ok(())
        }
    };
    stack.end(&workspace).await.and(outcome)
}

/// What was started and must be ended.
#[derive(Default)]
struct Stack {
    cluster: Option<Cluster>,
    functions: Option<Functions>,
}

impl Stack {
    async fn run(&mut self, workspace: &Workspace, args: &Args) -> Result<()> {
        remove(&dev_env_path(workspace))?;
        Functions::end_leftover(workspace).await?;
        let ports = Ports::choose(args.port, args.partner_port, args.postgres_port)?;
        let data = workspace.state("postgres");
        if !args.fresh {
            Cluster::is_new(&data)?;
        }
        let venv = Venv::tools(workspace).await?;
        let cluster = self.cluster.insert(Cluster::at(&venv, data.clone()).await?);
        let built = functions::build(workspace).await?;

        let state = open_database(workspace, cluster, &data, &ports, args.fresh).await?;
        let owner_url = ports.database_url("postgres", &state.owner_password);
        let mut conn = PgConnection::connect(&owner_url).await?;
        demo::load(&mut conn, &state, &ports.partner_url()).await?;
        let _partner = partner::serve(ports::local(ports.partner), &owner_url, state.sealer()?).await?;

        let step = Step::begin(format!("starting the functions at {}", ports.http_url()));
        let environment = dev_env::render_quoted(&functions_environment(&state, &ports));
        let watcher = ports::any_free()?;
        bridge::serve(Side::Callers, ports::local(ports.http), ports::local(watcher)).await?;
        let bridge = bridge::serve(Side::Functions, ports::local(0), ports::local(watcher)).await?;
        let functions =
            self.functions.insert(Functions::start(workspace, &venv, built, watcher, bridge, &environment)?);
        functions.wait_until_healthy(&ports.http_url()).await?;
        functions.warm_up(&ports.http_url()).await;
        step.done();
        pace::check(&ports.http_url()).await;

        write_private(&dev_env_path(workspace), &dev_env::render(&stack_environment(&state, &ports)?))?;
        let _schedules = (!args.no_schedule).then(|| schedule::start(&ports.http_url()));
        hints::print(&mut conn, &state, &ports, !args.no_schedule).await?;
        conn.close().await?;
        let server = cluster.server_pid().await.context("PostgreSQL ended")?;
        tokio::select! {
            exited = functions.exited() => exited.map(|_| ()),
            () = process_ended(server) => bail!("PostgreSQL ended; its log is .local/postgres.log"),
        }
    }

    async fn end(&mut self, workspace: &Workspace) -> Result<()> {
        let removed = remove(&dev_env_path(workspace));
        if let Some(functions) = self.functions.take() {
            functions.end().await;
        }
        if let Some(cluster) = self.cluster.take() {
            cluster.stop().await?;
        }
        removed
    }
}

/// Starts the database server, after making it if there is none, and migrates the database.
async fn open_database(
    workspace: &Workspace,
    cluster: &Cluster,
    data: &std::path::Path,
    ports: &Ports,
    fresh: bool,
) -> Result<State> {
    if fresh {
        cluster.stop().await?;
        remove(data)?;
        remove(&State::path(workspace))?;
    }
    let is_new = Cluster::is_new(data)?;
    let state = State::open(workspace, is_new)?;
    let purpose = Purpose::Development(&state.owner_password);
    let step = Step::begin(if is_new { "making the database" } else { "starting the database" });
    if is_new {
        cluster.init(&purpose).await?;
    }
    cluster.start(ports.postgres, &purpose).await?;
    let mut conn = PgConnection::connect(&ports.maintenance_url(&state.owner_password)).await.context(
        "the database does not take the password in .local/dev-state.json: `cargo xtask dev --fresh` starts over with an \
         empty database",
    )?;
    let there: bool =
        sqlx::query_scalar("select exists (select from pg_database where datname = 'holdfast')")
            .fetch_one(&mut conn)
            .await?;
    if !there {
        sqlx::raw_sql("create database holdfast").execute(&mut conn).await?;
    }
    conn.close().await?;
    let passwords =
        RolePasswords { app: Some(state.app_password.clone()), worker: Some(state.worker_password.clone()) };
    migrate(&ports.database_url("postgres", &state.owner_password), Some(passwords)).await?;
    step.done();
    Ok(state)
}

async fn process_ended(pid: i32) {
    while is_running(pid) {
        tokio::time::sleep(SERVER_CHECK_EVERY).await;
    }
}

fn dev_env_path(workspace: &Workspace) -> PathBuf {
    workspace.state("dev.env")
}

/// Settings that both the functions and their callers need.
fn common_environment(state: &State, ports: &Ports) -> Vec<(&'static str, String)> {
    let issuer = state.token_issuer();
    vec![
        ("APP_DATABASE_URL", ports.database_url("holdfast_app", &state.app_password)),
        ("WORKER_DATABASE_URL", ports.database_url("holdfast_worker", &state.worker_password)),
        ("JWT_SECRET", issuer.secret),
        ("JWT_ISSUER", issuer.issuer),
        ("JWT_AUDIENCE", issuer.audience),
        ("JWT_TENANT_CLAIM", issuer.tenant_claim),
        ("JWT_SCOPE_CLAIM", issuer.scope_claim),
        ("STRIPE_WEBHOOK_SECRET", state.stripe_secret.clone()),
        ("STRIPE_LIVEMODE", "any".into()),
        ("SHOPIFY_WEBHOOK_SECRET", state.shopify_secret.clone()),
        ("SECRETS_KEYS", state.secrets_keys.clone()),
    ]
}

fn functions_environment(state: &State, ports: &Ports) -> Vec<(&'static str, String)> {
    let mut values = common_environment(state, ports);
    values.push(("DATABASE_POOLER", "none".into()));
    // For the function migrate alone.
    values.push(("OWNER_DATABASE_URL", ports.database_url("postgres", &state.owner_password)));
    // The address guard refuses loopback addresses otherwise, and the local partner has one.
    values.push(("DESTINATION_ALLOW", "127.0.0.1,localhost".into()));
    values.extend(partner::ses::environment(&ports.partner_url()));
    // Nobody publishes there: what SNS has not signed pauses nothing, here neither.
    values.push(("SES_TOPIC_ARN", "arn:aws:sns:us-east-1:000000000000:holdfast-local-ses".into()));
    // Whoever wants to try the console with an issuer sets them in the shell.
    values.extend(SIGN_IN.iter().filter_map(|name| Some((*name, std::env::var(name).ok()?))));
    values
}

fn stack_environment(state: &State, ports: &Ports) -> Result<Vec<(&'static str, String)>> {
    let issuer = state.token_issuer();
    let demo = &state.demo;
    let mut values = common_environment(state, ports);
    values.extend([
        ("HOLDFAST_URL", ports.http_url()),
        ("DATABASE_URL", ports.database_url("postgres", &state.owner_password)),
        ("TOKEN_USER1", issuer.token(demo.tenant, demo.user1)?),
        ("TOKEN_USER2", issuer.token(demo.tenant, demo.user2)?),
        ("TOKEN_OTHER_TENANT", issuer.token(demo.other_tenant, demo.other_user)?),
        ("TOKEN_PLATFORM", issuer.token_for(demo.tenant, demo.user1, PLATFORM_SCOPE)?),
        ("API_KEY_PARTNER", state.partner_api_key.clone()),
        ("API_KEY_EVENTS", state.events_api_key.clone()),
        ("SHOPIFY_SHOP", demo.shop_domain.clone()),
        ("THREEPL_ACCOUNT", demo.threepl_account.clone()),
        ("THREEPL_SECRET", demo.threepl_secret.clone()),
        ("PARTNER_URL", ports.partner_url()),
    ]);
    Ok(values)
}
