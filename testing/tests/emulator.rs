//! The emulator behaves as Lambda does, seen by a bootstrap of a few lines of Python.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testing::emulator::{Function, Sandbox, SandboxError};

/// The event's `do` names what it does: `echo`, `fail`, `exit`, `hang`.
const BOOTSTRAP: &str = r#"#!/usr/bin/env python3
import json, os, time, urllib.request
api = "http://" + os.environ["AWS_LAMBDA_RUNTIME_API"] + "/2018-06-01/runtime/"

def post(path, document, headers={}):
    urllib.request.urlopen(urllib.request.Request(api + path, json.dumps(document).encode(), headers)).read()

if os.environ.get("BROKEN"):
    post("init/error", {"errorMessage": "no database"}, {"Lambda-Runtime-Function-Error-Type": "Runtime.ConfigError"})
    raise SystemExit(1)
while True:
    with urllib.request.urlopen(api + "invocation/next") as event:
        headers, body = dict(event.headers), json.load(event)
    at = "invocation/" + headers["lambda-runtime-aws-request-id"]
    if body["do"] == "fail":
        post(at + "/error", {"errorType": "Oops", "errorMessage": "on purpose"})
    elif body["do"] == "exit":
        os._exit(3)
    elif body["do"] == "hang":
        time.sleep(3600)
    else:
        post(at + "/response", {"headers": headers, "environment": dict(os.environ), "nowMs": time.time() * 1000})
"#;

/// Longer than any answer takes on a machine under load.
const AMPLE: Duration = Duration::from_secs(20);

/// Written once, before the first process starts: a file that is open for writing in any process, even between another
/// test's fork and exec, cannot be executed (ETXTBSY).
static EXECUTABLE: LazyLock<PathBuf> = LazyLock::new(|| {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("bootstrap-{}", std::process::id()));
    std::fs::write(&path, BOOTSTRAP).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
});

fn function(name: &str) -> Function {
    Function::new(name, EXECUTABLE.clone())
}

fn event(what: &str) -> String {
    json!({"do": what}).to_string()
}

async fn echo(sandbox: &Sandbox) -> Value {
    let invoked = sandbox.invoke(event("echo"), AMPLE).await.unwrap();
    serde_json::from_slice(&invoked.payload).unwrap()
}

#[tokio::test]
async fn an_event_comes_with_a_true_deadline_an_id_of_its_own_and_lambdas_environment() {
    let sandbox = Sandbox::start(&function("echo").env("OWN", "1")).await.unwrap();
    let init = sandbox.ready().await.unwrap();
    assert!(init > Duration::ZERO && init <= sandbox.age());
    let (first, second) = (echo(&sandbox).await, echo(&sandbox).await);
    let id = "lambda-runtime-aws-request-id";
    assert_ne!(first["headers"][id], second["headers"][id]);
    let deadline_ms: f64 = first["headers"]["lambda-runtime-deadline-ms"].as_str().unwrap().parse().unwrap();
    let left_ms = deadline_ms - first["nowMs"].as_f64().unwrap();
    assert!(left_ms > 0.0 && left_ms <= AMPLE.as_millis() as f64, "{left_ms} ms left");
    let environment = first["environment"].as_object().unwrap();
    assert_eq!(environment["AWS_LAMBDA_FUNCTION_NAME"], "echo");
    assert_eq!(environment["OWN"], "1");
    assert!(!environment.contains_key("CARGO_MANIFEST_DIR"), "the caller's environment leaks");
}

#[tokio::test]
async fn a_failure_arrives_in_the_functions_words_and_the_sandbox_goes_on() {
    let sandbox = Sandbox::start(&function("fail")).await.unwrap();
    let error = sandbox.invoke(event("fail"), AMPLE).await.unwrap_err();
    assert!(matches!(&error, SandboxError::Function(said) if said.contains("on purpose")), "{error}");
    echo(&sandbox).await;
}

#[tokio::test]
async fn a_function_that_cannot_start_says_why() {
    let sandbox = Sandbox::start(&function("broken").env("BROKEN", "1")).await.unwrap();
    let error = sandbox.invoke(event("echo"), AMPLE).await.unwrap_err();
    assert!(
        matches!(&error, SandboxError::Init(said) if said.contains("Runtime.ConfigError") && said.contains("no database")),
        "{error}"
    );
}

#[tokio::test]
async fn a_function_that_outlives_its_timeout_is_killed() {
    let sandbox = Sandbox::start(&function("hang")).await.unwrap();
    let error = sandbox.invoke(event("hang"), Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(error, SandboxError::TimedOut(_)), "{error}");
    assert!(!sandbox.is_running());
    assert!(matches!(sandbox.invoke(event("echo"), AMPLE).await, Err(SandboxError::Ended(_))));
}

#[tokio::test]
async fn a_process_that_dies_ends_its_invocation_at_once() {
    let sandbox = Sandbox::start(&function("exit")).await.unwrap();
    let error = sandbox.invoke(event("exit"), AMPLE).await.unwrap_err();
    assert!(matches!(&error, SandboxError::Ended(status) if status.contains('3')), "{error}");
}

#[tokio::test]
async fn a_frozen_sandbox_answers_only_once_it_thaws() {
    let sandbox = Sandbox::start(&function("freeze")).await.unwrap();
    echo(&sandbox).await;
    sandbox.freeze().await.unwrap();
    let mut answer = Box::pin(sandbox.invoke(event("echo"), AMPLE));
    // A running sandbox answers within a few ms.
    let early = tokio::time::timeout(Duration::from_millis(300), &mut answer).await;
    assert!(early.is_err(), "it answered while frozen");
    sandbox.thaw().unwrap();
    answer.await.unwrap();
}

#[tokio::test]
async fn concurrent_invocations_wait_for_each_other() {
    let sandbox = Sandbox::start(&function("turns")).await.unwrap();
    let answers = tokio::join!(echo(&sandbox), echo(&sandbox), echo(&sandbox));
    assert_ne!(answers.0["headers"], answers.1["headers"]);
    assert_ne!(answers.1["headers"], answers.2["headers"]);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_sandbox_that_freezes_between_events_stops_and_is_thawed_by_the_next() {
    let mut function = function("between");
    function.freezes_between = true;
    let sandbox = Sandbox::start(&function).await.unwrap();
    for _ in 0..3 {
        echo(&sandbox).await;
        until_stopped(sandbox.pid()).await;
    }
    assert!(sandbox.peak_memory_kib().unwrap() > 1000);
    sandbox.kill().await.unwrap();
    assert!(!sandbox.is_running());
}

#[cfg(target_os = "linux")]
async fn until_stopped(pid: i32) {
    let begun = Instant::now();
    while !std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"))
        .unwrap()
        .contains(") T ")
    {
        assert!(begun.elapsed() < AMPLE, "it never froze");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
