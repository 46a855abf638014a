//! `cargo xtask deploy --config-env prod`: looks first, then migrates, then lets SAM shift the requests to the new versions.
//!
//! Order: preflights; the new code of the function `migrate`, and its invocation; `sam deploy`, in which CodeDeploy gives the
//! new versions a part of the requests and goes back by itself if an alarm goes off; last `GET /health`, and a promise that is made and given back. The old
//! versions run beside the new SQL meanwhile, which is why SQL changes additively.
//! Relies on the AWS CLI and SAM on the PATH, and on the credentials that they find.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use tokio::process::Command;

use xtask::process::{self, Group, Step};
use xtask::workspace::Workspace;

use crate::package::{self, Manifest};

/// What Lambda keeps back from reservations.
const UNRESERVED_MIN: i64 = 100;
/// Sessions of the owner, of people and of what watches the database.
const CONNECTIONS_FOR_OTHERS: i64 = 5;
/// Old and new sandboxes side by side.
const VERSIONS_AT_ONCE: i64 = 2;
/// Longer than the function may run.
const MIGRATE_SECONDS: &str = "910";
const HEALTH_WITHIN: Duration = Duration::from_secs(60);
const HEALTH_PAUSE: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
pub struct Args {
    /// The section of samconfig.toml.
    #[arg(long, value_name = "NAME")]
    config_env: String,
    /// Only the preflights: change nothing.
    #[arg(long)]
    check: bool,
    /// Deploy though the packaged functions are not of a clean commit.
    #[arg(long)]
    unclean: bool,
    /// Give the database's roles the passwords of their secrets, as the first deploy does by itself.
    #[arg(long)]
    set_passwords: bool,
}

/// What samconfig.toml says of one environment.
#[derive(Debug, PartialEq)]
struct Settings {
    stack: String,
    parameters: BTreeMap<String, String>,
}

impl Settings {
    fn read(workspace: &Workspace, name: &str) -> Result<Self> {
        let text = std::fs::read_to_string(workspace.root().join("samconfig.toml"))?;
        Self::of(&text, name)
    }

    fn of(text: &str, name: &str) -> Result<Self> {
        let file: toml::Table = text.parse().context("samconfig.toml cannot be read")?;
        let section = file.get(name).and_then(|env| env.get("deploy")?.get("parameters"));
        let section = section.with_context(|| format!("samconfig.toml has no [{name}.deploy.parameters]"))?;
        let stack = section.get("stack_name").and_then(|name| name.as_str()).context("it names no stack")?;
        let given = section.get("parameter_overrides").and_then(|list| list.as_array()).into_iter().flatten();
        let pairs = given.filter_map(|pair| pair.as_str()?.split_once('='));
        let parameters = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Self { stack: stack.to_owned(), parameters })
    }

    fn parameter<'s>(&'s self, name: &str, default: &'s str) -> &'s str {
        self.parameters.get(name).map_or(default, String::as_str)
    }
}

/// Deploys, or says what stands in the way.
pub async fn run(args: Args) -> Result<()> {
    let workspace = Workspace::open()?;
    let settings = Settings::read(&workspace, &args.config_env)?;
    let manifest = Manifest::read(&workspace)?;
    check_package(&workspace, &manifest, &settings, args.unclean).await?;
    let account = aws(&["sts", "get-caller-identity"]).await.context("no credentials of AWS")?;
    println!("✓ account {}", account["Account"].as_str().unwrap_or_default());
    let reserved = reserved(&workspace, &settings)?;
    check_concurrency(reserved).await?;
    let is_there = stack_is_there(&settings.stack).await?;
    if is_there {
        check_connections(&settings, reserved, &migrate(&settings, json!({"dryRun": true})).await?)?;
    } else {
        println!("– the stack {} is not there yet; connections are counted after it is", settings.stack);
    }
    if args.check {
        return Ok(());
    }
    if is_there {
        update_migrate(&workspace, &settings).await?;
        report(&migrate(&settings, json!({"setPasswords": args.set_passwords})).await?);
    }
    let architecture = format!("Architecture={}", manifest.arch.name());
    let mut sam = Command::new("sam");
    sam.args(["deploy", "--config-env", &args.config_env, "--parameter-overrides", &architecture]);
    sam.args(settings.parameters.iter().map(|(name, value)| format!("{name}={value}")));
    if !Group::spawn(sam.current_dir(workspace.root()))?.wait().await?.success() {
        bail!(
            "sam deploy failed; requests are served by the versions from before (docs/runbook.md#rollback)"
        );
    }
    if !is_there {
        let migrated = migrate(&settings, json!({"setPasswords": true})).await?;
        report(&migrated);
        check_connections(&settings, reserved, &migrated)?;
    }
    let url = check_health(&settings.stack).await?;
    match Smoke::from_env() {
        Some(smoke) => smoke.run(&url).await,
        None => {
            println!(
                "– no promise was tried: HOLDFAST_SMOKE_KEY, HOLDFAST_SMOKE_ORDER and HOLDFAST_SMOKE_SKU name none"
            );
            Ok(())
        }
    }
}

/// A promise that is made and given back, in a tenant that is there for that alone.
struct Smoke {
    /// An API key with `orders:write`.
    key: String,
    /// An open order that wants the SKU.
    order: String,
    sku: String,
}

impl Smoke {
    fn from_env() -> Option<Self> {
        let set = |name| std::env::var(name).ok().filter(|text: &String| !text.is_empty());
        Some(Self {
            key: set("HOLDFAST_SMOKE_KEY")?,
            order: set("HOLDFAST_SMOKE_ORDER")?,
            sku: set("HOLDFAST_SMOKE_SKU")?,
        })
    }

    /// Each twice under one key, so that the repeat is tried as well.
    async fn run(&self, url: &str) -> Result<()> {
        let client = reqwest::Client::new();
        for verb in ["allocate", "release"] {
            let key = format!("smoke-{}", uuid::Uuid::new_v4());
            for repeat in [false, true] {
                let request = client
                    .post(format!("{url}/orders/{}/{verb}", self.order))
                    .bearer_auth(&self.key)
                    .header("idempotency-key", &key)
                    .json(&json!({"skuId": self.sku, "qty": 1}));
                let answer = request.send().await.context("the smoke test gets no answer")?;
                let (status, replayed) =
                    (answer.status(), answer.headers().contains_key("idempotent-replayed"));
                if !status.is_success() || replayed != repeat {
                    let body = answer.text().await.unwrap_or_default();
                    bail!("{verb} answers {status}, replayed: {replayed}: {body} (docs/runbook.md#rollback)");
                }
            }
        }
        println!("✓ a promise was made and given back, each once");
        Ok(())
    }
}

/// What is deployed is what was packaged, and that is this commit.
async fn check_package(
    workspace: &Workspace,
    manifest: &Manifest,
    settings: &Settings,
    unclean: bool,
) -> Result<()> {
    let all = workspace.functions()?;
    if !manifest.functions.iter().map(|built| &built.name).eq(all.iter()) {
        bail!("other functions are packaged than there are: run `cargo xtask package`");
    }
    let mut git = Command::new("git");
    let head = process::succeed(
        "git does not answer",
        git.args(["rev-parse", "HEAD"]).current_dir(workspace.root()),
    )
    .await?;
    if manifest.commit != head.trim() && !unclean {
        bail!(
            "what is packaged is not this commit without changes: commit, then `cargo xtask package` (or --unclean)"
        );
    }
    let wanted = settings.parameter("Architecture", manifest.arch.name());
    if wanted != manifest.arch.name() {
        bail!("packaged for {}, and samconfig.toml says Architecture={wanted}", manifest.arch.name());
    }
    println!("✓ {} functions, packaged for {}", all.len(), manifest.arch.name());
    Ok(())
}

/// The sandboxes that the template reserves for this environment, in all.
fn reserved(workspace: &Workspace, settings: &Settings) -> Result<i64> {
    let template = std::fs::read_to_string(workspace.root().join("template.yaml"))?;
    sum_of(&template, settings.parameter("Connections", "small"))
}

/// The sum of one line of the template's mapping `Reserved`: a flow mapping under its name.
fn sum_of(template: &str, line: &str) -> Result<i64> {
    let mapping =
        template.split("\n  Reserved:\n").nth(1).context("template.yaml has no mapping Reserved")?;
    let named = mapping.split(&format!("    {line}:\n")).nth(1);
    let flow = named.and_then(|rest| rest.split(['{', '}']).nth(1));
    let flow = flow.with_context(|| format!("template.yaml reserves nothing for Connections={line}"))?;
    let numbers = flow.split(',').filter_map(|pair| pair.split_once(':')?.1.trim().parse::<i64>().ok());
    Ok(numbers.sum())
}

/// Lambda refuses a reservation that leaves less than 100 to all others; new accounts have 10 in all.
async fn check_concurrency(reserved: i64) -> Result<()> {
    let settings = aws(&["lambda", "get-account-settings"]).await?;
    let of = |name: &str| settings["AccountLimit"][name].as_i64();
    let all =
        of("ConcurrentExecutions").context("Lambda does not say how many sandboxes the account may have")?;
    if reserved > 0 && all - reserved < UNRESERVED_MIN {
        bail!(
            "the account may run {all} sandboxes at once, and {reserved} reserved ones leave less than {UNRESERVED_MIN}: ask for \
             more (Service Quotas, Lambda, \"Concurrent executions\"; 1,000 are usual), or deploy with Connections=unbounded"
        );
    }
    println!("✓ {reserved} of the account's {all} sandboxes are reserved");
    Ok(())
}

fn check_connections(settings: &Settings, reserved: i64, migrate: &Value) -> Result<()> {
    let most = migrate["maxConnections"]
        .as_i64()
        .context("the function migrate does not say what the database takes")?;
    let wanted = reserved * VERSIONS_AT_ONCE + CONNECTIONS_FOR_OTHERS;
    if settings.parameter("DatabasePooler", "none") == "transaction" {
        println!("✓ a pooler stands before the database's {most} connections");
    } else if wanted > most {
        bail!(
            "in a deploy the functions may open {wanted} connections ({reserved} sandboxes twice, {CONNECTIONS_FOR_OTHERS} others), \
             and the database takes {most}: a larger one, a pooler, or a smaller `Connections` (docs/deploy.md#connections)"
        );
    } else {
        println!("✓ {wanted} connections at most, of {most}");
    }
    Ok(())
}

async fn stack_is_there(stack: &str) -> Result<bool> {
    let mut describe = Command::new("aws");
    describe.args(["cloudformation", "describe-stacks", "--output", "json", "--stack-name", stack]);
    let output = process::output(&mut describe).await?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !said.contains("does not exist") {
        bail!("the stack {stack} cannot be described: {}", said.trim());
    }
    Ok(output.status.success())
}

/// Gives the function its new code alone. CloudFormation sets the same code again in a moment.
async fn update_migrate(workspace: &Workspace, settings: &Settings) -> Result<()> {
    let step = Step::begin("updating the function migrate");
    let zip = package::folder(workspace).join("migrate.zip");
    let _ = std::fs::remove_file(&zip);
    let mut python = Command::new("python3");
    python
        .args(["-m", "zipfile", "-c"])
        .arg(&zip)
        .arg("bootstrap")
        .current_dir(package::folder(workspace).join("migrate"));
    process::succeed("the function migrate cannot be zipped", &mut python).await?;
    let name = format!("{}-migrate", settings.stack);
    let file = format!("fileb://{}", zip.display());
    aws(&["lambda", "update-function-code", "--function-name", &name, "--zip-file", &file]).await?;
    aws(&["lambda", "wait", "function-updated-v2", "--function-name", &name]).await?;
    step.done();
    Ok(())
}

/// Invokes the function; its failure is ours.
async fn migrate(settings: &Settings, event: Value) -> Result<Value> {
    let answer = tempfile()?;
    let name = format!("{}-migrate", settings.stack);
    let path = answer.to_str().context("a path that is no text")?;
    let event = event.to_string();
    let invoked = aws(&[
        "lambda",
        "invoke",
        "--function-name",
        &name,
        "--cli-binary-format",
        "raw-in-base64-out",
        "--cli-read-timeout",
        MIGRATE_SECONDS,
        "--payload",
        &event,
        path,
    ])
    .await;
    let said = std::fs::read_to_string(&answer).unwrap_or_default();
    let _ = std::fs::remove_file(&answer);
    if invoked?.get("FunctionError").is_some() {
        bail!("the function migrate failed, and nothing else was changed: {said}");
    }
    serde_json::from_str(&said).context("the function migrate did not answer with JSON")
}

fn report(migrated: &Value) {
    println!("✓ the database is at migration {} (it was at {})", migrated["to"], migrated["from"]);
}

fn tempfile() -> Result<std::path::PathBuf> {
    let path = std::env::temp_dir().join(format!("holdfast-migrate-{}.json", std::process::id()));
    std::fs::write(&path, "").context("no temporary file can be written")?;
    Ok(path)
}

/// Waits until the API answers 200; returns its address.
async fn check_health(stack: &str) -> Result<String> {
    let described = aws(&["cloudformation", "describe-stacks", "--stack-name", stack]).await?;
    let outputs = described["Stacks"][0]["Outputs"].as_array().cloned().unwrap_or_default();
    let url = outputs.iter().find(|output| output["OutputKey"] == "ApiUrl");
    let url =
        url.and_then(|output| output["OutputValue"].as_str()).context("the stack has no output ApiUrl")?;
    let begun = tokio::time::Instant::now();
    loop {
        let answer = reqwest::get(format!("{url}/health")).await;
        if answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
            println!("✓ {url} answers");
            return Ok(url.to_owned());
        }
        if begun.elapsed() > HEALTH_WITHIN {
            bail!("{url}/health does not answer 200: {answer:?} (docs/runbook.md#unavailable)");
        }
        tokio::time::sleep(HEALTH_PAUSE).await;
    }
}

/// Runs the AWS CLI and reads its JSON; null where it says nothing.
async fn aws(args: &[&str]) -> Result<Value> {
    let mut command = Command::new("aws");
    command.args(args).args(["--output", "json"]);
    let said = process::succeed(&format!("aws {} {} failed", args[0], args[1]), &mut command).await?;
    if said.trim().is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&said)?) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]
mod tests {
    use super::*;

    #[test]
    fn an_environment_is_read_as_sam_reads_it() {
        let text = "version = 0.1\n[prod.deploy.parameters]\nstack_name = \"s\"\nparameter_overrides = [\"A=1\", \"B=x=y\"]\n";
        let settings = Settings::of(text, "prod").unwrap();
        assert_eq!((settings.stack.as_str(), settings.parameter("B", "")), ("s", "x=y"));
        assert_eq!(settings.parameter("C", "default"), "default");
        assert!(Settings::of(text, "dev").is_err());
    }

    #[test]
    fn the_templates_own_reservations_are_summed() {
        let workspace = Workspace::open().unwrap();
        let template = std::fs::read_to_string(workspace.root().join("template.yaml")).unwrap();
        let [unbounded, small, medium] =
            ["unbounded", "small", "medium"].map(|line| sum_of(&template, line).unwrap());
        assert_eq!(unbounded, 0);
        // A t4g.micro takes 81 from others than superusers and RDS itself, a t4g.medium over 300.
        assert!(small * VERSIONS_AT_ONCE <= 81 - 3, "{small}");
        assert!(medium * VERSIONS_AT_ONCE <= 320 && medium > small, "{medium}");
        assert!(sum_of(&template, "enormous").is_err());
    }
}
