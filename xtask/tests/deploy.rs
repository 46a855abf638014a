//! `cargo xtask deploy` with stand-ins of `aws` and `sam` on the PATH: what it looks at, in which order it acts, and where it stops.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Writes each call to `calls`; answers from the variables that the test sets.
const AWS: &str = r#"#!/bin/sh
echo "aws $1 $2 $*" >> "$STAND_IN/calls"
case "$1 $2" in
  "sts get-caller-identity") echo '{"Account":"123456789012"}' ;;
  "lambda get-account-settings") echo "{\"AccountLimit\":{\"ConcurrentExecutions\":$SANDBOXES}}" ;;
  "cloudformation describe-stacks")
    [ "$STACK" = none ] && { echo "Stack with id x does not exist" >&2; exit 254; }
    echo "{\"Stacks\":[{\"Outputs\":[{\"OutputKey\":\"ApiUrl\",\"OutputValue\":\"$API\"}]}]}" ;;
  "lambda invoke")
    for last; do :; done
    # The answer's file stands before `--output json`.
    file=$(echo "$*" | sed 's/ --output json$//; s/.* //')
    echo "{\"from\":1,\"to\":2,\"maxConnections\":$CONNECTIONS}" > "$file"
    [ -n "$MIGRATE_FAILS" ] && echo '{"StatusCode":200,"FunctionError":"Unhandled"}' || echo '{"StatusCode":200}' ;;
esac
"#;
const SAM: &str = "#!/bin/sh\necho \"sam $*\" >> \"$STAND_IN/calls\"\n";

struct StandIn {
    folder: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl StandIn {
    fn new(variables: &[(&'static str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("holdfast-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir_all(&folder).unwrap();
        for (name, text) in [("aws", AWS), ("sam", SAM)] {
            let path = folder.join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut all =
            vec![("SANDBOXES", "1000".to_owned()), ("CONNECTIONS", "400".into()), ("STACK", "there".into())];
        all.extend(variables.iter().map(|(name, value)| (*name, (*value).to_owned())));
        Self { folder, variables: all }
    }

    /// Runs the command on a manifest of its own that names every function.
    fn deploy(&self, args: &[&str]) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut names: Vec<String> = std::fs::read_dir(root.join("functions"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        let built: Vec<_> = names
            .iter()
            .map(|name| serde_json::json!({"name": name, "bytes": 1, "glibc": "2.34", "sha256": "0"}))
            .collect();
        let manifest = serde_json::json!({"arch": "arm64", "commit": "", "functions": built});
        let package = self.folder.join("package");
        std::fs::create_dir_all(package.join("migrate")).unwrap();
        std::fs::write(package.join("migrate/bootstrap"), "program").unwrap();
        std::fs::write(package.join("manifest.json"), manifest.to_string()).unwrap();
        let path = format!("{}:{}", self.folder.display(), std::env::var("PATH").unwrap());
        Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["deploy", "--config-env", "prod", "--unclean"])
            .args(args)
            .env("PATH", path)
            .env("STAND_IN", &self.folder)
            .env("HOLDFAST_PACKAGE", &package)
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .output()
            .unwrap()
    }

    /// What was called, without the arguments of `aws`.
    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.folder.join("calls")).unwrap();
        let short = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            if words[0] == "aws" { words[1..3].join(" ") } else { words[..2].join(" ") }
        };
        text.lines().map(short).collect()
    }
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Answers every request with 200; a repeat of a key is marked as one.
fn healthy() -> String {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut keys = std::collections::BTreeSet::new();
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 4096];
            let read = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..read]).into_owned();
            let key =
                request.lines().find_map(|line| line.strip_prefix("idempotency-key: ")).map(str::to_owned);
            let replayed = key.is_some_and(|key| !keys.insert(key));
            let mark = if replayed { "idempotent-replayed: true\r\n" } else { "" };
            let answer =
                format!("HTTP/1.1 200 OK\r\n{mark}content-length: 2\r\nconnection: close\r\n\r\n{{}}");
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn a_release_looks_then_migrates_then_shifts_the_requests_then_asks_for_health() {
    let smoke = [("HOLDFAST_SMOKE_KEY", "hf_x"), ("HOLDFAST_SMOKE_ORDER", "o"), ("HOLDFAST_SMOKE_SKU", "s")];
    let api = healthy();
    let stand_in = StandIn::new(&[smoke[0], smoke[1], smoke[2], ("API", api.as_str())]);
    let output = stand_in.deploy(&[]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("a promise was made and given back"), "{}", said(&output));
    let expected = [
        "sts get-caller-identity",
        "lambda get-account-settings",
        "cloudformation describe-stacks",
        "lambda invoke",
        "lambda update-function-code",
        "lambda wait",
        "lambda invoke",
        "sam deploy",
        "cloudformation describe-stacks",
    ];
    assert_eq!(stand_in.calls(), expected, "{}", said(&output));
    let calls = std::fs::read_to_string(stand_in.folder.join("calls")).unwrap();
    assert!(calls.contains("Architecture=arm64") && calls.contains("Connections=small"), "{calls}");
    assert!(calls.contains(r#"{"dryRun":true}"#) && calls.contains(r#"{"setPasswords":false}"#), "{calls}");
}

#[test]
fn the_first_deploy_makes_the_stack_and_then_migrates_with_passwords() {
    let stand_in = StandIn::new(&[("STACK", "none"), ("API", &healthy())]);
    let output = stand_in.deploy(&[]);
    // The stand-in's stack is never there, so the last look for its address fails.
    assert!(!output.status.success());
    let calls = std::fs::read_to_string(stand_in.folder.join("calls")).unwrap();
    let (sam, migrate) = (calls.find("sam deploy").unwrap(), calls.find(r#"{"setPasswords":true}"#).unwrap());
    assert!(sam < migrate && !calls.contains("update-function-code"), "{calls}");
}

#[test]
fn where_something_does_not_fit_nothing_is_changed() {
    for (variables, why) in [
        ([("SANDBOXES", "10"), ("CONNECTIONS", "400")], "the account may run 10 sandboxes at once"),
        ([("SANDBOXES", "1000"), ("CONNECTIONS", "60")], "the database takes 60"),
    ] {
        let stand_in = StandIn::new(&variables);
        let output = stand_in.deploy(&[]);
        assert!(!output.status.success() && said(&output).contains(why), "{}", said(&output));
        let calls = stand_in.calls();
        assert!(!calls.iter().any(|call| call == "sam deploy" || call.contains("update")), "{calls:?}");
    }
}

#[test]
fn a_migration_that_fails_stops_the_release_and_a_check_changes_nothing() {
    let stand_in = StandIn::new(&[("MIGRATE_FAILS", "1")]);
    let output = stand_in.deploy(&[]);
    assert!(
        !output.status.success() && said(&output).contains("the function migrate failed"),
        "{}",
        said(&output)
    );
    assert!(!stand_in.calls().contains(&"sam deploy".to_owned()));
    let stand_in = StandIn::new(&[]);
    let output = stand_in.deploy(&["--check"]);
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(stand_in.calls().last().unwrap(), "lambda invoke");
}
